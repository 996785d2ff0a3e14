"""Steps run in this process, one after the other: for a debugger."""

import os
import sys
import time
from collections.abc import Iterable, Mapping

from executor.driver.backend import Deliver
from executor.driver.interruption import stopped_by_signals
from executor.driver.resources import local_capacity
from executor.errors import MarinadeError
from executor.step import Resources, Step
from executor.storage.lease import Holder
from executor.worker.attempt import run_task
from executor.worker.control import Control
from executor.worker.task import Task


class InlineBackend:
    """Runs the one started step when waited for."""

    def __init__(self, steps: Iterable[Step]) -> None:
        self.capacity = local_capacity()
        self._next: tuple[str, Task] | None = None
        _apply_environment({step.name: step.resources.environment for step in steps})

    def start(self, name: str, task: Task, resources: Resources) -> None:
        assert self._next is None, "one step at a time"
        self._next = (name, task)

    def attach(self, name: str, holder: Holder) -> bool:
        return False

    def wait(self, timeout_seconds: float | None, deliver: Deliver) -> None:
        if self._next is None:
            time.sleep(timeout_seconds or 0.0)
            return
        (name, task), self._next = self._next, None
        control = Control()
        with stopped_by_signals(control):
            answer = run_task(task, lambda message: deliver(name, message), control, descriptors=False)
        deliver(name, answer)
        if control.stopped():
            raise KeyboardInterrupt

    def stop(self, deliver: Deliver) -> None:
        self._next = None


def _apply_environment(wanted: dict[str, Mapping[str, str]]) -> None:
    """All steps share this process, so their environments must agree, and be set before JAX is imported."""
    merged: dict[str, tuple[str, str]] = {}
    for name, environment in wanted.items():
        for variable, value in environment.items():
            other, before = merged.setdefault(variable, (name, value))
            if before != value:
                raise MarinadeError(
                    f"--inline runs all steps in one process, but {other} needs {variable}={before} and {name} needs "
                    f"{variable}={value}; run them apart with --only, or without --inline"
                )
    different = {name: value for name, (_, value) in merged.items() if os.environ.get(name) != value}
    if different and "jax" in sys.modules:
        listed = ", ".join(f"{name}={value}" for name, value in different.items())
        raise MarinadeError(
            f"--inline: {listed} has to be set before JAX is imported, and this process has imported it already; "
            "set it in the shell, or run without --inline"
        )
    os.environ.update(different)
