"""One attempt of one step, in the process that runs it: lease, code check, call, digests, record last.

Invariant: the artifact's record is written by the holder of the lease and as the last thing; whatever else happens,
the attempt's own record and log say what did.
"""

import contextlib
import dataclasses
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from executor import context
from executor.errors import LeaseLost, MarinadeError, StepHalted
from executor.external import is_raw, look, verify
from executor.failpoints import reached
from executor.history.provenance import devices
from executor.keys.code import forget, reach
from executor.retry import Failure, classify
from executor.secrets import redact, redact_json, reveal, reveal_environment
from executor.storage.files import LocalFiles, together
from executor.storage.index import IndexEntry
from executor.storage.lease import Lease
from executor.storage.record import Record
from executor.storage.source import Source
from executor.storage.stamps import new_id, now
from executor.storage.store import Store
from executor.worker.attempt_log import AttemptLog
from executor.worker.capture import captured, tail
from executor.worker.control import Control, Interrupted
from executor.worker.failure import in_words, trace_of
from executor.worker.gang import Gang
from executor.worker.manifest import check_parts, digest_of, manifest
from executor.worker.milestones import publish, unpublished
from executor.worker.planned_code import check_code
from executor.worker.task import Answer, Message, Noted, Progress, Published, Started, Task

_PROGRESS_SECONDS = 0.5

Emit = Callable[[Message], None]


def run_task(
    task: Task,
    emit: Emit,
    control: Control,
    *,
    descriptors: bool,
    worker: str = "",
    where: Mapping[str, str] | None = None,
    gang: Gang | None = None,
) -> Answer:
    """Run a step, or find that somebody else did meanwhile. Exceptions of the step end up in the answer.

    `worker` is the name under which a cluster knows this process, `where` what the record is to say of its place there;
    `gang` are the other processes of a step that runs on several hosts.
    """
    reveal_environment()
    for name in task.secrets:
        reveal(os.environ.get(name, ""))
    store = Store(task.prefix)
    attempt = new_id()
    try:
        lease = Lease.take(
            store, task.content_key, name=task.name, attempt=attempt, worker=worker, after=task.lease_after
        )
    except Exception as error:
        return _failed(task, error)
    if not isinstance(lease, Lease):
        return Answer(status="held")
    reached("lease-taken")
    try:
        attempts = store.attempts(task.address)
        found = _found(store, task, attempts)
        if found is not None:
            return found
        return _Attempt(task, store, lease, attempt, emit, control, where or {}, gang).run(attempts, descriptors)
    except Exception as error:
        return _failed(task, error)
    finally:
        try:
            lease.release()
        except Exception as error:  # the next one takes over from a process that is gone, or a beat that stands still
            print(f"lease of {task.name} not released: {error}", file=sys.stderr)


def _failed(task: Task, error: Exception) -> Answer:
    """Nothing of the step's own went wrong: the engine could not begin or end."""
    failure = classify(error, own=False)
    return Answer(status="failed", failure=failure, error=in_words(task, error), traceback=trace_of(error))


def _found(store: Store, task: Task, attempts: tuple[Record, ...]) -> Answer | None:
    """The result, if it came to be before we had the lease, or is there but for its last record."""
    if task.stop_at is not None:
        return None if unpublished(store, task) else Answer(status="reused", address=task.address)
    record = store.find_content(task.name, task.content_key)
    if record is not None and task.afresh and record.content_key != task.content_key:
        record = None  # one that was accepted for this work, which is asked for anew
    if record is None:
        record = next((one for one in attempts if _completes(one, task)), None)
        if record is not None and not store.absent(record):
            store.commit(record)  # its process ended between its own record and the one that counts
    if record is None or record.attempt in task.superseded or store.absent(record):
        return None
    store.index.enter(task.recipe_key, IndexEntry(content_key=task.content_key, address=record.address))
    return Answer(status="reused", attempt=record.attempt, address=record.address, record=record.to_json())


def _completes(record: Record, task: Task) -> bool:
    return record.finished and record.content_key == task.content_key and record.attempt not in task.superseded


class _Attempt:
    def __init__(
        self,
        task: Task,
        store: Store,
        lease: Lease,
        attempt: str,
        emit: Emit,
        control: Control,
        where: Mapping[str, str],
        gang: Gang | None,
    ) -> None:
        self.task, self.store, self.lease, self.attempt = task, store, lease, attempt
        self.emit, self.control, self.gang = emit, control, gang
        self.output = store.location(task.address, attempt)
        self.published: set[int] = set()
        self.started = time.monotonic()
        self.last_progress = 0.0
        self.noting = threading.Lock()
        self.log: AttemptLog | None = None
        self.in_function = False
        self.record = Record(
            name=task.name,
            amends=task.amends,
            address=task.address,
            attempt=attempt,
            status="running",
            recipe_key=task.recipe_key,
            content_key=task.content_key,
            payload=redact_json(task.payload),
            execution_only=redact_json(task.execution_only),
            inputs=task.inputs,
            code=task.code,
            started=now(),
            resources=task.resources,
            provenance=redact_json({**task.provenance, "host": socket.gethostname(), "pid": os.getpid(), **where}),
        )

    def run(self, attempts: tuple[Record, ...], descriptors: bool) -> Answer:
        error, trace = "", ""
        failure: Failure = "exception"
        try:
            self.control.begin(self._abandon)
            self.lease.on_lost = self.control.lose
            earlier = self._begin(attempts)
            check_code(self.task)
            for step, raw in self.task.raw:
                verify(step, raw.location)
            result = self._call(earlier, descriptors)
            self.control.end()  # from here on nothing interrupts: the rest is short and must be whole
            reached("function-returned")
            record = self._finish(result)
        except (Interrupted, KeyboardInterrupt) as stop:
            why = self.lease.lost or self.control.reason
            record = dataclasses.replace(self.record, status="interrupted", error=why)
            if isinstance(stop, KeyboardInterrupt):
                self.control.end()
                self.control.stop()
        except StepHalted as halt:
            record = dataclasses.replace(self.record, status="halted", error=redact(str(halt)))
        except LeaseLost as lost:
            record = dataclasses.replace(self.record, status="interrupted", error=str(lost))
            self.lease.lost = self.lease.lost or str(lost)
        except BaseException as raised:  # SystemExit of a step is a failure like any other
            error, trace = in_words(self.task, raised), trace_of(raised)
            failure = classify(raised, own=self.in_function)
            record = dataclasses.replace(self.record, status="failed", error=f"{error}\n\n{trace}")
        finally:
            self.control.end()
            context.enter(None)
        return self._answer(record, failure, error or record.error, trace)

    def _begin(self, attempts: tuple[Record, ...]) -> tuple[str, ...]:
        """Put this attempt and its code on record. Returns outputs of earlier ones to resume from, newest first."""
        task, record = self.task, self.record
        number = 1 + max((found.number for found in attempts), default=0)
        self.record = record = dataclasses.replace(record, number=number)
        folders = []
        for found in attempts:
            if found.status == "running":  # the lease is ours, so it is dead
                error = "the process that ran it ended without a word (killed, out of memory, or its machine lost)"
                self.store.write_attempt(dataclasses.replace(found, status="interrupted", error=error, ended=now()))
            passed_over = task.afresh and found.attempt in task.superseded
            if not passed_over and self.store.has_files(found.address, found.attempt):
                folders.append(self.store.location(found.address, found.attempt))
        forget()
        sources = reach((*task.things, *task.outside)).sources
        writes = [self._index] if not attempts else []
        together(*writes, self._record_start, lambda: self._write_source(sources))
        self.emit(Started(attempt=self.attempt, address=record.address, host=socket.gethostname(), pid=os.getpid()))
        return tuple(folders)

    def _index(self) -> None:
        task = self.task
        self.store.index.enter_content(IndexEntry(content_key=task.content_key, address=task.address))
        reached("content-indexed")

    def _record_start(self) -> None:
        self.store.write_attempt(self.record)
        reached("attempt-recorded")

    def _write_source(self, functions: dict[str, str]) -> None:
        functions = {name: redact(text) for name, text in functions.items()}
        source = Source(functions=functions, patch=redact(self.task.patch), packages=self.task.packages)
        self.store.write_source(self.task.address, self.attempt, source)
        reached("source-written")

    def _call(self, earlier: tuple[str, ...], descriptors: bool) -> Any:
        task = self.task
        context.enter(self._context(earlier))
        if isinstance(self.store.files, LocalFiles):
            os.makedirs(self.output, exist_ok=True)
        self.log = AttemptLog(self.store, task.address, self.attempt)
        with contextlib.closing(self.log), captured(self.log.log, descriptors=descriptors):
            try:
                self.in_function = True
                reached("function-entered")
                if self.gang is not None:
                    context.enter(self.gang.assembled(context.current()))
                result = task.function(task.config, self.output)
                if self.gang is not None:
                    self.gang.join()
                self.in_function = False
                return result
            except BaseException as raised:
                # Printed while the log is still open, so that the log alone tells the story.
                if not isinstance(raised, Interrupted | KeyboardInterrupt | StepHalted | LeaseLost):
                    print(trace_of(raised), file=sys.stderr, flush=True)
                raise

    def _context(self, earlier: tuple[str, ...]) -> context.StepContext:
        task = self.task
        return context.StepContext(
            name=task.name,
            attempt=self.attempt,
            output=self.output,
            earlier_attempts=earlier,
            stop_at=task.stop_at,
            milestones=task.milestones,
            unpublished=unpublished(self.store, task),
            log_dir=self.store.log_dir(task.address, self.attempt),
            on_progress=self._progress,
            on_publish=self._publish,
            on_note=self._note,
            on_grace=self.control.save_on_stop,
            is_stopping=self.control.stopped,
            on_stop=self.control.end_now,
        )

    def _progress(self, done: float, total: float, unit: str, metrics: dict[str, Any]) -> None:
        self.control.check()
        moment = time.monotonic()
        if moment - self.last_progress >= _PROGRESS_SECONDS or done >= total:
            self.last_progress = moment
            plain = {name: _plain(value) for name, value in metrics.items()}
            self.emit(Progress(done=float(done), total=float(total), unit=unit, metrics=plain))

    def _publish(self, at: int, part: str, result: dict[str, Any] | None) -> None:
        record = publish(self.store, self.task, self.lease, self.attempt, at, part, result)
        self.published.add(at)
        self.emit(Published(record=record.to_json()))

    def _note(self, event: dict[str, Any]) -> None:
        """On record at once: what a step that is killed had seen is what one wants to know of it."""
        event = redact_json({"at": now(), **event})
        with self.noting:  # a step may note from a thread of its own
            self.record = dataclasses.replace(self.record, events=(*self.record.events, event))
            print(event["message"], flush=True)
            self.emit(Noted(event=event))
            try:
                self.store.write_attempt(self.record)
            except OSError as error:  # it is written again when the attempt ends
                print(f"the event is not on record yet: {error}", file=sys.stderr)

    def _finish(self, result: Any) -> Record:
        task = self.task
        self.lease.check()
        result = self._result(result)
        lacking = unpublished(self.store, task)
        if lacking:
            raise MarinadeError(
                f"step {task.name} returned without publishing milestone {lacking[0]}, which other steps need"
            )
        for step, raw in task.raw:
            after = look(step)
            if is_raw(step) and after.digest != raw.digest:
                raise MarinadeError(
                    f"step {task.name}: its input {step.name} ({redact(raw.location)}) changed while it was read; "
                    "run again"
                )
        record = dataclasses.replace(self.record, result=result)
        if task.stop_at is not None:
            return dataclasses.replace(record, status="stopped_at_milestone")
        files = manifest(self.store, task, self.attempt)
        reached("files-digested")
        check_parts(task, files)
        digest = digest_of(task, self.attempt, files)
        return dataclasses.replace(record, status="succeeded", files=files, digest=digest)

    def _result(self, result: Any) -> dict[str, Any] | None:
        if dataclasses.is_dataclass(result) and not isinstance(result, type):
            result = dataclasses.asdict(result)
        if result is not None and not isinstance(result, dict):
            raise MarinadeError(
                f"step {self.task.name} returned {type(result).__name__}; return a dict of JSON values or None"
            )
        try:
            return redact_json(json.loads(json.dumps(result)))
        except (TypeError, ValueError) as error:
            raise MarinadeError(f"step {self.task.name}: its result is not JSON: {error}") from error

    def _answer(self, record: Record, failure: Failure, error: str, trace: str) -> Answer:
        """Write how the attempt ended; a record that cannot be written is said, not swallowed."""
        seconds = round(time.monotonic() - self.started, 3)
        milestones = tuple(sorted(self.published))
        provenance = {**record.provenance, "devices": devices()}
        record = dataclasses.replace(
            record, ended=now(), wall_seconds=seconds, milestones=milestones, provenance=provenance
        )
        try:
            self._write(record)
        except LeaseLost as lost:
            record, error = dataclasses.replace(record, status="interrupted", error=str(lost)), str(lost)
            self.lease.lost = self.lease.lost or error
            self._withdraw(record)
        except Exception as raised:
            said = in_words(self.task, raised)
            if record.finished:
                failure, error, record = classify(raised, own=False), said, dataclasses.replace(record, status="failed")
            elif said != error:
                error = f"{error}\n(and its record could not be written: {said})"
            trace = trace or trace_of(raised)
        status: Any = "lease_lost" if self.lease.lost else record.status
        return Answer(
            status=status,
            attempt=self.attempt,
            address=record.address,
            record=record.to_json() if status == "succeeded" else "",
            failure=failure,
            error=error,
            traceback=trace,
            log=f"{self.store.log_dir(record.address, self.attempt)}/log.txt",
            log_tail=tail(self.log.text()) if self.log else "",
            seconds=record.wall_seconds,
            result=record.result,
        )

    def _write(self, record: Record) -> None:
        """The attempt's own record; where it succeeded the lease's end by it, and then the record that counts."""
        if self.log is not None:
            self.log.copy()
            reached("log-uploaded")
        self.store.write_attempt(record)
        if record.finished:
            reached("attempt-finished")
            self.lease.commit(self.attempt)
            reached("commit-sealed")
            self.store.commit(record)

    def _withdraw(self, record: Record) -> None:
        """The attempt is complete, but came too late; unless the one who took the lease over found it and used it."""
        counting = self.store.record(record.address)
        if counting is None or counting.attempt != self.attempt:
            self.store.write_attempt(record)

    def _abandon(self) -> None:
        """Called from another thread when the step does not let itself be interrupted."""
        record = dataclasses.replace(self.record, status="interrupted", error=self.control.reason, ended=now())
        self.store.write_attempt(record)
        self.lease.release()


def _plain(value: Any) -> Any:
    """A metric as JSON: numbers of array libraries become Python's."""
    if isinstance(value, str):
        return redact(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    item = getattr(value, "item", None)
    return item() if callable(item) else str(value)
