"""What users of other tools reported about outputs, and what a user is owed; each test names its source."""

import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from executor.cli import main

RECIPE = """
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class WriteConfig:
        parts: int = 3
        skip: str = ""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class ReadConfig:
        source: Input

    def write(config, output):
        for part in range(config.parts):
            put(f"{output}/train/{part}", f"part {part}")
            wait_at(part)
        if config.skip != "valid":
            put(f"{output}/valid", "v")

    def wait_at(part):
        if part == 1 and os.path.exists("wait"):
            open("waiting", "w").close()
            while os.path.exists("wait"):
                time.sleep(0.02)

    def read(config, output):
        folder = resolved(config.source)
        put(f"{output}/seen", " ".join(sorted(os.listdir(folder))))

    def check(config, output):
        put(f"{output}/valid", get(resolved(config.source)))

    @dataclasses.dataclass(frozen=True)
    class Settings(Scales):
        skip: str = ""

    def build(settings: Settings):
        write_it = Step("write", write, WriteConfig(skip=settings.skip))
        return Experiment(targets=(
            Step("read", read, ReadConfig(source=write_it / "train")),
            Step("check", check, ReadConfig(source=write_it / "valid")),
        ))

    if __name__ == "__main__":
        main(build)
    """
STEPS = ("write", "read", "check")


@pytest.fixture
def toy(project, monkeypatch):
    monkeypatch.setenv("MARINADE_PREFIX", project.prefix)
    project.write("toy_recipe.py", RECIPE)
    return project


def statuses(outcome):
    return {name: step.status for name, step in outcome.steps.items()}


def until(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def run_script(project, *arguments, cwd=None):
    """The recipe as a script in a process of its own, in another folder if need be."""
    code = "import os, runpy, sys; os.chdir(sys.argv[1]); sys.argv = sys.argv[2:]; "
    code += "runpy.run_path(sys.argv[0], run_name='__main__')"
    script = str(project.root / "toy_recipe.py")
    return project.python(code, str(cwd or project.root), script, "--inline", *arguments)


def test_luigi_2112_a_step_that_does_not_write_what_is_read_of_it_fails_and_names_it(toy):
    outcome = toy.run("skip=valid")
    assert statuses(outcome) == {"write": "failed", "read": "not_run", "check": "not_run"}
    assert "returned without writing 'valid', which step check reads" in outcome.steps["write"].error
    assert "train/0" in outcome.steps["write"].error, "what it wrote instead"
    assert toy.plan("skip=valid")["write"].action != "reuse"


def test_seqr_163_killed_half_way_through_a_folder_is_not_complete(toy):
    """seqr PR#163, measured with Luigi: the folder is there, so the next run takes it for finished."""
    (toy.root / "wait").touch()
    driver = run_script(toy)
    try:
        until((toy.root / "waiting").exists)
    finally:
        os.kill(driver.pid, signal.SIGKILL)
        driver.communicate()
    (half,) = Path(toy.prefix).glob("write-*/2*")
    assert sorted(path.name for path in (half / "train").iterdir()) == ["0", "1"]
    plan = toy.plan()
    assert plan["write"].action == "resume" and plan["read"].action == "run" and plan["check"].action == "run"
    (toy.root / "wait").unlink()
    outcome = toy.run()
    assert statuses(outcome) == dict.fromkeys(STEPS, "succeeded")
    assert Path(outcome.steps["read"].location, "seen").read_text() == "0 1 2"
    assert Path(outcome.steps["write"].location) != half


def test_zenml_3975_flyte_4672_prefect_8892_an_artifact_that_was_deleted_is_made_again(toy):
    outcome = toy.run()
    shutil.rmtree(outcome.steps["read"].location)
    plan = toy.plan()
    assert {name: step.action for name, step in plan.items()} == {"write": "reuse", "read": "run", "check": "reuse"}
    assert [(reason.kind, reason.new) for reason in plan["read"].reasons] == [("missing", "seen is missing")]
    assert statuses(toy.run()) == {"write": "reused", "read": "succeeded", "check": "reused"}
    assert {step.action for step in toy.plan().values()} == {"reuse"}


@pytest.mark.parametrize(
    ("damage", "is_seen_by_a_plan"),
    [
        (lambda path: path.write_text("0 1 3"), False),
        (lambda path: path.write_text(""), True),
        (lambda path: path.unlink(), True),
    ],
    ids=["corrupted", "emptied", "missing"],
)
def test_dvc_5978_dvc_1969_one_damaged_file_is_found(toy, capsys, damage, is_seen_by_a_plan):
    seen = Path(toy.run().steps["read"].location, "seen")
    damage(seen)
    assert (toy.plan()["read"].action == "run") == is_seen_by_a_plan
    toy.forget()
    capsys.readouterr()
    assert main(["verify", "toy_recipe.py", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [artifact["name"] for artifact in found["artifacts"] if not artifact["ok"]] == ["read"]
    assert any(problem.startswith("seen ") for problem in found["artifacts"][1]["problems"])
    assert found["next"].endswith("--force read")
    assert statuses(toy.run(force=("read",)))["read"] == "succeeded"
    assert main(["verify", "toy_recipe.py"]) == 0


def test_dvc_4634_dvc_9420_a_rerun_after_gc_works_and_nothing_is_left_of_what_went(toy):
    outcome = toy.run()
    shutil.rmtree(Path(toy.prefix, ".runs"))
    source = (toy.root / "toy_recipe.py").read_text()
    toy.write("toy_recipe.py", source.replace('f"part {part}"', 'f"PART {part}"'), header=False)
    toy.forget()
    assert main(["gc", "toy_recipe.py", "--keep", "0", "--delete"]) == 0
    for name in STEPS:
        assert not Path(toy.prefix, outcome.steps[name].address).exists()
    assert statuses(toy.run()) == dict.fromkeys(STEPS, "succeeded")
    toy.write("toy_recipe.py", source, header=False)
    # What check reads is the same text in both, so the artifact of the run in between serves.
    assert statuses(toy.run()) == {"write": "succeeded", "read": "succeeded", "check": "reused"}
    assert {step.action for step in toy.plan().values()} == {"reuse"}


def test_marin_6334_a_relative_prefix_is_one_place_from_wherever_it_is_named(toy, monkeypatch):
    monkeypatch.delenv("MARINADE_PREFIX")
    below = toy.root / "below"
    below.mkdir()
    for prefix, cwd, ran in (("store", toy.root, 3), ("../store", below, 0), ("./below/../store/", toy.root, 0)):
        driver = run_script(toy, "--prefix", prefix, "--json", cwd=cwd)
        found = json.loads(driver.communicate()[0])
        assert found["prefix"] == toy.prefix and found["counts"] == ({"succeeded": 3} if ran else {"reused": 3})
        assert all(step["location"].startswith(toy.prefix + "/") for step in found["steps"].values())
    places = []
    for cwd in (toy.root, below):
        found = json.loads(run_script(toy, "--json", cwd=cwd).communicate()[0])
        places.append((found["prefix"], set(found["counts"])))
    assert places == [(str(toy.root / "artifacts"), {"succeeded"}), (str(toy.root / "artifacts"), {"reused"})]
