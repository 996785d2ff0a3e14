"""A process killed at every named place between taking a lease and committing the record, and after.

Wherever it dies: nothing unfinished is served, nothing finished is done again, and the next plain run completes.
"""

import ast
from pathlib import Path

import pytest

from executor import failpoints

NAMES = failpoints.NAMES
IN_TRAINING_ONLY = {name for name in NAMES if name.startswith("milestone-")}
STEPS = ("source", "early", "late")
BY_DEFAULT = (
    "lease-taken", "function-entered", "milestone-published", "function-returned", "attempt-finished", "commit-sealed",
    "record-written",
)  # fmt: skip


def place(name: str) -> int:
    return NAMES.index(name)


def cases() -> list:
    """The turning points of the training step; all others, and the other steps, are part of the full matrix."""
    found = [
        pytest.param("train", name, id=f"train-{name}", marks=() if name in BY_DEFAULT else pytest.mark.slow)
        for name in NAMES
    ]
    for step in STEPS:
        found += [
            pytest.param(step, name, id=f"{step}-{name}", marks=pytest.mark.slow)
            for name in NAMES
            if name not in IN_TRAINING_ONLY
        ]
    return found


def test_the_list_of_failpoints_is_what_the_sources_reach():
    root = Path(failpoints.__file__).parent
    reached = set()
    for file in root.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            function = node.func if isinstance(node, ast.Call) else None
            name = getattr(function, "id", None) or getattr(function, "attr", None)
            if isinstance(node, ast.Call) and name == "reached":
                assert isinstance(node.args[0], ast.Constant), f"{file}:{node.lineno}: not a plain name"
                reached.add(node.args[0].value)
    assert reached == set(NAMES) and len(NAMES) == len(set(NAMES)) >= 12


def expected_calls(name: str) -> int:
    """How often the function of the step that was killed is called in all."""
    ran = place("function-entered") < place(name) < place("attempt-finished")
    return 2 if ran else 1


def expected_attempts(name: str) -> list[list[tuple[int, str]]]:
    """What may be on record in the end; index, record and source are written at once, so that each may be first."""
    once, twice = [(1, "succeeded")], [(1, "interrupted"), (2, "succeeded")]
    if name in ("content-indexed", "source-written"):
        return [once, twice]
    if place(name) < place("attempt-recorded") or place(name) >= place("attempt-finished"):
        return [once]
    return [twice]


@pytest.mark.fault("kill -9 of the process that runs a step, at a failpoint")
@pytest.mark.parametrize(("step", "name"), cases())
def test_killed_there_the_next_run_completes(toy, step, name):
    if step != "source":
        assert toy.run(until=(BEFORE[step],)).exit_code == 0
    finished = toy.calls()
    toy.killed(name)
    toy.check_nothing_unfinished_is_served()
    if place(name) < place("record-written"):
        assert toy.plan()[step].action in ("run", "resume")
    assert toy.run().exit_code == 0
    calls = toy.calls()
    assert calls[: len(finished)] == finished
    ran = [line.split()[0] for line in calls]
    assert {one: ran.count(one) for one in ran} == {
        one: expected_calls(name) if one == step else 1 for one in ("source", "train", "early", "late")
    }
    assert toy.attempts(step) in expected_attempts(name)
    toy.check_finished()


BEFORE = {"train": "source", "early": "train", "late": "early"}
"""Step -> what to finish first, so that it is the next to run."""


FORCED = [name for name in NAMES if name != "content-indexed"]  # that is reached once for all attempts at a content


@pytest.mark.fault("kill -9 in a forced rerun, at a failpoint")
@pytest.mark.parametrize(
    "name",
    [name if name in ("milestone-published", "record-written") else pytest.param(name, marks=pytest.mark.slow)
     for name in FORCED],
)  # fmt: skip
def test_killed_in_a_forced_rerun_the_artifact_is_the_old_or_the_new_one(toy, name):
    """What is served is whole, and of one attempt; forcing again works."""
    assert toy.run().exit_code == 0
    old = toy.record("train").attempt
    toy.killed(name, "--inline", "--force", "train")
    toy.check_nothing_unfinished_is_served()
    assert toy.run().exit_code == 0
    assert (toy.record("train").attempt == old) == (place(name) < place("record-written"))
    toy.check_finished()
    assert toy.run(force=("train",)).exit_code == 0
    assert toy.record("train").attempt != old
    toy.check_finished()


@pytest.mark.fault("kill -9 twice in a row, at two failpoints")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(first, second, id=f"{first}-{second}")
        if (first, second) == ("milestone-published", "function-returned")
        else pytest.param(first, second, id=f"{first}-{second}", marks=pytest.mark.slow)
        for first in NAMES
        for second in NAMES
        if place(first) < place("attempt-finished") or place(second) > place(first)
    ],
)
def test_killed_again_while_it_makes_up_for_the_first_kill(toy, first, second):
    """The second process may find the work done but for its records: then it ends before, or well."""
    assert toy.run(until=("source",)).exit_code == 0
    toy.killed(first)
    toy.start(failpoint=second).wait(timeout=60)
    toy.check_nothing_unfinished_is_served()
    assert toy.run().exit_code == 0
    ran = [line.split()[0] for line in toy.calls()]
    assert ran.count("source") == 1 and ran.count("train") <= 3
    toy.check_finished()
