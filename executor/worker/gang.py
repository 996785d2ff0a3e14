"""The processes of one step that runs on several hosts: process 0 leads, the others run the same function.

Process 0 is an attempt like any other: it holds the lease, reports, writes the record. Once its attempt has begun it
calls the others, each on its own host, with what it was told and where to meet; how they run together is the
function's affair (JAX's distributed runtime, for training). When one ends with an error or is lost, process 0 ends too,
and with it all the others: none of them could go on alone, and a collective that waits for a dead one never returns.
"""

import contextlib
import dataclasses
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Protocol

from executor import context
from executor.context import StepContext
from executor.errors import MarinadeError, StepHalted
from executor.keys.code import forget
from executor.retry import Failure, classify
from executor.secrets import reveal, reveal_environment
from executor.storage.store import Store
from executor.worker.attempt_log import AttemptLog
from executor.worker.capture import captured
from executor.worker.control import Control, Interrupted
from executor.worker.failure import in_words, trace_of
from executor.worker.planned_code import check_code
from executor.worker.task import Answer, Task

_LOOK_SECONDS = 1.0
_CALL_ON_SECONDS = 10.0
_OWN_END_SECONDS = 10.0
"""How long process 0 has to fail by itself, usually for the same reason, when another one has."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ended:
    """How one of the other processes ended; `error` is empty where its function returned, or ended because all were
    asked to (`stopped`)."""

    process: int
    stopped: bool = False
    error: str = ""
    traceback: str = ""
    failure: Failure = "exception"


class Others(Protocol):
    """Processes 1 and up, as process 0 reaches them."""

    size: int
    host: str
    """Address of process 0's own host."""

    def call(self, contexts: list[StepContext]) -> None:
        """Start the function on all of them; each has the task already."""
        ...

    def ended(self, seconds: float) -> list[Ended]:
        """Those that ended since the last look, after at most so many seconds."""
        ...

    def call_on(self) -> None:
        """Process 0 is alive: a process that does not hear this for a while ends itself."""
        ...


class Gang:
    """Process 0's hold on the others. `hung(answer)` is called when its own function cannot be ended."""

    def __init__(self, others: Others, control: Control, hung: Callable[[Answer], None]) -> None:
        self._others, self._control, self._hung = others, control, hung
        self._broken: Ended | None = None
        self._returned = 0
        self._changed = threading.Condition()

    def assembled(self, own: StepContext) -> StepContext:
        """Call the others into an attempt that has begun; returns its context with what process 0 has to know."""
        size, plain = self._others.size, own.told_to_others()
        coordinator = f"{self._others.host}:{_free_port(self._others.host)}"
        self._others.call(
            [dataclasses.replace(plain, process=n, processes=size, coordinator=coordinator) for n in range(1, size)]
        )
        threading.Thread(target=self._watch, daemon=True, name="gang").start()
        return dataclasses.replace(own, processes=size, coordinator=coordinator)

    def join(self) -> None:
        """Wait until the function has returned everywhere.

        Raises:
            MarinadeError: somewhere it has not.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._broken or self._returned == self._others.size - 1)
        if self._broken is not None:
            raise MarinadeError(self._words(self._broken))

    def verdict(self, answer: Answer) -> Answer:
        """What process 0 has to say, in the light of how the others ended."""
        own_error = answer.status == "failed" and answer.failure == "exception"
        if own_error or (answer.status == "interrupted" and not self._control.stopped()):
            with self._changed:  # its error may be no more than the sign of a lost process that is not known yet
                self._changed.wait_for(lambda: self._broken, timeout=_OWN_END_SECONDS)
        broken = self._broken
        if broken is None or answer.status not in ("failed", "interrupted"):
            return answer
        error = self._words(broken)
        if own_error and broken.failure == "exception":
            return dataclasses.replace(answer, error=f"{answer.error}\n({error})")
        trace = broken.traceback or answer.traceback
        return dataclasses.replace(answer, status="failed", failure=broken.failure, error=error, traceback=trace)

    def _watch(self) -> None:
        called = time.monotonic()
        while self._returned < self._others.size - 1:
            for ended in self._others.ended(_LOOK_SECONDS):
                if ended.error:
                    self._break_up(ended)
                    return
                with self._changed:
                    self._returned += 1
                    self._changed.notify_all()
            if time.monotonic() - called > _CALL_ON_SECONDS:
                called = time.monotonic()
                self._others.call_on()

    def _break_up(self, ended: Ended) -> None:
        with self._changed:
            self._broken = ended
            self._changed.notify_all()
        if ended.failure == "exception" and self._control.ends_within(_OWN_END_SECONDS):
            return
        self._control.reason = self._words(ended)
        if not self._control.stop_in_time(patient=False):
            self._hung(self.verdict(Answer(status="interrupted")))

    def _words(self, ended: Ended) -> str:
        return f"process {ended.process} of {self._others.size} ended: {ended.error}"


def run_member(task: Task, told: StepContext, control: Control) -> Ended:
    """Run a step's function as one of the other processes; how it ended is in the answer."""
    reveal_environment()
    store = Store(task.prefix)
    here = dataclasses.replace(
        told,
        on_note=_print_note,
        on_grace=control.save_on_stop,
        is_stopping=control.stopped,
        on_stop=control.end_now,
    )
    log = AttemptLog(store, task.address, told.attempt, file=f"log-{told.process}.txt")
    try:
        for name in task.secrets:
            reveal(os.environ.get(name, ""))
        forget()
        check_code(task)
        with contextlib.closing(log), captured(log.log, descriptors=True):
            context.enter(here)
            control.begin(lambda: None)
            task.function(task.config, told.output)
    except (Interrupted, StepHalted):  # all end so together, and process 0 says why
        return Ended(process=told.process, stopped=True)
    except BaseException as raised:
        error, trace = in_words(task, raised), trace_of(raised)
        return Ended(process=told.process, error=error, traceback=trace, failure=classify(raised, own=True))
    finally:
        control.end()
        context.enter(None)
        with contextlib.suppress(Exception):  # a log that cannot be kept is not what the step is for
            log.copy()
    return Ended(process=told.process)


def _print_note(event: dict[str, object]) -> None:
    print(event["message"], flush=True)


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]
