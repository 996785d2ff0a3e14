"""The pipeline for real, at its smallest: run, run again, change a setting, kill, resume, fork.

One store serves most cases, a second one (with a longer name) the kill; both start empty. Kill and fork are slow.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from executor.experiments.experiment import declaration, graph_of
from executor.experiments.verdict import Known, judge
from recipes import hero_535b
from recipes.smoke import SmokeSettings

ROOT = Path(__file__).parents[2]
TRAINED = {"ladder/d16", "ladder/d24", "hero/pretrain", "hero/midtrain", "hero/sft"}
AFTER_TRAINING = TRAINED | {"forecast", "hero/eval", "hero/report"}


def environment() -> dict[str, str]:
    """Without the eight virtual devices of the tests: the recipe asks for its own."""
    return {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}


def start(prefix: Path, *arguments: str, recipe: str = "smoke") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, f"recipes/{recipe}.py", "--prefix", str(prefix), *arguments],
        cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def run(prefix: Path, *arguments: str) -> tuple[str, str]:
    process = start(prefix, *arguments)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    return out, err


def planned(marinade, prefix: Path, *arguments: str) -> dict[str, dict]:
    plan = json.loads(marinade("plan", "recipes/smoke.py", "--json", "--prefix", str(prefix), *arguments))
    return {step["name"]: step for step in plan["steps"]}


def records(prefix: Path) -> dict[str, dict]:
    """Step name -> its record."""
    found = [json.loads(path.read_text()) for path in prefix.rglob(".step/record.json")]
    return {record["name"]: record for record in found}


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> tuple[Path, str]:
    prefix = tmp_path_factory.mktemp("a")
    out, _ = run(prefix)
    return prefix, out


def test_it_ends_with_the_report(store):
    prefix, out = store
    report = json.loads(next(prefix.rglob("report.json")).read_text())
    assert f"{report['hero']['final_loss']:.4f}" in out
    assert [mark["progress"] for mark in report["forecast"]["marks"]][-1] == 1
    assert report["forecast"]["marks"][-1]["relative_error"] is not None
    assert set(report["evaluations"]) == {"pretrain", "midtrain", "sft"}
    assert report["evaluations"]["sft"]["multiple_choice"]["chance"] == 0.25


def test_the_hypothesis_is_judged_and_the_prediction_was_on_record_first(store):
    assert "hypothesis " in store[1] and "unknown" not in store[1]
    first = min((store[0] / ".runs").glob("*.json"))
    said = json.loads((first.with_suffix("") / "prediction.json").read_text())
    found = records(store[0])
    assert (
        said["value"] == found["forecast"]["result"]["final"]["loss"] and said["digest"] == found["forecast"]["digest"]
    )
    assert said["at"] <= found["hero/pretrain"]["started"]


def test_every_criterion_of_the_flagship_finds_its_numbers(store):
    experiment = hero_535b.build(SmokeSettings.at_scale("laptop").hero)
    known = {name: Known(result=record["result"]) for name, record in records(store[0]).items()}
    verdict = judge(declaration(experiment, graph_of(experiment)), known)
    assert verdict is not None and len(verdict.criteria) == 3
    assert {criterion.status for criterion in verdict.criteria} <= {"met", "not met"}
    assert [len(criterion.comparisons) for criterion in verdict.criteria] == [1, 2, 6]


def test_every_artifact_has_a_record_and_the_forecast_came_first(store):
    found = records(store[0])
    assert set(found) >= AFTER_TRAINING
    assert all(record["status"] == "succeeded" for record in found.values())
    pretrain = found["hero/pretrain"]
    read = [entry for entry in pretrain["inputs"] if entry["step"] == "forecast"]
    assert [entry["execution_only"] for entry in read] == [True]
    assert found["forecast"]["ended"] <= pretrain["started"]


def test_a_second_run_does_nothing(store):
    before = sorted(path for path in store[0].rglob("*") if ".runs" not in path.parts)
    out, _ = run(store[0])
    assert "nothing to do" in out
    assert sorted(path for path in store[0].rglob("*") if ".runs" not in path.parts) == before


def test_one_changed_setting_reruns_what_follows_and_nothing_else(marinade, store):
    steps = planned(marinade, store[0], "--set", "hero.midtrain.learning_rate=0.001")
    changed = {name for name, step in steps.items() if step["action"] != "reuse"}
    assert changed == {"hero/midtrain", "hero/sft", "hero/eval", "hero/report"}
    [reason] = steps["hero/midtrain"]["reasons"]
    assert (reason["kind"], reason["path"]) == ("config", "schedule.learning_rate")
    assert (reason["old"], reason["new"]) == (None, 0.001)


@pytest.mark.slow
def test_killed_in_the_middle_it_resumes_and_ends_as_if_nothing_had_happened(store, tmp_path_factory):
    """kill -9 of the whole process group during pretrain, under a prefix of another length."""
    prefix = tmp_path_factory.mktemp("a-prefix-with-a-longer-name")
    until = ("--until", "hero/midtrain")
    process = start(prefix, *until)
    deadline = time.monotonic() + 500
    while not list(prefix.glob("hero/pretrain-*/*/*/step-*/metadata.json")):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    run(prefix, *until)

    first, second = records(store[0]), records(prefix)
    trained = TRAINED - {"hero/sft"}
    assert set(first) > set(second) > trained
    for name in set(second) - AFTER_TRAINING:
        assert first[name]["digest"] == second[name]["digest"], name
    for name in trained:
        histories = [
            json.loads((folder / record["address"] / record["attempt"] / "history.json").read_text())
            for folder, record in ((store[0], first[name]), (prefix, second[name]))
        ]
        assert histories[0] == histories[1], name
    attempts = list((prefix / second["hero/pretrain"]["address"] / ".step" / "attempts").iterdir())
    assert len(attempts) == 2


def test_a_fork_finds_what_came_before_it(marinade, store):
    """The mixture swap on the store of the flagship: everything up to the fork is found, the rest is new."""
    steps = planned(marinade, store[0], "--set", "hero.swap=true")
    assert {name for name, step in steps.items() if step["action"] != "reuse"} == {
        "hero/pretrain-swap", "hero/midtrain", "hero/sft", "hero/eval", "hero/report",
    }  # fmt: skip


@pytest.mark.slow
def test_a_fork_trains_on_from_what_came_before_it(store):
    run(store[0], "--set", "hero.swap=true", "--until", "hero/pretrain-swap")
    swap = records(store[0])["hero/pretrain-swap"]
    history = json.loads((store[0] / swap["address"] / swap["attempt"] / "history.json").read_text())
    assert [stage["start_step"] for stage in history["stages"]] == [0, 10]
    base = records(store[0])["hero/pretrain"]
    trained = json.loads((store[0] / base["address"] / base["attempt"] / "history.json").read_text())
    assert history["losses"][:10] == trained["losses"][:10]
    assert history["losses"][10:] != trained["losses"][10:]
