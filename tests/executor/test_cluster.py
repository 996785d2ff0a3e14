# ruff: noqa: E501 - a recipe as text
"""Steps on a Ray cluster that was started on its own: they outlive their driver, and the next one finds them."""

import os
import signal
import subprocess
import time

import pytest

from executor.storage.processes import start_time

RECIPE = """
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config:
        seconds: float = 0
        source: Input | None = None

    def work(config, output):
        with open("FOLDER/calls", "a") as file:
            file.write("call\\n")
        until = time.monotonic() + config.seconds
        while time.monotonic() < until:
            current().progress(config.seconds - until + time.monotonic(), config.seconds)
            time.sleep(0.1)
        put(f"{output}/done", "x")

    @dataclasses.dataclass(frozen=True)
    class Settings(Scales):
        seconds: float = 0

    def build(settings: Settings):
        first = Step("first", work, Config(seconds=settings.seconds))
        return Experiment(targets=(Step("second", work, Config(source=first)),))
    """

DRIVER = """
    import sys
    from executor.recipe import load
    from executor.driver.run import RunOptions, run_experiment
    from executor.storage.store import Store
    recipe = load("toy_recipe.py")
    outcome = run_experiment(recipe.experiment("laptop", ["seconds=" + sys.argv[3]]), Store(sys.argv[1]), recipe=recipe, scale="laptop",
                             options=RunOptions(address=sys.argv[2]), listener=lambda event: print(event.__class__.__name__, flush=True))
    sys.exit(outcome.exit_code)
    """


@pytest.fixture(scope="module")
def cluster(start_cluster):
    """Four cores on one host: a worker that was left holds one for a while."""
    return start_cluster(4)


@pytest.fixture
def toy(project, cluster, monkeypatch):
    project.write("toy_recipe.py", RECIPE.replace("FOLDER", str(project.root)))
    for name, value in cluster[1].items():
        monkeypatch.setenv(name, value)
    return project


def drive(toy, address, seconds):
    return toy.python(DRIVER, toy.prefix, address, seconds, start_new_session=True, stderr=subprocess.STDOUT)


def until_said(driver, word):
    for line in driver.stdout:
        if line.strip() == word:
            return
    raise AssertionError(f"the driver ended without {word}")


def calls(toy):
    return (toy.root / "calls").read_text().count("call")


def test_a_step_outlives_a_killed_driver_and_the_next_one_listens_to_it(toy, cluster):
    address, _ = cluster
    first = drive(toy, address, "12")
    until_said(first, "StepProgress")
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    first.stdout.close()
    plan = toy.plan("seconds=12")
    assert plan["first"].action == "wait"
    (attempt,) = toy.store.attempts(plan["first"].address)
    second = drive(toy, address, "12")
    said = [line.strip() for line in second.stdout]
    second.stdout.close()
    assert second.wait() == 0, said
    assert said.count("StepFinished") == 2 and "StepWaiting" not in said, said
    assert "StepProgress" in said, "it is listened to, not waited for"
    (finished,) = toy.store.attempts(plan["first"].address)
    assert finished.attempt == attempt.attempt and finished.number == 1 and finished.status == "succeeded"
    assert calls(toy) == 2, "each step was called once"


@pytest.mark.slow
def test_a_driver_that_stops_leaves_a_step_to_the_one_that_listens_too(toy, cluster):
    address, _ = cluster
    first = drive(toy, address, "14")
    until_said(first, "StepProgress")
    second = drive(toy, address, "14")
    until_said(second, "StepProgress")
    first.send_signal(signal.SIGINT)
    assert first.wait(timeout=60) == 130
    first.stdout.close()
    said = second.stdout.read()
    second.stdout.close()
    assert second.wait() == 0, said
    assert [attempt.status for attempt in toy.store.attempts(toy.plan("seconds=14")["first"].address)] == ["succeeded"]
    assert calls(toy) == 2, "each step was called once"


def test_ctrl_c_stops_the_steps_of_a_cluster_too(toy, cluster):
    address, _ = cluster
    driver = drive(toy, address, "60")
    until_said(driver, "StepProgress")
    plan = toy.plan("seconds=60")
    (attempt,) = toy.store.attempts(plan["first"].address)
    driver.send_signal(signal.SIGINT)
    assert driver.wait(timeout=60) == 130
    driver.stdout.close()
    until = time.monotonic() + 20
    while start_time(attempt.provenance["pid"]) is not None:
        assert time.monotonic() < until, "the worker is left"
        time.sleep(0.1)
    (ended,) = toy.store.attempts(plan["first"].address)
    assert ended.status == "interrupted"
    assert toy.plan("seconds=60")["first"].action == "run"


def test_an_address_without_a_cluster_is_an_error_in_words(toy, cluster):
    driver = drive(toy, "ray://127.0.0.2:10001", "1")
    text = driver.stdout.read()
    driver.stdout.close()
    assert driver.wait() == 1 and "give HOST:PORT of the head" in text
