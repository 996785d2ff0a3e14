"""Hosts whose clocks are ten minutes apart: nothing that counts is decided by comparing them.

Each process gets its own clock by a `sitecustomize` that shifts `time` before anything else is imported.
"""

import os
import signal
import time

import pytest

SHIFT = """
import os, time
_by = float(os.environ.get("TOY_CLOCK", "0"))
_time, _time_ns, _gmtime, _localtime = time.time, time.time_ns, time.gmtime, time.localtime
time.time = lambda: _time() + _by
time.time_ns = lambda: _time_ns() + int(_by * 1e9)
time.gmtime = lambda seconds=None: _gmtime(time.time() if seconds is None else seconds)
time.localtime = lambda seconds=None: _localtime(time.time() if seconds is None else seconds)
"""
AHEAD, BEHIND = "600", "-600"
pytestmark = pytest.mark.fault("clocks of hosts ten minutes apart")


@pytest.fixture
def at(toy):
    """`at(clock, *arguments)`: the pipeline in a process with that clock."""
    folder = toy.project.root / "clock"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(SHIFT)

    def start(clock: str, *arguments: str, failpoint: str = ""):
        return toy.start("--inline", *arguments, failpoint=failpoint, PYTHONPATH=str(folder), TOY_CLOCK=clock)

    return start


def test_the_clock_of_a_process_can_be_shifted(toy, at):
    assert at(AHEAD).wait(timeout=60) == 0
    (run,) = toy.store.run_ids()
    assert run > time.strftime("%Y%m%dT%H%M%S", time.gmtime(time.time() + 300))


def test_a_forced_rerun_on_a_host_that_is_behind_counts(toy, at):
    """Made ahead, forced behind: the later one by the clock is the earlier one, and must not win."""
    assert at(AHEAD).wait(timeout=60) == 0
    first = toy.record("train")
    milestone = toy.store.milestones(first.address)[2]
    assert at(BEHIND, "--force", "train").wait(timeout=60) == 0
    second = toy.record("train")
    assert second.attempt < first.attempt, "its clock says that it was earlier"
    assert second.number == 2
    assert toy.store.milestones(first.address)[2].attempt == second.attempt != milestone.attempt
    assert toy.calls() == ["source", "train 0", "early", "late", "train 0", "early", "late"]
    toy.check_finished()


def test_a_resumed_attempt_reads_the_newest_one_whatever_its_clock_says(toy, at):
    """Killed ahead with nothing, killed behind with a milestone, finished here: each goes on from the one before."""
    for clock, failpoint in ((AHEAD, "milestone-listed"), (BEHIND, "function-returned")):
        assert at(clock, failpoint=failpoint).wait(timeout=60) == -signal.SIGKILL
        toy.check_nothing_unfinished_is_served()
    assert toy.run().exit_code == 0
    assert toy.calls() == ["source", "train 0", "train 2", "train 4", "early", "late"]
    assert toy.attempts("train") == [(1, "interrupted"), (2, "interrupted"), (3, "succeeded")]
    toy.check_finished()


def test_a_lease_is_not_taken_from_a_live_holder_whose_clock_is_behind(toy, at):
    """Its beats are as good as any: the other waits for it, and both end well."""
    slow = at(BEHIND, "--set", "seconds=0.2")
    until = time.monotonic() + 30
    while "train 0" not in toy.calls():
        assert time.monotonic() < until
        time.sleep(0.02)
    other = at(AHEAD, "--set", "seconds=0.2")
    assert (slow.wait(timeout=60), other.wait(timeout=60)) == (0, 0)
    assert toy.calls() == ["source", "train 0", "early", "late"]
    assert toy.attempts("train") == [(1, "succeeded")]
    toy.check_finished()


def test_the_clocks_of_files_do_not_matter(toy, at):
    """A store whose server is an hour off: times of modification are never compared with a host's clock."""
    assert at("0", failpoint="function-returned").wait(timeout=60) == -signal.SIGKILL
    for folder, _, names in os.walk(toy.store.prefix):
        for name in names:
            os.utime(f"{folder}/{name}", (time.time() + 3600,) * 2)
    assert toy.run().exit_code == 0
    toy.check_finished()
