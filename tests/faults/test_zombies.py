"""A process suspended at a failpoint, for so long that another takes over; and then continued.

Its process exists all the time: only the beat of its lease stands still. Up to the seal on its commit the other does
the work and what the zombie does afterwards changes nothing; from the seal on the work is the zombie's, and the other
finishes the bookkeeping and reuses it.
"""

import signal
from pathlib import Path

import pytest

import executor.storage.lease
from executor import failpoints

NAMES = failpoints.NAMES
SEALED = "commit-sealed"
BY_DEFAULT = {"attempt-finished", SEALED}
PERIOD_SECONDS = 0.3


def place(name: str) -> int:
    return NAMES.index(name)


@pytest.fixture
def impatient(monkeypatch):
    """Leases of this process: whoever does not beat for a moment is taken over."""
    monkeypatch.setattr(executor.storage.lease, "PERIOD_SECONDS", PERIOD_SECONDS)


def published(toy) -> dict[str, bytes]:
    """All that others can read: data of artifacts, records that count, milestones; not a zombie's own attempt."""
    counting = {}
    for path in sorted(Path(toy.store.prefix).glob("*/.step/record.json")):
        record = toy.store.record(path.parent.parent.name)
        folder = path.parent.parent / record.attempt
        for file in (path, *path.parent.glob("milestones/*"), *folder.rglob("*")):
            if file.is_file() and not file.name.startswith(".writing-"):  # not under its name yet
                counting[str(file.relative_to(toy.store.prefix))] = file.read_bytes()
    return counting


@pytest.mark.fault("SIGSTOP at a failpoint, takeover by another, SIGCONT")
@pytest.mark.parametrize(
    "name",
    [name if name in BY_DEFAULT else pytest.param(name, marks=pytest.mark.slow) for name in NAMES],
)
def test_a_zombie_publishes_nothing(toy, impatient, name):
    assert toy.run(until=("source",)).exit_code == 0
    zombie = toy.suspended(name)
    try:
        outcome = toy.run()
        assert outcome.exit_code == 0, outcome.steps
        attempt = toy.record("train").attempt
        toy.check_finished()
        before, calls = published(toy), toy.calls()
        zombie.send_signal(signal.SIGCONT)
        assert zombie.wait(timeout=60) == 0, "it finds the other's work and ends well"
    finally:
        zombie.kill()
        zombie.wait()
    assert published(toy) == before
    assert toy.record("train").attempt == attempt
    statuses = [status for _, status in toy.attempts("train")]
    assert statuses.count("succeeded") == 1, "one attempt is the artifact"
    assert "running" not in statuses
    trained = [line for line in calls if line.startswith("train")]
    repeats = place("function-entered") < place(name) < place("attempt-finished")
    assert len(trained) == (2 if repeats else 1), "what was finished but for its commit is taken as it is"
    own = len([line for line in toy.calls() if line.startswith("train")]) - len(trained)
    assert own <= (1 if place("lease-taken") < place(name) <= place("function-entered") else 0), (
        "the zombie goes on with the call it was about to make, at most"
    )
    assert [line for line in toy.calls() if not line.startswith("train")] == ["source", "early", "late"]
    toy.check_finished()
