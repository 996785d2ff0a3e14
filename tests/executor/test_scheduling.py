"""Who runs what when: work that somebody else does, equal work under two names, renames, retries."""

import dataclasses
import threading
import time

import pytest

from executor.driver.events import StepFailed, StepStarted, StepWaiting
from executor.driver.ready import Ready
from executor.driver.resources import Capacity
from executor.retry import POLICIES, Restarts, classify
from executor.step import Resources
from executor.storage import lease as leases
from executor.storage.lease import Lease
from executor.storage.processes import this_process

RECIPE = """
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config:
        number: int
        fail: int = execution(0)
        status: int = execution(0)

    class Refused(Exception):
        pass

    def work(config, output):
        with open("calls", "a") as file:
            file.write(f"{config.number}\\n")
        called = get("calls").split().count(str(config.number))
        done = [os.path.basename(one) for one in current().earlier_attempts]
        put(f"{output}/part", "x")
        if called <= config.fail:
            error = Refused("not yet")
            if config.status:
                error.code = config.status
            raise error
        return {"earlier": len(done)}

    @dataclasses.dataclass(frozen=True)
    class Settings(Scales):
        name: str = "one"
        twin: str = ""
        fail: int = 0
        status: int = 0
        retries: int = 0

    def build(settings: Settings):
        config = Config(number=1, fail=settings.fail, status=settings.status)
        steps = [Step(settings.name, work, config, retries=settings.retries), Step("two", work, Config(number=2))]
        if settings.twin:
            steps.append(Step(settings.twin, work, Config(number=1)))
        return Experiment(targets=tuple(steps))
    """


@pytest.fixture
def toy(project, monkeypatch):
    project.write("toy_recipe.py", RECIPE)
    monkeypatch.setattr("tenacity.wait_random_exponential", lambda **_: lambda state: 0.0)
    return project


def calls(project):
    path = project.root / "calls"
    return path.read_text().split() if path.exists() else []


def numbers(project, address):
    return [(attempt.number, attempt.status) for attempt in project.store.attempts(address)]


def test_a_renamed_step_goes_on_from_its_interrupted_attempt(toy):
    assert toy.run("fail=1").exit_code == 1
    plan = toy.plan("name=renamed")
    assert plan["renamed"].action == "resume"
    outcome = toy.run("name=renamed").steps["renamed"]
    assert outcome.result == {"earlier": 1}
    assert outcome.address.startswith("one-") and numbers(toy, outcome.address) == [(2, "succeeded"), (1, "failed")]


def test_equal_work_under_two_names_is_done_once(toy):
    outcome = toy.run("twin=twin")
    assert outcome.exit_code == 0 and sorted(calls(toy)) == ["1", "2"]
    assert outcome.steps["twin"].status == "reused" and outcome.steps["twin"].address == outcome.steps["one"].address


def test_what_somebody_else_runs_is_left_to_them_while_the_rest_goes_on(toy, monkeypatch):
    key = toy.plan()["one"].content_key
    elsewhere = dataclasses.replace(this_process(), machine="another", host="there")
    with monkeypatch.context() as patch:
        patch.setattr(leases, "this_process", lambda: elsewhere)
        lease = Lease.take(toy.store, key, name="one", attempt="x")
    assert toy.plan()["one"].action == "wait"

    def let_go():
        while calls(toy) != ["2"]:
            time.sleep(0.02)
        lease.release()

    thread = threading.Thread(target=let_go)
    thread.start()
    outcome = toy.run(max_parallel=1)
    thread.join()
    assert outcome.exit_code == 0 and calls(toy) == ["2", "1"]
    (waiting,) = [event for event in toy.events if isinstance(event, StepWaiting)]
    assert waiting.name == "one" and "host there" in waiting.reason


def test_what_somebody_else_finished_meanwhile_is_reused(toy, monkeypatch):
    """Another driver commits between this run's plan and its turn."""
    from executor.driver import scheduler

    first = scheduler.Scheduler._begin

    def begin(self):
        monkeypatch.setattr(scheduler.Scheduler, "_begin", first)
        assert toy.run().exit_code == 0
        first(self)

    monkeypatch.setattr(scheduler.Scheduler, "_begin", begin)
    outcome = toy.run()
    assert {step.status for step in outcome.steps.values()} == {"reused"}
    assert sorted(calls(toy)) == ["1", "2"]


@pytest.mark.parametrize(
    ("settings", "times"),
    [(["fail=1"], 1), (["fail=2", "retries=2"], 3), (["fail=3", "retries=2"], 3), (["fail=2", "status=503"], 3)],
)
def test_exceptions_are_tried_again_as_often_as_the_step_says_and_storage_as_often_as_it_takes(toy, settings, times):
    outcome = toy.run(*settings)
    good = settings not in (["fail=1"], ["fail=3", "retries=2"])
    assert outcome.steps["one"].status == ("succeeded" if good else "failed")
    assert calls(toy).count("1") == times
    found = numbers(toy, outcome.steps["one"].address)
    assert [number for number, _ in found] == list(range(times, 0, -1))
    assert [status for _, status in found] == ["succeeded" if good else "failed", *["failed"] * (times - 1)]
    retried = [event for event in toy.events if isinstance(event, StepFailed) and event.retrying]
    assert len(retried) == times - 1 and all("starting it again" in event.error for event in retried)
    assert sum(isinstance(event, StepStarted) and event.name == "one" for event in toy.events) == times


def test_retries_are_in_no_key(toy):
    assert toy.plan("retries=3")["one"].key == toy.plan()["one"].key


def test_every_failure_has_a_policy_and_a_limit():
    for failure, policy in POLICIES.items():
        limited = policy.times is not None or policy.budget_seconds is not None
        assert policy.words and limited == (failure != "not_placed"), f"{failure}: only waiting for hosts has no end"
    crashes = Restarts()
    assert [crashes.delay("crashed") is None for _ in range(4)] == [False, False, False, True]
    nodes = Restarts()
    assert all(nodes.delay("node_lost") is not None for _ in range(50))
    nodes.since["node_lost"] -= POLICIES["node_lost"].budget_seconds
    assert nodes.delay("node_lost") is None


def test_a_steps_own_broken_connection_is_an_exception_and_the_stores_is_not():
    assert classify(ConnectionResetError(), own=True) == "exception"
    assert classify(ConnectionResetError(), own=False) == "storage"
    refused = RuntimeError("429")
    refused.code = 429
    assert classify(refused, own=True) == "storage"
    assert classify(FileNotFoundError(), own=False) == "exception"


def test_the_first_step_that_fits_is_next():
    ready = Ready("abcd")
    small, large, gpu = Resources(cpus=1), Resources(cpus=2), Resources(gpus=1)
    for name, need in (("d", small), ("a", large), ("c", small), ("b", gpu)):
        ready.add(name, need)
    two = Capacity(cpus=2, gpus=0, hosts=1, cpus_per_host=2, gpus_per_host=0, words="")
    assert ready.next([small], two, None) == "c", "a needs two cores, b a GPU"
    assert ready.next([], two, 0) is None
    assert ready.next([], two, None) == "a", "alone, a step always fits"
    assert ready.next([large], two, None) is None
    assert ready.next([], two, None) == "b"
    assert ready and ready.next([], two, None) == "d" and not ready
