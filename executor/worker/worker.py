"""The process that runs steps, one at a time, for as long as their environment stays the same.

The step's function runs in a thread of its own; the others tell drivers what it says, and can stop it or, if it does
not let itself be stopped, record that and end. On one machine the process ends with its driver, also when the driver
was killed without a word. On a cluster it outlives it: the step goes on under its lease, the next driver finds the
process by its name and listens, and when no driver has been heard of for a while and no step runs, it ends.
"""

import contextlib
import dataclasses
import os
import pickle
import select
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Literal

from executor.context import StepContext
from executor.recipe import load_module
from executor.retry import POLICIES
from executor.secrets import redact
from executor.storage.processes import Process, children, is_alive, machine, start_time
from executor.worker.attempt import run_task
from executor.worker.capture import log_to_stderr
from executor.worker.control import Control
from executor.worker.gang import Ended, Gang, Others, run_member
from executor.worker.messages import Messages
from executor.worker.preemption import on_preemption
from executor.worker.task import Answer, Message, Task

DRIVER_SECONDS = 90.0
"""A driver that has not been heard of for so long counts as gone; drivers call every fifth of it."""

_HEARD_SECONDS = 3.0
"""How long an answer may take on its way out of a process that ends."""
_PREEMPTED = f"{POLICIES['node_lost'].words}: its process was asked to end (SIGTERM)"


class Worker:
    """Lives in a worker process; drivers call it from outside.

    `modules` are recipes that lie outside of any package: module name -> file. `name` is what a cluster knows this
    process by, empty on a Ray of the driver's own, which has to end with it (`beside`: this process's siblings, too).
    `where` goes on record.
    """

    def __init__(
        self,
        modules: dict[str, str],
        driver: Process,
        name: str,
        owned: bool,
        where: dict[str, str],
    ) -> None:
        for module, file in modules.items():
            load_module(module, file)
        self._name, self._where = name, where
        self._control: Control | None = None
        self._messages: Messages | None = None
        self._heard: dict[str, float] = {"": time.monotonic()}
        self._end: Callable[[], None] = lambda: None
        self._preempted = False
        log_to_stderr()
        on_preemption(self._end_preempted)
        if name:
            watch, arguments = self._end_when_forgotten, ()
        else:
            beside = [(pid, start_time(pid)) for pid in children(os.getppid())] if owned else []
            watch, arguments = _end_with, (driver, beside)
        threading.Thread(target=watch, args=arguments, daemon=True, name="driver watch").start()

    def run(
        self, payload: bytes, others: Others | None = None, end: Callable[[], None] = lambda: None
    ) -> Iterator[tuple[Message, ...]]:
        """Run one step; its messages, an answer last.

        `others` are the processes that run it with this one; `end` gives back their hosts, should it fall to this one.
        """
        messages = self._messages = Messages()
        control = self._control = Control()
        gang = Gang(others, control, messages.put) if others is not None else None
        self._end = end

        def work() -> None:
            try:
                task: Task = pickle.loads(payload)
                answer = run_task(
                    task, messages.put, control, descriptors=True, worker=self._name, where=self._where, gang=gang
                )
            except BaseException as error:  # whatever it is, the driver has to hear of it
                answer = Answer(status="failed", error=redact(repr(error)), traceback=redact(traceback.format_exc()))
            control.finished()
            answer = gang.verdict(answer) if gang else answer
            if self._preempted and answer.status == "interrupted":
                answer = dataclasses.replace(answer, status="failed", failure="node_lost", error=_PREEMPTED)
            messages.put(answer)

        threading.Thread(target=work, daemon=True, name="step").start()
        yield from messages.listen()

    def join(self, payload: bytes, told: StepContext) -> Ended:
        """Run a step as one of its other processes, until it ends."""
        ended: list[Ended] = []
        control = self._control = Control()

        def work() -> None:
            ended.append(run_member(pickle.loads(payload), told, control))
            control.finished()

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join()
        if self._preempted and ended[0].stopped:
            return Ended(process=told.process, error=_PREEMPTED, failure="node_lost")
        return ended[0]

    def follow(self) -> Iterator[tuple[Message, ...]]:
        """The messages of the step that another driver started; nothing where there is none."""
        if self._messages is not None:
            yield from self._messages.listen()

    def here(self, driver: str) -> None:
        """A driver says that it is there."""
        self._heard[driver] = time.monotonic()

    def leave(self, driver: str) -> None:
        """A driver has heard what it wanted to hear: with no other there, this process need not wait for one."""
        self._heard.pop(driver, None)

    def stop(self, driver: str, *, patient: bool) -> Literal["stopped", "abandoned", "left"]:
        """Stop what runs, unless another driver is listening too."""
        self._heard.pop(driver, None)
        if any(self._is_there(other) for other in self._heard if other):
            return "left"
        control = self._control
        stopped = control is None or control.stop_in_time(patient=patient)
        _end_children()
        return "stopped" if stopped else "abandoned"

    def _end_preempted(self) -> None:
        """Let the step save, let it be heard that it ended, and end."""
        self._preempted = True
        control = self._control
        if control is not None and not control.ends_within(0):
            control.reason = _PREEMPTED
            if not control.stop_in_time(patient=True) and self._messages is not None:
                self._messages.put(Answer(status="failed", failure="node_lost", error=_PREEMPTED))
            time.sleep(_HEARD_SECONDS)
        _end_children()
        os._exit(128 + signal.SIGTERM)

    def _is_there(self, driver: str) -> bool:
        return time.monotonic() - self._heard[driver] < DRIVER_SECONDS

    def _end_when_forgotten(self) -> None:
        while True:
            time.sleep(DRIVER_SECONDS / 20)
            runs = self._messages is not None and not self._messages.ended
            if not runs and not any(self._is_there(driver) for driver in list(self._heard)):
                _end_children()
                self._end()
                os._exit(0)


def _end_with(driver: Process, beside: list[tuple[int, str | None]]) -> None:
    """End this process, what it started, and its siblings (Ray's agents), when the driver on this machine is gone."""
    if driver.machine != machine():
        return
    handle = None
    with contextlib.suppress(OSError, AttributeError):
        handle = os.pidfd_open(driver.pid)
    while is_alive(driver):
        if handle is not None:
            select.select([handle], [], [])
            break
        time.sleep(1.0)
    _end_children()
    for pid, started in beside:
        if pid != os.getpid() and start_time(pid) == started:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
    os._exit(1)


def _end_children() -> None:
    for pid in children(os.getpid()):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
