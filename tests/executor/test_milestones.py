"""A training step in miniature: milestones, resuming up to what is owed, forcing, files that vanish, cut commits."""

import os
import shutil
from pathlib import Path

import pytest

TRAINING = """
    @dataclasses.dataclass(frozen=True)
    class Config:
        data: Input = ""

    @dataclasses.dataclass(frozen=True)
    class Seed:
        pass

    def seed(config, output):
        put(f"{output}/seed", os.environ.get("SEED", "one"))

    def note(line):
        with open("calls", "a") as file:
            file.write(line + "\\n")

    def train(config, output):
        context = current()
        owed = min(context.unpublished, default=99)
        found = [int(name[3:]) for one in context.earlier_attempts for name in os.listdir(one) if name[:3] == "at-"]
        first = max((step for step in found if step <= owed), default=0)
        goal = context.stop_at or 5
        note(f"train {first} {goal}")
        def save(step):
            put(f"{output}/at-{step}/weights", get(config.data + "/seed"))
            if os.environ.get("DIE") == str(step):
                raise RuntimeError("cut off between checkpoint and publishing")
            context.publish(step, f"at-{step}")
        if first in context.unpublished:
            save(first)
        for step in range(first + 1, goal + 1):
            save(step)
        put(f"{output}/final", get(config.data + "/seed"))

    def use(config, output):
        names = sorted(os.listdir(config.data))
        put(f"{output}/seen", " ".join(names) + get(config.data + ("/final" if "final" in names else "/weights")))

    @dataclasses.dataclass(frozen=True)
    class Settings(Scales):
        at: int = 3
        wants: str = "fork"
        tag: str = ""

    @dataclasses.dataclass(frozen=True)
    class Reader:
        data: Input
        tag: str = ""

    def build(settings: Settings):
        source = Step("seed", seed, Seed())
        base = Step("base", train, Config(data=source), digest="opaque", code="pin")
        fork = Step("fork", use, Reader(data=base.at_step(settings.at), tag=settings.tag))
        whole = Step("whole", use, Reader(data=base))
        return Experiment(targets={"fork": (fork,), "whole": (whole,), "both": (source, fork, whole)}[settings.wants])
    """


@pytest.fixture
def toy(project, monkeypatch):
    project.write("toy_recipe.py", TRAINING)
    monkeypatch.delenv("SEED", raising=False)
    monkeypatch.delenv("DIE", raising=False)
    return project


def calls(project) -> list[str]:
    """What the training function was called for since the last look."""
    path = project.root / "calls"
    found = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return found


def artifact(project, name: str) -> Path:
    record = next(
        record for folder in Path(project.prefix).glob(f"{name}-*") if (record := project.store.record(folder.name))
    )
    return Path(project.store.location(record.address, record.attempt))


def test_a_step_wanted_for_a_milestone_is_run_to_it_and_later_to_its_end(toy):
    assert toy.run().exit_code == 0
    assert calls(toy) == ["train 0 3"]
    assert toy.run("wants=whole").exit_code == 0
    assert calls(toy) == ["train 3 5"]


def test_a_selection_does_not_widen_what_is_wanted(toy):
    assert toy.run(until=("base",)).exit_code == 0
    assert calls(toy) == ["train 0 3"]
    assert toy.run().exit_code == 0
    assert calls(toy) == []


def test_cut_off_before_publishing_it_publishes_on_the_next_run(toy, monkeypatch):
    monkeypatch.setenv("DIE", "3")
    assert toy.run().exit_code == 1
    monkeypatch.delenv("DIE")
    assert toy.run().exit_code == 0
    assert calls(toy) == ["train 0 3", "train 3 3"]


@pytest.mark.parametrize("before", [["wants=whole"], ["at=4"]])
def test_an_earlier_milestone_is_not_overrun(toy, before):
    """After the whole step, or a later milestone: resume from below what is owed."""
    assert toy.run(*before).exit_code == 0
    calls(toy)
    for folder in Path(toy.prefix).glob("base-*/.step/milestones/2.json"):
        folder.unlink()
    assert toy.run("at=2").exit_code == 0
    assert calls(toy) == ["train 2 2"]


def test_a_new_input_reaches_a_step_that_was_wanted_whole_and_in_part(toy, monkeypatch):
    """The seed's files vanish and it writes something new: nothing of the old training may be served."""
    assert toy.run("wants=both").exit_code == 0
    (artifact(toy, "seed") / "seed").unlink()
    calls(toy)
    monkeypatch.setenv("SEED", "two")
    outcome = toy.run("wants=both")
    assert outcome.exit_code == 0
    assert calls(toy) == ["train 0 5"]
    seen = Path(outcome.steps["whole"].location) / "seen"
    assert seen.read_text().endswith("two")
    assert toy.run("wants=both").exit_code == 0
    assert calls(toy) == []


def test_a_forced_step_publishes_anew_and_its_dependents_see_it(toy):
    first = toy.run("wants=both")
    calls(toy)
    second = toy.run("wants=both", force=("base",))
    assert calls(toy) == ["train 0 5"]
    assert second.steps["fork"].status == "succeeded"
    assert second.steps["fork"].location != first.steps["fork"].location
    assert toy.run(force=("base",)).steps["base"].status == "stopped_at_milestone"
    assert calls(toy) == ["train 0 3"]


def test_a_milestone_whose_files_are_gone_is_made_again(toy):
    toy.run()
    calls(toy)
    for folder in Path(toy.prefix).glob("base-*/*/at-3"):
        shutil.rmtree(folder)
    plan = toy.plan("tag=again")
    assert plan["base"].action == "resume" and plan["base"].reasons[0].kind == "missing"
    assert toy.run("tag=again").exit_code == 0
    assert calls(toy) == ["train 2 3"]


def test_a_commit_cut_between_its_two_records_is_finished_not_repeated(toy):
    outcome = toy.run("wants=whole")
    calls(toy)
    address = Path(toy.prefix) / outcome.steps["base"].address
    os.unlink(address / ".step" / "record.json")
    shutil.rmtree(Path(toy.prefix) / ".index")
    assert toy.run("wants=whole").exit_code == 0
    assert calls(toy) == []
    assert (address / ".step" / "record.json").exists()
