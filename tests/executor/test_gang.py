# ruff: noqa: E501 - a recipe as text
"""A step on several hosts of a Ray cluster: all of its processes or none, and none left when one is lost."""

import os
import signal
import subprocess
import time

import pytest

from executor.storage.processes import start_time

RECIPE = """
    import os, signal
    from executor import Resources

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config:
        what: str = ""
        work: int = 0

    def work(config, output):
        here = current()
        def meet(name, seconds=60):
            # All processes of an attempt, at a place all of them see.
            put(f"FOLDER/{here.attempt}-{name}-{here.process}", f"{os.getpid()}")
            until = time.monotonic() + seconds
            while not all(os.path.exists(f"FOLDER/{here.attempt}-{name}-{other}") for other in range(here.processes)):
                here.progress(0, 1)
                if time.monotonic() > until:
                    raise TimeoutError(name)
                time.sleep(0.05)
        meet("begin")
        first = not os.path.exists("FOLDER/lost")
        print(f"process {here.process} of {here.processes} at {here.coordinator}", flush=True)
        if config.what == "raise" and here.process == 1:
            raise ValueError("the data of process 1 are bad")
        if config.what == "lose 1" and here.process == 1 and first:
            put("FOLDER/lost", "1")
            os.kill(os.getpid(), signal.SIGKILL)
        if config.what == "lose 0" and here.process == 0 and first:
            put("FOLDER/lost", "0")
            os.kill(os.getpid(), signal.SIGKILL)
        if config.what == f"preempt {here.process}" and first:
            put("FOLDER/lost", "")
            os.kill(os.getpid(), signal.SIGTERM)
        if config.what.startswith("preempt") and not here.earlier_attempts:
            here.save_on_stop(30)
            while not os.path.exists("FOLDER/stop"):
                if here.stopping:
                    put("FOLDER/stop", "")
                time.sleep(0.05)
            if here.process == 0:
                put(f"{output}/checkpoint", "x")
            here.stop()
        if config.what == "wait":
            time.sleep(8)
            meet("middle")
        meet("end", 3600)
        if here.process == 0:
            put(f"{output}/done", "x")
        return {"processes": here.processes}

    @dataclasses.dataclass(frozen=True)
    class Settings(Scales):
        what: str = ""
        hosts: int = 2
        groups: int = 1
        colocate: str = ""
        steps: int = 1

    def build(settings: Settings):
        needed = Resources(hosts=settings.hosts, groups=settings.groups, colocate=settings.colocate)
        return Experiment(targets=tuple(
            Step(f"train/{n}", work, Config(what=settings.what, work=n), resources=needed) for n in range(settings.steps)
        ))
    """

DRIVER = """
    import sys
    from executor.recipe import load
    from executor.driver.run import RunOptions, run_experiment
    from executor.storage.store import Store
    recipe = load("toy_recipe.py")
    def tell(event):
        print(event.__class__.__name__, getattr(event, "message", ""), getattr(event, "error", ""), getattr(event, "traceback", ""), flush=True)
    outcome = run_experiment(recipe.experiment("laptop", sys.argv[3:]), Store(sys.argv[1]), recipe=recipe, scale="laptop",
                             options=RunOptions(address=sys.argv[2]), listener=tell)
    sys.exit(outcome.exit_code)
    """


@pytest.fixture(scope="module")
def hosts(start_cluster):
    """Two hosts of one core each, in two racks."""
    return start_cluster(1, 1, labels=("rack=a", "rack=b"))


@pytest.fixture(scope="module")
def four_hosts(hosts, start_cluster):
    """Another one in each rack."""
    return start_cluster(1, 1, labels=("rack=b", "rack=a"))


@pytest.fixture
def gang(project, hosts, monkeypatch):
    project.write("toy_recipe.py", RECIPE.replace("FOLDER", str(project.root)))
    for name, value in hosts[1].items():
        monkeypatch.setenv(name, value)
    return project


@pytest.fixture
def drive(gang, hosts):
    """Start a driver with these settings; ended with the test."""
    started = []

    def start(*settings):
        driver = gang.python(DRIVER, gang.prefix, hosts[0], *settings, start_new_session=True, stderr=subprocess.STDOUT)
        started.append(driver)
        return driver

    yield start
    for driver in started:
        if driver.poll() is None:
            os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
        driver.stdout.close()


def said_by(driver, timeout=180):
    return driver.communicate(timeout=timeout)[0]


def attempts_of(gang, *settings, step="train/0"):
    return gang.store.attempts(gang.plan(*settings)[step].address)


def pids(gang, attempt, processes=2):
    return [int((gang.root / f"{attempt.attempt}-begin-{process}").read_text()) for process in range(processes)]


def until_ended(pids, seconds=20):
    until = time.monotonic() + seconds
    while any(start_time(pid) is not None for pid in pids):
        assert time.monotonic() < until, "a process is left"
        time.sleep(0.1)


def test_processes_on_two_hosts_are_one_attempt(gang, drive):
    driver = drive()
    text = said_by(driver)
    assert driver.returncode == 0, text
    (attempt,) = attempts_of(gang)
    assert attempt.status == "succeeded" and attempt.result == {"processes": 2}
    logs = gang.root / f"{gang.prefix}/{attempt.address}/.step/attempts/{attempt.attempt}"
    assert "process 0 of 2 at 127.0.0." in (logs / "log.txt").read_text()
    assert "process 1 of 2 at 127.0.0." in (logs / "log-1.txt").read_text()
    until_ended(pids(gang, attempt))


@pytest.mark.slow
def test_an_error_of_one_is_the_steps_error_and_says_whose(gang, drive):
    driver = drive("what=raise")
    text = said_by(driver)
    assert driver.returncode == 1
    assert "process 1 of 2" in text and "the data of process 1 are bad" in text and "in work" in text
    (attempt,) = attempts_of(gang, "what=raise")
    assert attempt.status == "interrupted" and "process 1 of 2" in attempt.error
    until_ended(pids(gang, attempt))


@pytest.mark.parametrize("process", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_a_lost_process_brings_all_down_and_up_again(process, gang, drive):
    what = f"what=lose {process}"
    driver = drive(what)
    text = said_by(driver)
    assert driver.returncode == 0, text
    assert "starting it again" in text and "StepFinished" in text
    last, first = attempts_of(gang, what)
    assert (first.status, last.status) == ("interrupted", "succeeded")
    until_ended([*pids(gang, first), *pids(gang, last)])


@pytest.mark.slow
@pytest.mark.parametrize("process", [0, 1])
def test_a_process_that_is_asked_to_end_has_all_save_and_start_again(process, gang, drive):
    what = f"what=preempt {process}"
    driver = drive(what)
    text = said_by(driver)
    assert driver.returncode == 0, text
    assert "SIGTERM" in text, text
    last, first = attempts_of(gang, what)
    assert (first.status, last.status) == ("interrupted", "succeeded")
    assert (gang.root / f"{gang.prefix}/{first.address}/{first.attempt}/checkpoint").exists()
    until_ended([*pids(gang, first), *pids(gang, last)])


@pytest.mark.slow
def test_it_outlives_its_driver_and_frees_its_hosts(gang, drive):
    first = drive("what=wait")
    assert any("StepProgress" in line for line in first.stdout)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    second = drive("what=wait")
    text = said_by(second)
    assert second.returncode == 0, text
    (attempt,) = attempts_of(gang, "what=wait")
    assert attempt.status == "succeeded", "the next driver listened to it"
    third = drive()
    text = said_by(third)
    assert third.returncode == 0, text


@pytest.mark.slow
def test_ctrl_c_ends_all_processes(gang, drive):
    driver = drive("what=wait")
    assert any("StepProgress" in line for line in driver.stdout)
    driver.send_signal(signal.SIGINT)
    text = said_by(driver)
    assert driver.returncode == 130, text
    (attempt,) = attempts_of(gang, "what=wait")
    assert attempt.status == "interrupted"
    until_ended(pids(gang, attempt))


def test_hosts_that_are_not_there_are_an_error_before_anything_starts(gang, drive):
    driver = drive("hosts=5")
    text = said_by(driver)
    assert driver.returncode == 1 and "train/0 needs 5 hosts" in text and " hosts, " in text


@pytest.mark.slow
def test_two_that_want_most_hosts_run_one_after_the_other(four_hosts, gang, drive):
    driver = drive("hosts=3", "steps=2")
    text = said_by(driver)
    assert driver.returncode == 0, text
    assert text.count("StepFinished") == 2


@pytest.mark.slow
def test_a_group_is_on_hosts_that_share_the_label(four_hosts, gang, drive):
    settings = ("groups=2", "colocate=rack")
    driver = drive(*settings)
    text = said_by(driver)
    assert driver.returncode == 0, text
    (attempt,) = attempts_of(gang, *settings)
    assert attempt.result == {"processes": 4}
