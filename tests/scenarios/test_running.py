"""Running, and saying how it went: what users of other tools reported, and what they are owed here."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import executor
from executor.storage.lease import holder
from executor.storage.processes import children, start_time

CHAIN = """
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config:
        number: int
        source: Input | None = None

    def work(config, output):
        return {"number": config.number}

    @dataclasses.dataclass(frozen=True)
    class Settings(Scales):
        length: int = 500

    def build(settings: Settings):
        step = None
        for number in range(settings.length):
            step = Step(f"s{number}", work, Config(number=number, source=step))
        return Experiment(targets=(step,))
    """

FAILING = """
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config:
        number: int
        source: Input | None = None

    class Odd(Exception):
        def __init__(self, needed, here):
            super().__init__(f"{needed} and {here}")
            self.held = open("/dev/null")

        def __reduce__(self):
            raise TypeError("cannot be pickled")

    def fail(config, output):
        print("the last thing it said")
        raise Odd("it broke", "badly")

    def work(config, output):
        put(f"{output}/number", str(config.number))

    @dataclasses.dataclass(frozen=True)
    class Settings(Scales):
        pass

    def build(settings: Settings):
        bad = Step("bad", fail, Config(number=1))
        left = Step("left", work, Config(number=2, source=bad))
        far = Step("far", work, Config(number=3, source=left))
        good = Step("good", work, Config(number=4))
        fine = Step("fine", work, Config(number=5, source=good))
        return Experiment(targets=(far, fine))

    if __name__ == "__main__":
        main(build)
    """

CHILDREN = """
    import signal, subprocess

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config:
        number: int

    def work(config, output):
        child = subprocess.Popen(["sh", "-c", "trap '' INT TERM; while true; do sleep 1; done"])
        put(f"{output}/a", str(child.pid))
        put("./begun", str(child.pid))
        time.sleep(600)  # in compiled code: no exception gets in until it returns

    @dataclasses.dataclass(frozen=True)
    class Settings(Scales):
        pass

    def build(settings: Settings):
        return Experiment(targets=(Step("stubborn", work, Config(number=1)),))

    if __name__ == "__main__":
        main(build)
    """


@pytest.fixture
def start(project):
    """`start(*arguments)`: the recipe as a command; what is left of it at the end of the test is killed."""
    started = []

    def run(*arguments: str) -> subprocess.Popen:
        root = str(Path(executor.__file__).parents[1])
        process = subprocess.Popen(
            [sys.executable, "toy_recipe.py", "--prefix", project.prefix, *arguments],
            cwd=project.root,
            env={**os.environ, "PYTHONPATH": root, "NO_COLOR": "1", "COLUMNS": "200"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def chain(project, length: int) -> None:
    project.write("toy_recipe.py", CHAIN)
    overrides = f"length={length}"
    plan = project.plan(overrides)
    assert len(plan) == length and {step.action for step in plan.values()} == {"run"}
    outcome = project.run(overrides)
    assert outcome.exit_code == 0 and len(outcome.steps) == length
    assert [step.result for step in outcome.steps.values()] == [{"number": number} for number in range(length)]
    again = project.run(overrides)
    assert {step.status for step in again.steps.values()} == {"reused"}


def test_a_chain_of_200_steps_plans_and_runs(project):
    """parsl#3472: a long chain of tasks ended in a RecursionError."""
    chain(project, 200)


@pytest.mark.slow
def test_a_chain_of_5000_steps_plans_and_runs(project):
    """parsl#3472, at the length that broke it; on disk, since listing fsspec's memory looks at all that is in it."""
    chain(project, 5000)


def test_a_chain_of_5000_steps_plans(project):
    """parsl#3472: planning alone, in a process with the usual recursion limit."""
    project.write("toy_recipe.py", CHAIN)
    assert sys.getrecursionlimit() < 5000
    plan = project.plan("length=5000")
    assert len(plan) == 5000


BACKENDS = ["--inline", pytest.param("--max-parallel=1", marks=pytest.mark.slow, id="ray")]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_failing_run_says_what_broke_where_its_log_is_and_what_did_not_run(project, start, backend):
    """One failing branch, seen by a person who reads the end of the run.

    luigi#1227: an exception that cannot be pickled took the run down with it.
    snakemake#1004: the error did not say where the log was, nor show its end.
    dvc#8647: the other branches were stopped, and what had not run was not said.
    """
    project.write("toy_recipe.py", FAILING)
    run = start(backend)
    results, said = run.communicate(timeout=120)
    assert run.returncode == 1
    assert "FAILED bad" in said
    assert "Odd: it broke and badly" in said and 'raise Odd("it broke", "badly")' in said
    (log,) = set(re.findall(r"log: (\S+)", said))
    assert "the last thing it said" in Path(log).read_text()
    assert "| the last thing it said" in said
    assert re.search(r"did not run \(2\): left, far", said)
    steps = project.plan()
    assert {name: step.action for name, step in steps.items()} == {
        "bad": "run", "left": "run", "far": "run", "good": "reuse", "fine": "reuse",
    }  # fmt: skip
    (attempt,) = project.store.attempts(steps["bad"].address)
    assert attempt.status == "failed" and "Odd: it broke and badly" in attempt.error
    assert "2 of 5 steps done" in results


@pytest.mark.slow
def test_ctrl_c_twice_ends_at_once_and_leaves_nothing_behind(project, start):
    """snakemake#448: children of a job that was interrupted twice went on, and its lock stayed."""
    project.write("toy_recipe.py", CHILDREN)
    driver = start()
    begun = project.root / "begun"
    until = time.monotonic() + 120
    while not begun.exists() or not begun.read_text():
        assert driver.poll() is None and time.monotonic() < until
        time.sleep(0.05)
    child = int(begun.read_text())
    below = {pid: start_time(pid) for pid in (*children(driver.pid), child)}
    assert below[child] is not None, "the step's own child is there"
    driver.send_signal(signal.SIGINT)
    time.sleep(0.5)
    driver.send_signal(signal.SIGINT)
    pressed = time.monotonic()
    _, said = driver.communicate(timeout=60)
    assert driver.returncode == 130 and "stubborn" in said
    assert time.monotonic() - pressed < 20
    until = time.monotonic() + 20
    while left := [pid for pid, moment in below.items() if moment is not None and start_time(pid) == moment]:
        assert time.monotonic() < until, f"left running: {left}"
        time.sleep(0.1)
    step = project.plan()["stubborn"]
    assert holder(project.store, step.content_key) is None and step.action == "resume"
    (attempt,) = project.store.attempts(step.address)
    assert attempt.status == "interrupted"


def test_ctrl_c_once_stops_the_step_and_frees_its_lease(project, start):
    """snakemake#448, the first press: the step ends by itself, and its attempt says that it was interrupted."""
    project.write(
        "toy_recipe.py", CHILDREN.replace("trap '' INT TERM; ", "").replace("while true; do sleep 1; done", "exit")
    )
    driver = start("--inline")
    begun = project.root / "begun"
    until = time.monotonic() + 60
    while not begun.exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    driver.send_signal(signal.SIGINT)
    _, said = driver.communicate(timeout=30)
    assert driver.returncode == 130 and "interrupted: stubborn" in said
    step = project.plan()["stubborn"]
    (attempt,) = project.store.attempts(step.address)
    assert (attempt.status, step.action) == ("interrupted", "resume")
    assert holder(project.store, step.content_key) is None
