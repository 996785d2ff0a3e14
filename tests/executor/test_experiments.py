"""Experiments in the open: declared before the first step, predicted before the hero, judged whatever comes of it."""

import dataclasses
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from executor import Criterion, Experiment, UsageError, secrets
from executor.cli import main
from executor.experiments.listing import experiments
from executor.experiments.verdict import Known, Verdict, judge
from executor.render.experiments import experiments_text
from executor.render.terminal import Terminal
from executor.render.verdict import number_texts, numbers_texts
from executor.step import Step
from executor.storage.record import RunRecord
from executor.storage.stamps import new_id

RECIPE = """
    import glob, json

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class NumberConfig:
        result: dict[str, float]
        forecast: Input | None = execution(None)
        after: Input | None = None
        prefix: str = execution("")
        how: str = "well"

    def number(config, output):
        put(output + "/number", str(config.result))
        if config.how == "fails":
            raise RuntimeError("no luck")
        if config.how == "halts":
            raise StepHalted("the loss stands still")
        if config.how == "sleeps":
            time.sleep(60)
        found = [json.loads(get(path)) for path in glob.glob(config.prefix + "/.runs/*/prediction.json")]
        declared = [json.loads(get(path))["experiment"] for path in glob.glob(config.prefix + "/.runs/*.json")]
        print(json.dumps({"predictions": found, "declared": declared}))
        return {**config.result, "seen": {"predictions": len(found), "hypotheses": len(declared)}}

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Settings(Scales):
        prefix: str = ""
        loss: float = 4.0
        predicted: float = 4.1
        within: float = 0.05
        hypothesis: str = "the law holds"
        how: str = "well"
        extra: str = ""

    def build(settings: Settings) -> Experiment:
        forecast = Step("forecast", number, NumberConfig(result={"loss": settings.predicted}))
        config = NumberConfig(result={"loss": settings.loss}, forecast=forecast, prefix=settings.prefix,
                              how=settings.how)
        hero = Step("hero", number, config, resources=Resources(cpus=2))
        report = Step("report", number, NumberConfig(result={}, after=hero))
        return Experiment(
            targets=(report,),
            hypothesis=settings.hypothesis,
            issue="https://example.org/issues/7",
            success=(
                Criterion("as forecast", value=hero.result("loss"), within=settings.within,
                          of=forecast.result("loss")),
                *([settings.extra] if settings.extra else []),
            ),
            prediction=forecast.result("loss"),
        )
"""


@pytest.fixture
def toy(project):
    project.write("toy_recipe.py", RECIPE)
    return project


def listed(project):
    (group,) = experiments(project.store).groups
    return group


def statuses(verdict: Verdict | None) -> list[str]:
    assert verdict is not None
    return [criterion.status for criterion in verdict.criteria]


# Criteria

H, F = {"step": "h", "path": "loss"}, {"step": "f", "path": "loss"}


def judged(bounds, value=H, within=None, **results):
    known = {name: Known(result=result) for name, result in results.items()}
    criterion = {"words": "w", "value": value, "bounds": bounds, **({} if within is None else {"within": within})}
    verdict = judge({"hypothesis": "", "success": [criterion]}, known)
    assert verdict is not None
    return verdict.criteria[0]


@pytest.mark.parametrize(
    ("loss", "bounds", "status", "text"),
    [
        (4.0711, {"within": [F]}, "met", "4.0711 against 4.1315: 1.5%, allowed 2%"),
        (4.2142, {"within": [F]}, "not met", "4.2142 against 4.1315: 2.002%, allowed 2%"),
        (4, {"within": [4]}, "met", "4 against 4: 0.0%, allowed 2%"),
        (4.0, {"below": [4.5, F]}, "met", "4 < 4.1315 (the closest of 2)"),
        (4.2, {"below": [4.5, F]}, "not met", "4.2 is not < 4.1315"),
        (4.0, {"below": [4.0]}, "not met", "4 is not < 4"),
        (4.0, {"at_most": [4.0], "at_least": [3.0]}, "met", "4 <= 4 (the closest of 2)"),
        (2.0, {"at_most": [4.0], "at_least": [3.0]}, "not met", "2 is not >= 3"),
        (2.0, {"above": [1.0]}, "met", "2 > 1"),
        (float("nan"), {"below": [4.0]}, "not met", "nan is not < 4"),
        (None, {"below": [4.0]}, "unknown", "h.loss is None, not a number"),
        (True, {"below": [4.0]}, "unknown", "h.loss is True, not a number"),
        ({"a": 1.0, "b": 3.0}, {"below": [2.0]}, "not met", "b: 3 is not < 2"),
    ],
)
def test_a_criterion_says_its_numbers(loss, bounds, status, text):
    found = judged(bounds, within=0.02 if "within" in bounds else None, h={"loss": loss}, f={"loss": 4.1315})
    assert (found.status, numbers_texts(found)) == (status, [text])


def test_objects_are_compared_key_by_key_and_must_have_the_same():
    found = judged({"below": [F]}, h={"loss": {"a": 1.0, "b": 3.0}}, f={"loss": {"b": 3.1, "a": 2.0}})
    assert found.status == "met" and numbers_texts(found) == ["b: 3 < 3.1 (the closest of 2)"]
    found = judged({"below": [F]}, h={"loss": {"a": 1.0, "b": 3.0}}, f={"loss": {"a": 2.0}})
    assert found.status == "unknown" and "only one of them has b" in found.reason


def test_what_is_not_there_is_unknown_and_says_what_is():
    found = judged({"below": [1]}, value={"step": "h", "path": "validation.los"}, h={"validation": {"loss": 1}})
    assert (found.status, found.reason) == ("unknown", "h returned no validation.los: validation has loss")
    found = judged({"below": [1]}, value={"step": "h", "path": "marks.2"}, h={"marks": [1, 2]})
    assert found.reason == "h returned no marks.2: marks has items 0 to 1"
    assert judged({"below": [1]}, value={"step": "h", "path": "marks.1"}, h={"marks": [1, 2]}).status == "not met"
    half = judged({"below": [F, 1.0]}, h={"loss": 2.0}, f={})
    assert half.status == "not met", "one comparison is enough to refute"
    assert judged({"below": [F, 3.0]}, h={"loss": 2.0}, f={}).status == "unknown", "and not enough to confirm"


@pytest.mark.parametrize(
    ("criteria", "status"),
    [(["met", "met"], "confirmed"), (["met", "not met", "judge"], "refuted"), (["met", "judge"], "open"), ([], "open")],
)
def test_the_verdict_is_confirmed_only_by_all(criteria, status):
    bounds = {"met": {"below": [2]}, "not met": {"below": [0]}}
    success = [c if c == "judge" else {"words": c, "value": H, "bounds": bounds[c]} for c in criteria]
    verdict = judge({"hypothesis": "h", "success": success}, {"h": Known(result={"loss": 1})})
    assert verdict is not None and verdict.status == status
    assert Verdict.from_json(json.loads(json.dumps(verdict.to_json()))) == verdict


def test_numbers_that_differ_look_different():
    assert number_texts([4.00000001, 4.0]) == ["4.00000001", "4"]


STEP = Step("s", print, None)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Criterion("c", value=3.0, below=1), "value is step.result"),  # pyright: ignore[reportArgumentType]
        (lambda: Criterion("c", value=STEP.result("a")), "give it something to compare with"),
        (lambda: Criterion("c", value=STEP.result("a"), within=0.02), "within and of go together"),
        (lambda: Criterion("c", value=STEP.result("a"), within=-1, of=1), "within is a share"),
        (lambda: Criterion("c", value=STEP.result("a"), below=["1"]), "below is a number"),  # pyright: ignore
        (lambda: Experiment(targets=(), issue="ftp://example.org/1"), "http or https URL"),
        (lambda: Experiment(targets=(), issue="issues/1"), "http or https URL"),
        (lambda: Experiment(targets=(), issue="https://"), "http or https URL"),
        (lambda: Experiment(targets=(), issue="https://me:token@example.org/1"), "leave the credentials out"),
        (lambda: Experiment(targets=(), success="a sentence"), "found one alone"),  # pyright: ignore
        (lambda: Experiment(targets=(), success=(3,)), "holds criteria and strings"),  # pyright: ignore
        (lambda: Experiment(targets=(), prediction=3.0), "prediction is step.result"),  # pyright: ignore
    ],
)
def test_a_wrong_declaration_is_an_error_that_says_what_to_write(build, words):
    with pytest.raises(UsageError) as error:
        build()
    assert words in str(error.value) and "token" not in str(error.value)


def test_a_criterion_reads_steps_of_the_graph_only(project):
    project.write(
        "toy_recipe.py",
        RECIPE.replace("value=hero.result", 'value=Step("other", number, NumberConfig(result={})).result'),
    )
    with pytest.raises(UsageError, match=r"'as forecast' reads other\.loss, but no target depends.*forecast, hero"):
        project.plan()
    project.write("toy_recipe.py", RECIPE.replace("value=hero.result", 'value=Step("hero", number, config).result'))
    with pytest.raises(UsageError, match="depend on another step of that name"):
        project.plan()
    assert not Path(project.prefix, ".runs").exists()


def test_criteria_change_no_key_and_make_no_step_wait(toy):
    before = toy.plan()
    after = toy.plan("hypothesis=other", "within=0.5")
    assert {n: s.key for n, s in before.items()} == {n: s.key for n, s in after.items()}
    bare = RECIPE[: RECIPE.index("hypothesis=settings")] + ")\n"
    toy.write("toy_recipe.py", bare)
    assert {n: s.inputs for n, s in toy.plan().items()} == {n: s.inputs for n, s in before.items()}


# A run


def test_declared_before_the_first_step_predicted_before_the_hero_and_judged_at_the_end(toy):
    outcome = toy.run(f"prefix={toy.prefix}")
    assert outcome.exit_code == 0 and outcome.verdict is not None and outcome.verdict.status == "confirmed"
    assert outcome.steps["hero"].result["seen"] == {"predictions": 1, "hypotheses": 1}
    hero = toy.store.record(outcome.steps["hero"].address)
    said = json.loads(toy.store.log(hero.address, hero.attempt).splitlines()[-1])
    assert said["declared"][0]["hypothesis"] == "the law holds" and said["declared"][0]["known"] == []
    (prediction,) = said["predictions"]
    forecast = toy.store.record(outcome.steps["forecast"].address)
    assert (prediction["value"], prediction["digest"]) == (4.1, forecast.digest)
    assert prediction["declaration"] == said["declared"][0]["hash"] and prediction["at"] <= hero.ended

    run = toy.store.run(outcome.run_id)
    assert (run.status, run.verdict["status"]) == ("succeeded", "confirmed")
    assert run.experiment["issue"] == "https://example.org/issues/7"
    assert run.verdict["criteria"][0]["comparisons"][0]["value"] == 4.0


def test_a_refuted_hypothesis_is_no_failure(toy):
    outcome = toy.run("loss=5")
    assert outcome.exit_code == 0 and outcome.verdict is not None and outcome.verdict.status == "refuted"
    assert toy.store.run(outcome.run_id).verdict["status"] == "refuted"


@pytest.mark.parametrize(
    ("how", "status", "reason"),
    [("fails", "failed", "hero failed"), ("halts", "stopped", "hero was halted")],
)
def test_failed_and_stopped_runs_are_judged_and_stay_listed(toy, how, status, reason):
    outcome = toy.run(f"how={how}")
    assert outcome.exit_code == 1 and statuses(outcome.verdict) == ["unknown"]
    assert outcome.verdict.criteria[0].reason == reason and outcome.verdict.status == "open"
    assert toy.run("loss=3.9").verdict.status == "confirmed"
    newest, oldest = listed(toy).entries
    assert (newest.status, oldest.status) == ("succeeded", status)
    assert oldest.cost.attempts == 2 and newest.cost.attempts == 2, "the forecast ran in the first only"
    assert {entry.prediction.value for entry in (newest, oldest)} == {4.1}


def test_a_step_left_out_is_unknown_unless_its_result_is_there(toy):
    assert toy.run(until=("forecast",)).verdict.criteria[0].reason == "hero was left out of this run"
    assert toy.run().verdict.status == "confirmed"
    assert toy.run(until=("forecast",)).verdict.status == "confirmed"
    assert (len(listed(toy).entries), listed(toy).idle) == (2, 1), "what was left out is not this run's"
    assert toy.run(until=("forecast",), force=("forecast",)).verdict.status == "confirmed", "hero does not hang on it"


def test_a_run_with_nothing_to_do_judges_from_records_in_few_calls(toy, monkeypatch, capsys):
    toy.run()
    monkeypatch.setenv("MARINADE_PREFIX", toy.prefix)
    files = set(Path(toy.prefix).rglob("*"))
    capsys.readouterr()
    assert main(["run", "toy_recipe.py"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "hypothesis confirmed: 1 criterion met"
    new = {path.relative_to(toy.prefix).parts[0] for path in set(Path(toy.prefix).rglob("*")) - files}
    assert new == {".runs"}, "the run's own record and nothing else"


def test_no_more_rounds_to_the_store_than_without_criteria(toy, faults):
    toy.prefix = faults.url
    toy.run()

    def calls() -> int:
        faults.filesystem.calls.clear()
        assert {step.status for step in toy.run().steps.values()} == {"reused"}
        return len(faults.filesystem.calls)

    with_criteria = calls()
    toy.write("toy_recipe.py", RECIPE[: RECIPE.index("hypothesis=settings")] + ")\n")
    # Without criteria nobody asks for the forecast, which an execution-only field holds; its record is read anyway.
    assert with_criteria <= calls() + 2


def test_the_engine_stays_light(toy):
    toy.run()
    code = """
        import sys
        from executor.cli import main
        assert main(["run", "toy_recipe.py", "--prefix", sys.argv[1]]) == 0
        assert main(["experiments", "--prefix", sys.argv[1]]) == 0
        print(sorted({"ray", "jax", "numpy", "fsspec"} & set(sys.modules)))
    """
    out, _ = toy.python(code, toy.prefix).communicate(timeout=60)
    assert out.splitlines()[-1] == "[]"


# What changes shows


def test_a_declaration_changed_after_results_shows(toy):
    toy.run("loss=5")
    assert toy.run("loss=5").verdict.status == "refuted"
    toy.run("loss=5", "within=0.3")
    newest, oldest = listed(toy).entries
    assert oldest.verdict.status == "refuted" and not oldest.notes and newest.verdict.status == "confirmed"
    assert newest.notes == (f"criteria changed since the run of {_last(toy, 2)}; results were known by then",)
    assert listed(toy).idle == 1
    toy.run("loss=5", "within=0.3", "hypothesis=it was so all along")
    assert listed(toy).entries[0].notes[0].startswith("hypothesis changed since the run of ")
    assert toy.store.run(toy.store.run_ids()[0]).experiment["hypothesis"] == "the law holds"


def _last(project, back: int) -> str:
    return project.store.run(project.store.run_ids()[-back]).started[:19].replace("T", " ")


def test_a_declaration_changed_before_results_says_so(toy):
    toy.run("how=fails")
    toy.run("within=0.3")
    assert listed(toy).entries[0].notes[0].endswith("; no results were known yet")


def test_results_of_other_settings_count_as_known(toy):
    toy.run("loss=5")
    toy.run("loss=4.9", "within=0.3")
    assert listed(toy).entries[0].notes[0].endswith("; results were known by then")
    assert listed(toy).entries[0].declared["known"] == []


def test_a_declaration_made_after_the_fact_says_so(toy):
    toy.write("toy_recipe.py", RECIPE[: RECIPE.index("hypothesis=settings")] + ")\n")
    toy.run()
    toy.write("toy_recipe.py", RECIPE)
    toy.run()
    entry = listed(toy).entries[0]
    assert entry.notes == ("declared when results of hero were there already",)


def test_making_the_results_anew_does_not_make_a_declaration_an_earlier_one(toy):
    toy.write("toy_recipe.py", RECIPE[: RECIPE.index("hypothesis=settings")] + ")\n")
    toy.run()
    toy.write("toy_recipe.py", RECIPE)
    toy.run(force=("hero",))
    assert listed(toy).entries[0].notes == ("declared when results of hero were there already",)


def test_a_changed_prediction_shows(toy):
    toy.run()
    toy.run("predicted=3.9", force=("hero",))
    assert listed(toy).entries[0].notes[0].startswith("the prediction was 4.1 before, on record ")


def test_an_issue_added_later_is_no_other_declaration(toy):
    toy.run()
    toy.write("toy_recipe.py", RECIPE.replace("issues/7", "issues/8"))
    toy.run()
    assert listed(toy).idle == 1


# How runs end


def test_a_run_that_was_killed_is_abandoned_and_one_that_goes_on_is_running(toy):
    driver = toy.python(
        """
        import sys
        from executor.cli import main
        main(["run", "toy_recipe.py", "--prefix", sys.argv[1], "--inline", "--set", "how=sleeps"])
        """,
        toy.prefix,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 30
        while not (found := list(Path(toy.prefix).glob("hero-*/.step/attempts/*/log.txt"))):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        toy.run("extra=reads well")  # two at once
        other, going = listed(toy).entries
        assert (going.status, going.pid, going.verdict) == ("running", driver.pid, None)
        assert going.cost.attempts == 2 and going.cost.step_seconds > 0 and other.status == "succeeded"
        assert "no verdict yet" in experiments_text(experiments(toy.store), Terminal())
    finally:
        driver.kill()
        driver.communicate()
    killed = listed(toy).entries[1]
    assert (killed.status, killed.verdict, killed.cost.cut_off) == ("abandoned", None, 1) and found
    assert killed.declared["hypothesis"] == "the law holds" and killed.prediction.value == 4.1
    text = " ".join(experiments_text(experiments(toy.store), Terminal()).split())
    assert "1 cut off, its time not known" in text


def test_an_interrupted_run_is_judged_and_says_so(toy):
    driver = toy.python(
        """
        import sys
        from executor.cli import main
        sys.exit(main(["run", "toy_recipe.py", "--prefix", sys.argv[1], "--inline", "--set", "how=sleeps"]))
        """,
        toy.prefix,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 30
    while not list(Path(toy.prefix).glob("hero-*/.step/attempts/*/log.txt")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    driver.send_signal(signal.SIGINT)
    driver.communicate(timeout=30)
    assert driver.returncode == 130
    (entry,) = listed(toy).entries
    assert entry.status == "interrupted" and entry.verdict.criteria[0].reason == "hero was interrupted"


def test_attempts_of_a_run_without_an_end_are_found_by_the_names_of_its_steps(toy):
    run = toy.store.run(toy.run().run_id)
    assert run.steps["report"]["address"] == "", "not known before its input is there"
    toy.store.write_run(dataclasses.replace(run, ended="", status="", outcome={}, verdict={}))
    (entry,) = listed(toy).entries
    assert (entry.status, entry.cost.steps) == ("running", 3)


def test_a_run_of_elsewhere_that_never_ended_is_unknown_here(toy):
    run = toy.store.run(toy.run().run_id)
    elsewhere = dataclasses.replace(run, id=f"{new_id()}-x", ended="", status="", machine="elsewhere/1", host="far")
    toy.store.write_run(elsewhere)
    entry = listed(toy).entries[0]
    assert entry.status == "unknown" and "far cannot be asked" in entry.notes[-1]


def test_records_of_before_stay_readable(toy):
    """Hypothesis and sentences, and nothing of verdicts."""
    run = toy.store.run(toy.run().run_id)
    old = {name: value for name, value in json.loads(run.to_json()).items()
           if name not in ("status", "verdict", "machine", "process_started")}  # fmt: skip
    old |= {"experiment": {"hypothesis": "old", "success": ["a sentence"]}, "id": f"{new_id()}-x"}
    old["outcome"] = {
        name: {field: item[field] for field in ("status", "address", "attempt", "content_key")}
        for name, item in old["outcome"].items()
    }
    old["outcome"]["hero"]["status"] = "failed"
    toy.store.files.write(f".runs/{old['id']}.json", json.dumps(old).encode())
    toy.store.files.write(".runs/broken.json", b"{")
    toy.store.files.write(f".runs/{run.id}/prediction.json", b"{}")
    found = experiments(toy.store)
    assert found.groups[0].entries[0].status == "failed" and found.groups[0].entries[0].verdict is None
    assert RunRecord.from_json(json.dumps(old)).verdict == {}
    text = experiments_text(found, Terminal())
    assert "old" in text and "cannot be read: .runs/broken.json" in text and len(found.unreadable) == 2


# The command


def test_costs_are_of_what_the_run_itself_ran(toy):
    first = toy.run("how=fails").run_id
    run = toy.store.run(first)
    steps = {name: {**step, "numbers": {"tokens": 5, "flops_total": 7e9}} for name, step in run.steps.items()}
    toy.store.write_run(dataclasses.replace(run, steps=steps))
    records = [record for name in ("forecast", "hero") for record in toy.store.attempts(run.outcome[name]["address"])]
    for record in records:
        given = {"gpus": 4, "hosts": 2, "groups": 3, "cpus": 9} if record.name == "hero" else {"cpus": 2}
        toy.store.write_attempt(dataclasses.replace(record, wall_seconds=1800.0, resources=given))
    cost = listed(toy).entries[0].cost
    assert (cost.steps, cost.attempts, cost.step_seconds) == (2, 2, 3600.0)
    assert (cost.gpu_hours, cost.cpu_hours) == (12.0, 1.0)
    assert (cost.tokens, cost.flops) == (5, 7e9), "of the forecast; the hero failed"
    text = experiments_text(experiments(toy.store), Terminal())
    assert "1:00:00 in 2 steps, 12 GPU hours, 1 CPU hours, 5 tokens, 7e+09" in " ".join(text.split())


def test_the_command_filters_and_keeps_to_80_columns(toy, monkeypatch, capsys):
    monkeypatch.setenv("MARINADE_PREFIX", toy.prefix)
    (Path(toy.root) / "recipes").mkdir()
    toy.write("recipes/other.py", RECIPE)
    toy.run(f"hypothesis={'what is expected is said at length, ' * 6}", f"extra={'it reads well, ' * 9}")
    toy.run(name="recipes/other.py")

    def typed(*words: str) -> str:
        assert main(["experiments", *words]) == 0
        return capsys.readouterr().out

    everything = typed()
    assert everything.index("recipes/other.py, scale") < everything.index("toy_recipe.py, scale")
    assert max(map(len, everything.splitlines())) <= 80
    os.unlink(toy.root / "recipes/other.py")
    for name in ("recipes/other.py", "recipes.other", str(toy.root / "recipes/other.py")):
        assert "toy_recipe" not in typed(name) and "other.py" in typed(name)
    data = json.loads(typed("toy_recipe.py", "--json"))["experiments"]
    assert [group["recipe"] for group in data] == ["toy_recipe.py"]
    assert data[0]["runs"][0]["verdict"]["status"] == "open" and data[0]["runs"][0]["prediction"]["value"] == 4.1
    assert typed("--scale", "full").startswith("no runs")
    assert "**succeeded, confirmed**" in typed("--markdown", "recipes/other.py")
    assert main(["experiments", "recipes/none.py"]) == 2
    assert "there are runs of recipes/other.py, toy_recipe.py" in capsys.readouterr().err


def test_the_end_of_a_run_shows_the_verdict_and_json_has_it(toy, monkeypatch, capsys):
    monkeypatch.setenv("MARINADE_PREFIX", toy.prefix)
    assert main(["run", "toy_recipe.py", "--inline", "--set", "loss=5"]) == 0
    out = capsys.readouterr().out
    assert out.endswith(
        "hypothesis refuted: the law holds\n  https://example.org/issues/7\n"
        "  not met   as forecast\n            5 against 4.1: 22.0%, allowed 5%\n"
    )
    for command in ("plan", "status"):
        assert main([command, "toy_recipe.py"]) == 0
        assert "issue https://example.org/issues/7" in capsys.readouterr().out
    assert main(["run", "toy_recipe.py", "--inline", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["verdict"]["status"] == "confirmed" and data["experiment"]["issue"].endswith("/7")


def test_secrets_do_not_reach_the_declaration(toy, monkeypatch, capsys):
    monkeypatch.setenv("MARINADE_PREFIX", toy.prefix)
    monkeypatch.setattr(secrets, "_revealed", {"hf_planted"})
    words = ["--set", "hypothesis=read with hf_planted", "--set", "extra=see https://me:pw@example.org/"]
    assert main(["run", "toy_recipe.py", "--inline", "--json", *words]) == 0
    assert main(["experiments"]) == 0
    out = capsys.readouterr().out
    stored = "".join(path.read_text() for path in Path(toy.prefix, ".runs").rglob("*.json"))
    assert "***" in out and "read with ***" in stored
    assert not any(secret in text for secret in ("hf_planted", "me:pw") for text in (out, stored))


def test_gc_deletes_no_record_of_a_run(toy, monkeypatch, capsys):
    monkeypatch.setenv("MARINADE_PREFIX", toy.prefix)
    toy.run("how=fails")
    toy.run("loss=3.95")
    toy.run()
    toy.forget()
    before = listed(toy)
    assert main(["gc", "toy_recipe.py", "--keep", "0", "--delete"]) == 0
    assert "deleted" in capsys.readouterr().out
    after = listed(toy)
    assert len(after.entries) == 3 and {entry.prediction.value for entry in after.entries} == {4.1}
    for old, new in zip(before.entries, after.entries, strict=True):
        assert (new.status, new.verdict, new.cost.steps) == (old.status, old.verdict, old.cost.steps)
        assert new.cost.cpu_hours == pytest.approx(old.cost.cpu_hours)
