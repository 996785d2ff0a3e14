# ruff: noqa: E501 - recipes and tables as text
"""Steps on a real Ray: workers kept per environment, replaced when they die, and gone when the driver is."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import executor
from executor.driver.events import StepFailed, StepProgress, StepStarted
from executor.storage.processes import children, start_time

RECIPE = """
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config:
        number: int = 0
        kill: str = ""
        source: Input | None = None
        seconds: float = 0

    def work(config, output):
        begin = 0
        for folder in current().earlier_attempts:
            begin = max(begin, len(os.listdir(folder)))
        for part in range(begin, 5):
            put(f"{output}/{part}", "x")
            current().progress(part + 1, 5, begin=begin)
            if config.kill and part == 2 and not os.path.exists(config.kill):
                put(config.kill, "")
                os.kill(os.getpid(), 9)
            time.sleep(config.seconds)
        print("said", config.number)
        if config.number == 13:
            raise RuntimeError("thirteen")
        return {"pid": os.getpid(), "begin": begin, "flag": os.environ.get("MARINADE_TEST_FLAG", "")}

    @dataclasses.dataclass(frozen=True)
    class Settings(Scales):
        kill: str = ""
        bad: int = 1
        seconds: float = 0

    def build(settings: Settings):
        one = Step("one", work, Config(number=1, seconds=settings.seconds))
        flagged = Step("flagged", work, Config(number=2, source=one), resources=Resources(environment={"MARINADE_TEST_FLAG": "on"}))
        killed = Step("killed", work, Config(number=3, kill=settings.kill, source=one))
        bad = Step("bad", work, Config(number=settings.bad, source=killed))
        return Experiment(targets=(flagged, bad))
    """


@pytest.fixture(scope="module")
def ray_session():
    """One Ray for the tests of this file; the backend finds it and leaves it running."""
    from executor.driver.ray_backend import _import_ray

    ray = _import_ray()
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20)
    yield ray
    ray.shutdown()


@pytest.fixture
def toy(project):
    project.write("toy_recipe.py", RECIPE)
    return project


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_workers_are_kept_by_environment_and_replaced_when_killed(toy, ray_session):
    outcome = toy.run(f"kill={toy.root}/killed-once", "bad=13", inline=False)
    steps = outcome.steps
    assert {name: step.status for name, step in steps.items()} == {
        "one": "succeeded", "flagged": "succeeded", "killed": "succeeded", "bad": "failed",
    }  # fmt: skip
    assert steps["flagged"].result["flag"] == "on" and steps["one"].result["flag"] == ""
    assert steps["flagged"].result["pid"] != steps["one"].result["pid"]
    assert steps["killed"].result["begin"] == 3, "resumed from the attempt that was killed"
    (retried,) = [event for event in toy.events if isinstance(event, StepFailed) and event.retrying]
    assert retried.name == "killed" and "died" in retried.error
    started = [event for event in toy.events if isinstance(event, StepStarted)]
    attempts = toy.store.attempts(steps["killed"].address)
    assert [(attempt.number, attempt.status) for attempt in attempts] == [(2, "succeeded"), (1, "interrupted")]
    assert {event.name for event in toy.events if isinstance(event, StepProgress)} == set(steps)
    bad = steps["bad"]
    assert "RuntimeError: thirteen" in bad.error and "toy_recipe.py" in bad.traceback and "said 13" in bad.log_tail
    assert started[-1].pid == steps["killed"].result["pid"], "the worker was kept"
    again = toy.run(f"kill={toy.root}/killed-once", "bad=1", inline=False)
    assert again.exit_code == 0 and again.steps["killed"].status == "reused"


PREEMPTED = """
    @dataclasses.dataclass(frozen=True)
    class Config:
        pass

    def work(config, output):
        context = current()
        for folder in context.earlier_attempts:
            return {"saved": os.listdir(folder)}
        context.save_on_stop(30)
        os.kill(os.getpid(), 15)
        until = time.monotonic() + 60
        while not context.stopping:
            assert time.monotonic() < until
            time.sleep(0.01)
        put(f"{output}/checkpoint", "x")
        context.stop()

    @dataclasses.dataclass(frozen=True)
    class Settings(Scales):
        pass

    def build(settings: Settings):
        return Experiment(targets=(Step("preempted", work, Config()),))
    """


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_worker_that_is_asked_to_end_saves_and_its_step_goes_on_elsewhere(project, ray_session):
    project.write("toy_recipe.py", PREEMPTED)
    outcome = project.run(inline=False)
    step = outcome.steps["preempted"]
    assert step.status == "succeeded", step.error
    assert step.result["saved"] == ["checkpoint"]
    last, first = project.store.attempts(step.address)
    assert first.status == "interrupted" and "preempted" in first.error
    (retried,) = [event for event in project.events if isinstance(event, StepFailed)]
    assert retried.retrying and "SIGTERM" in retried.error
    assert start_time(first.provenance["pid"]) is None and first.provenance["pid"] != last.provenance["pid"]


DRIVER = """
    import sys
    from executor.recipe import load
    from executor.driver.run import RunOptions, run_experiment
    from executor.storage.store import Store
    recipe = load("toy_recipe.py")
    outcome = run_experiment(recipe.experiment("laptop", ["seconds=0.5"]), Store(sys.argv[1]), recipe=recipe, scale="laptop",
                             listener=lambda event: print(event.__class__.__name__, flush=True))
    sys.exit(outcome.exit_code)
    """


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGKILL])
def test_nothing_is_left_running_and_the_next_run_resumes(toy, number, monkeypatch):
    driver = toy.python(DRIVER, toy.prefix, start_new_session=True)
    assert driver.stdout is not None
    for line in driver.stdout:
        if line.strip() == "StepProgress":
            break
    started = {pid: start_time(pid) for pid in children(driver.pid)}
    assert started
    driver.send_signal(number)
    assert driver.wait(timeout=60) == (130 if number == signal.SIGINT else -9)
    driver.stdout.close()
    until = time.monotonic() + 30
    while any(start_time(pid) == moment is not None for pid, moment in started.items()):
        assert time.monotonic() < until, "processes of a dead driver are left"
        time.sleep(0.2)
    plan = toy.plan("seconds=0.5")
    assert plan["one"].action == "resume"
    (attempt,) = toy.store.attempts(plan["one"].address)
    assert attempt.status == ("interrupted" if number == signal.SIGINT else "running")
    assert os.path.exists(toy.store.log_dir(attempt.address, attempt.attempt) + "/log.txt")
    monkeypatch.setenv("MARINADE_TEST_FLAG", "on")  # this process may have imported JAX: too late for a step to set it
    assert toy.run("seconds=0.5").steps["one"].result["begin"] > 0


@pytest.mark.slow
def test_what_lies_where_the_driver_was_started_is_not_taken_for_its_modules(project, tmp_path):
    """Ray looks there first. The step's code is pinned, so that no key would tell."""
    project.write("theirs/pyproject.toml", "", header=False)
    project.write("theirs/beside_it.py", "WHICH = 'theirs'\n", header=False)
    project.write("elsewhere/beside_it.py", "WHICH = 'elsewhere'\n", header=False)
    project.write("elsewhere/executor/__init__.py", "raise ImportError('elsewhere')\n", header=False)
    recipe = project.write("theirs/path_recipe.py", """
        from beside_it import WHICH

        @dataclasses.dataclass(frozen=True)
        class Config:
            number: int = 0

        def work(config, output):
            put(output + "/which", WHICH)

        @dataclasses.dataclass(frozen=True)
        class Settings(Scales):
            pass

        def build(settings: Settings):
            return Experiment(targets=(Step("only", work, Config(), code="pin"),))

        if __name__ == "__main__":
            main(build)
    """)  # fmt: skip
    root = str(Path(executor.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, str(recipe), "--prefix", project.prefix],
        cwd=tmp_path / "elsewhere", env=os.environ | {"PYTHONPATH": root}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (which,) = Path(project.prefix).glob("only-*/*/which")
    assert which.read_text() == "theirs"
