"""Several drivers on one prefix at once, and drivers and workers killed in the middle; inline, and on a real Ray.

A worker killed with its driver alive is tried in tests/executor/test_ray.py, a full disk in tests/executor/test_run.py.
"""

import signal
import time

import pytest

from executor import failpoints


def begun(toy, line: str) -> None:
    until = time.monotonic() + 60
    while line not in toy.calls():
        assert time.monotonic() < until, f"no call {line!r}"
        time.sleep(0.02)


@pytest.mark.fault("several drivers on one prefix at once")
@pytest.mark.parametrize("drivers", [3])
def test_each_step_runs_once_and_all_end_well(toy, drivers):
    started = [toy.start("--inline", "--set", "seconds=0.1") for _ in range(drivers)]
    assert [one.wait(timeout=60) for one in started] == [0] * drivers
    assert toy.calls() == ["source", "train 0", "early", "late"]
    assert toy.attempts("train") == [(1, "succeeded")]
    toy.check_finished()


@pytest.mark.fault("several drivers on one prefix at once")
@pytest.mark.slow
def test_each_step_runs_once_with_two_drivers_each_on_a_ray_of_its_own(toy):
    started = [toy.start("--set", "seconds=0.5") for _ in range(2)]
    assert [one.wait(timeout=180) for one in started] == [0, 0]
    assert sorted(toy.calls()) == ["early", "late", "source", "train 0"]
    toy.check_finished()


@pytest.mark.fault("kill -9 of a driver while another waits for it")
def test_the_one_that_waits_takes_over_by_itself(toy):
    """The milestone that the first published counts; the second goes on from there and starts nothing anew."""
    first = toy.start("--inline", "--set", "seconds=0.3")
    begun(toy, "train 0")
    second = toy.start("--inline")
    while not list(toy.project.root.glob("store/train-*/.step/milestones/2.json")):
        time.sleep(0.02)
    first.kill()
    first.wait()
    assert second.wait(timeout=60) == 0
    calls = toy.calls()
    assert calls[:2] == ["source", "train 0"] and calls[3:] == ["early", "late"] and calls[2] in ("train 2", "train 3")
    assert toy.attempts("train") == [(1, "interrupted"), (2, "succeeded")]
    toy.check_finished()


@pytest.mark.fault("SIGTERM to a driver in the middle of a step")
def test_a_terminated_driver_says_so_and_frees_its_lease(toy):
    driver = toy.start("--inline", "--set", "seconds=0.3")
    begun(toy, "train 0")
    driver.send_signal(signal.SIGTERM)
    assert driver.wait(timeout=60) == 130
    assert toy.attempts("train") == [(1, "interrupted")]
    toy.check_nothing_unfinished_is_served()
    assert toy.run().exit_code == 0
    toy.check_finished()


SHARED = """
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config:
        source: Input | None = None

    def work(config, output):
        with open("calls", "a") as file:
            file.write(f"{config.source is None}\\n")
        time.sleep(0.3)
        put(f"{output}/a", "x")
    """
OTHER = """
    from executor import *
    from shared import Config, Scales, work
    import dataclasses

    @dataclasses.dataclass(frozen=True)
    class Settings(Scales):
        pass

    def build(settings: Settings):
        first = Step("{name}/first", work, Config())
        return Experiment(targets=(Step("{name}/second", work, Config(source=first)),))

    if __name__ == "__main__":
        main(build)
    """


@pytest.mark.fault("several drivers on one prefix at once")
def test_two_recipes_that_name_one_piece_of_work_differently_share_it(toy):
    toy.project.write("shared.py", SHARED)
    for name in ("mine", "yours"):
        toy.project.write(f"{name}.py", OTHER.format(name=name), header=False)
    started = [toy.start("--inline", recipe=f"{name}.py") for name in ("mine", "yours")]
    assert [one.wait(timeout=60) for one in started] == [0, 0]
    assert toy.calls() == ["True", "False"]
    assert sum(len(list(toy.project.root.glob(f"store/{name}/*/.step/record.json"))) for name in ("mine", "yours")) == 2


@pytest.mark.fault("kill -9 at any moment of a run")
@pytest.mark.slow
@pytest.mark.parametrize("moment", range(40))
def test_killed_at_any_moment_the_next_run_completes(toy, moment):
    """From before the recipe is read to after the last record: 40 moments, 20 ms apart."""
    driver = toy.start("--inline", "--set", "seconds=0.02")
    time.sleep(0.2 + moment * 0.02)
    driver.kill()
    driver.wait()
    toy.check_nothing_unfinished_is_served()
    before = toy.calls()
    assert toy.run().exit_code == 0
    calls = toy.calls()
    ran = [line.split()[0] for line in calls]
    assert calls[: len(before)] == before
    assert all(ran.count(step) <= (2 if before and ran[len(before) - 1] == step else 1) for step in ran)
    toy.check_finished()


WORKER = """
import os, sys
_name = os.environ.get("TOY_FAILPOINT", "")
if _name and os.environ.get("TOY_WORKER"):
    try:
        os.close(os.open(os.environ["TOY_ONCE"], os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        pass
    else:
        os.environ["MARINADE_FAILPOINT"] = _name
"""
"""A `sitecustomize`: the first worker process of a step gets the failpoint, no other."""


@pytest.mark.fault("kill -9 of a Ray worker, at a failpoint")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) for name in failpoints.NAMES],
)
def test_a_ray_worker_killed_there_is_replaced_and_the_run_completes(toy, name):
    """The driver sees it die, starts the step again in another, and ends well: one run, nothing finished repeated."""
    folder = toy.project.root / "once"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(WORKER)
    once = folder / "claimed"
    driver = toy.start("--json", PYTHONPATH=str(folder), TOY_FAILPOINT=name, TOY_ONCE=str(once))
    assert driver.wait(timeout=120) == 0
    assert once.exists(), "no worker came to the failpoint"
    at, place = failpoints.NAMES.index(name), failpoints.NAMES.index
    repeats = place("function-entered") < at < place("attempt-finished")
    killed = "train" if name.startswith("milestone-") else "source"
    ran = [line.split()[0] for line in toy.calls()]
    assert {one: ran.count(one) - (repeats and one == killed) for one in ran} == dict.fromkeys(ran, 1)
    recorded = place("attempt-recorded") <= at < place("attempt-finished")
    allowed = (1, 2) if name in failpoints.AT_ONCE else (2,) if recorded else (1,)
    assert len(toy.attempts(killed)) in allowed
    (run,) = toy.store.run_ids()
    assert {step["status"] for step in toy.store.run(run).outcome.values()} <= {"succeeded", "reused"}
