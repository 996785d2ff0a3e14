# ruff: noqa: E501 - a recipe as text
"""Two at once, and dying: what users of other tools reported, and what they are owed here."""

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import executor.storage.lease
from executor.errors import LeaseLost
from executor.storage.lease import Lease, holder
from executor.storage.store import Store

RECIPE = """
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config:
        seconds: float = execution(0.0)
        source: Input | None = None

    def note(line):
        with open("calls", "a") as file:
            file.write(line + "\\n")

    def work(config, output):
        name = current().name
        note(f"{name} begins")
        for part in range(20):
            put(f"{output}/{part:02}", f"{name} {part}")
            time.sleep(config.seconds / 20)
            if os.path.exists("hurry"):
                break
        note(f"{name} ends")
        put(f"{output}/end", name)

    @dataclasses.dataclass(frozen=True)
    class Settings(Scales):
        seconds: float = 0.0

    def build(settings: Settings):
        one = Step("one", work, Config())
        two = Step("two", work, Config(seconds=settings.seconds, source=one))
        return Experiment(targets=(Step("three", work, Config(source=two)),))

    if __name__ == "__main__":
        main(build)
    """


@pytest.fixture
def toy(project):
    project.write("toy_recipe.py", RECIPE)
    return project


def start(project, *arguments: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "toy_recipe.py", "--inline", "--prefix", project.prefix, *arguments],
        cwd=project.root,
        env={"PYTHONPATH": str(Path(executor.__file__).parents[1]), "PATH": "/usr/bin:/bin", "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def calls(project) -> list[str]:
    path = project.root / "calls"
    return path.read_text().splitlines() if path.exists() else []


def wait_for(project, line: str) -> None:
    until = time.monotonic() + 60
    while line not in calls(project):
        assert time.monotonic() < until, line
        time.sleep(0.02)


def test_killed_in_a_step_the_next_run_takes_over_without_an_unlock_command(toy):
    """dvc#2797, snakemake#2919: a lock left by a killed process kept every later run out until it was removed by hand."""
    killed = start(toy, "--set", "seconds=30")
    wait_for(toy, "two begins")
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    (toy.root / "hurry").touch()
    again = start(toy, "--set", "seconds=30")
    said = again.communicate(timeout=60)[0]
    assert again.returncode == 0, said
    assert calls(toy) == [
        "one begins",
        "one ends",
        "two begins",
        "two begins",
        "two ends",
        "three begins",
        "three ends",
    ]
    assert "lock" not in said.lower() and "running elsewhere" not in said


class SlowToAnswer:
    """Files whose `create` returns a while after the file is there, as a far store's does."""

    def __init__(self, files, seconds: float) -> None:
        self.files, self.seconds = files, seconds

    def __getattr__(self, name):
        return getattr(self.files, name)

    def create(self, path: str, data: bytes) -> bool:
        created = self.files.create(path, data)
        time.sleep(self.seconds)
        return created


@pytest.mark.parametrize("ending", ["commit", "release"])
def test_a_heartbeat_at_the_moment_of_its_own_end_is_no_loss(tmp_path, monkeypatch, ending):
    """marin#5026: the heartbeat met the file that its own release had just changed, and reported the lease as lost."""
    monkeypatch.setattr(executor.storage.lease, "PERIOD_SECONDS", 0.04)
    store = Store(str(tmp_path))
    store.files = SlowToAnswer(store.files, 0.1)
    lost = []
    for number in range(5):
        lease = Lease.take(store, "k" * 64, name="step", attempt=f"{number}")
        assert isinstance(lease, Lease)
        lease.on_lost = lambda: lost.append(number)  # noqa: B023 - called in this round, if at all
        time.sleep(0.02)
        if ending == "commit":
            lease.commit(f"{number}")
        lease.release()
        assert not lost and not lease.lost
        assert holder(store, "k" * 64) is None


def test_a_step_whose_lease_is_lost_is_stopped_and_publishes_nothing(toy, monkeypatch):
    """marin#8107: a worker went on computing after its lease was taken, and wrote over the other's result."""
    monkeypatch.setattr(executor.storage.lease, "PERIOD_SECONDS", 0.4)
    toy.run(until=("one",))
    key = toy.plan()["two"].content_key
    stopped = []

    def take_over() -> None:
        wait_for(toy, "two begins")
        lease = Lease.take(toy.store, key, name="two", attempt="another", after=1)
        assert isinstance(lease, Lease)
        (address,) = [path.name for path in Path(toy.prefix).glob("two-*")]
        until = time.monotonic() + 20
        while time.monotonic() < until and not stopped:
            stopped.extend(one for one in toy.store.attempts(address) if one.status == "interrupted")
            time.sleep(0.05)
        (toy.root / "hurry").write_text("")
        lease.release()

    other = threading.Thread(target=take_over)
    other.start()
    outcome = toy.run("seconds=8")
    other.join()
    assert outcome.exit_code == 0
    assert calls(toy)[2:] == ["two begins", "two begins", "two ends", "three begins", "three ends"]
    record = toy.store.record(outcome.steps["two"].address)
    second, first = toy.store.attempts(record.address)
    assert first == stopped[0] and "took the lease over" in first.error, "stopped while the other still held it"
    assert record.attempt == second.attempt
    (read,) = toy.store.record(outcome.steps["three"].address).inputs
    assert read.location == toy.store.location(record.address, second.attempt)


def test_a_commit_after_the_lease_was_taken_is_refused(tmp_path, monkeypatch):
    """marin#8107, at the last moment: of a commit and a takeover exactly one happens."""
    monkeypatch.setattr(executor.storage.lease, "PERIOD_SECONDS", 60.0)
    store = Store(str(tmp_path))
    mine = Lease.take(store, "k" * 64, name="step", attempt="mine")
    other = Lease.take(store, "k" * 64, name="step", attempt="other", after=1)
    assert isinstance(mine, Lease) and isinstance(other, Lease) and other.number == 2
    with pytest.raises(LeaseLost, match="took the lease over"):
        mine.commit("mine")
    mine.release()
    other.commit("other")
    other.release()


def test_a_second_driver_waits_and_then_reuses(toy):
    """flyte#872: two executions of one task at once both ran it."""
    first = start(toy, "--set", "seconds=5")
    wait_for(toy, "two begins")
    second = start(toy, "--set", "seconds=5")
    said = [driver.communicate(timeout=60)[0] for driver in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0), said
    assert calls(toy) == [f"{name} {what}" for name in ("one", "two", "three") for what in ("begins", "ends")]
    assert "running elsewhere" in said[1]
