# ruff: noqa: E501 - a recipe as text
"""What faults are tried on: a pipeline of four steps, one of which trains; and the table of what survived.

`toy` is that pipeline in a temporary folder, run by real processes that can be killed or suspended at a failpoint.
Every call of a step's function leaves a line in the file `calls`, which lies outside of the store. A test carries
`@pytest.mark.fault("what was done")`; the end of the session counts, for each, how many were tried and survived.
"""

import collections
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from executor.storage.lease import holder
from executor.storage.record import Record

RECIPE = """
    def note(line):
        with open(os.environ.get("TOY_CALLS", "calls"), "a") as file:
            file.write(line + "\\n")

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config:
        lines: int = 3

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Training:
        data: Input
        steps: int = 4
        seconds: float = execution(0.0)

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Reading:
        weights: Input
        also: Input | None = None

    def source(config, output):
        note("source")
        put(f"{output}/text", "line " * config.lines)

    def save(folder, text):
        put(f"{folder}.part/state", text)
        os.rename(f"{folder}.part", folder)

    def newest(folders):
        for folder in folders:
            done = sorted(name for name in os.listdir(folder) if name.startswith("at-") and not name.endswith(".part"))
            if done:
                return int(done[-1][3:]), get(f"{folder}/{done[-1]}/state")
        return 0, ""

    def train(config, output):
        begin, state = newest(current().earlier_attempts)
        note(f"train {begin}")
        state = state or get(f"{config.data}/text")
        owed = set(current().unpublished)
        for step in range(begin, config.steps + 1):
            if step > begin:
                state += str(step)
            if step > begin or step in owed:
                save(f"{output}/at-{step}", state)
            if step in owed:
                current().publish(step, f"at-{step}")
            current().progress(step, config.steps)
            time.sleep(config.seconds)
        put(f"{output}/final", state)
        return {"begin": begin}

    def read(config, output):
        note("late" if config.also else "early")
        name = "final" if config.also else "state"
        put(f"{output}/seen", get(f"{config.weights}/{name}") + (" after " + get(f"{config.also}/seen") if config.also else ""))

    @dataclasses.dataclass(frozen=True)
    class Settings(Scales):
        lines: int = 3
        seconds: float = 0.0

    def build(settings: Settings):
        needs = Resources(environment={"TOY_WORKER": "1"} if os.environ.get("TOY_ONCE") else {})
        text = Step("source", source, Config(lines=settings.lines), resources=needs)
        training = Step("train", train, Training(data=text, seconds=settings.seconds), digest="opaque", code="pin", resources=needs)
        early = Step("early", read, Reading(weights=training.at_step(2)), resources=needs)
        late = Step("late", read, Reading(weights=training, also=early), resources=needs)
        return Experiment(targets=(late,))

    if __name__ == "__main__":
        main(build)
    """


class Toy:
    """The pipeline, run here or by processes of their own."""

    def __init__(self, project) -> None:
        self.project = project
        self.store, self.plan, self.run = project.store, project.plan, project.run

    def start(
        self, *arguments: str, failpoint: str = "", recipe: str = "toy_recipe.py", **environment: str
    ) -> subprocess.Popen:
        """`python toy_recipe.py --inline ...` in a process of its own, with a failpoint."""
        root = Path(__file__).resolve().parents[2]
        path = os.pathsep.join([*filter(None, [environment.pop("PYTHONPATH", "")]), str(root)])
        return subprocess.Popen(
            [sys.executable, recipe, *(arguments or ("--inline",))],
            cwd=self.project.root,
            env={
                **os.environ,
                "PYTHONPATH": path,
                "MARINADE_PREFIX": self.project.prefix,
                "MARINADE_FAILPOINT": failpoint,
                **environment,
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def killed(self, failpoint: str, *arguments: str, **environment: str) -> None:
        """A process that dies by SIGKILL at the failpoint; the test fails where the failpoint is not reached."""
        process = self.start(*arguments, failpoint=failpoint, **environment)
        assert process.wait(timeout=60) == -signal.SIGKILL, f"failpoint {failpoint} was not reached"

    def suspended(self, failpoint: str, *arguments: str) -> subprocess.Popen:
        """A process that is stopped at the failpoint and still there."""
        process = self.start(*arguments, failpoint=f"{failpoint}:STOP")
        until = time.monotonic() + 60
        while _state(process.pid) != "T":
            assert process.poll() is None and time.monotonic() < until, f"failpoint {failpoint} was not reached"
            time.sleep(0.01)
        return process

    def calls(self) -> list[str]:
        """Every call of a step's function so far."""
        path = self.project.root / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def record(self, name: str) -> Record:
        """The record of the artifact that a plan serves for a step."""
        step = self.plan()[name]
        record = self.store.record(step.address)
        assert step.action == "reuse" and record is not None
        return record

    def attempts(self, name: str) -> list[tuple[int, str]]:
        """Number and status of every attempt of a step, first to last, wherever they lie."""
        found = []
        for folder in Path(self.project.prefix).glob(f"{name}-*"):
            found += [(one.number, one.status) for one in self.store.attempts(folder.name)]
        return sorted(found)

    def check_nothing_unfinished_is_served(self) -> None:
        """What a plan reuses has a record that says succeeded, and all its files; what is running nowhere says so."""
        for step in self.plan().values():
            assert step.action != "wait", f"{step.name}: its process is gone"
            if step.action == "reuse":
                record = self.store.record(step.address)
                assert record is not None and record.finished, step.name
                assert not self.store.absent(record), step.name

    def check_finished(self, lines: int = 3) -> None:
        """Everything is there and right, no lease is held, and one more run does nothing."""
        text = "line " * lines
        late = self.record("late")
        seen = (Path(self.store.location(late.address, late.attempt)) / "seen").read_text()
        assert seen == f"{text}1234 after {text}12"
        train = self.record("train")
        (weights,) = [one for one in late.inputs if one.step == "train"]
        assert (weights.digest, weights.location) == (train.digest, self.store.location(train.address, train.attempt))
        for step in self.plan().values():
            assert step.action == "reuse", step.name
            assert holder(self.store, step.content_key) is None, step.name
        before = self.calls()
        again = self.run()
        assert again.exit_code == 0 and {step.status for step in again.steps.values()} == {"reused"}
        assert self.calls() == before


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


@pytest.fixture
def toy(project, monkeypatch):
    monkeypatch.delenv("MARINADE_FAILPOINT", raising=False)
    project.write("toy_recipe.py", RECIPE)
    return Toy(project)


def pytest_configure(config) -> None:
    config.addinivalue_line("markers", "fault(what): a fault that is injected on purpose; counted in the summary")


@pytest.fixture(autouse=True)
def _counted(request, record_property) -> None:
    marker = request.node.get_closest_marker("fault")
    if marker is not None:
        record_property("fault", marker.args[0])


def pytest_terminal_summary(terminalreporter) -> None:
    """The fault matrix: what was done, how often, and how often everything promised held."""
    tried: dict[str, collections.Counter[str]] = {}
    for outcome in ("passed", "failed", "skipped"):
        for report in terminalreporter.stats.get(outcome, []):
            fault = dict(getattr(report, "user_properties", ())).get("fault")
            if fault is not None and (report.when == "call" or outcome != "passed"):
                tried.setdefault(fault, collections.Counter())[outcome] += 1
    if not tried:
        return
    terminalreporter.section("faults")
    width = max(map(len, tried))
    terminalreporter.write_line(f"{'fault':{width}}  tried  survived")
    for fault, counts in sorted(tried.items()):
        total = counts["passed"] + counts["failed"]
        terminalreporter.write_line(f"{fault:{width}}  {total:5}  {counts['passed']:8}")
