"""One attempt of one step, in the process that runs it: lease, code check, call, digests, record last.

Invariant: the artifact's record is written by the holder of the lease and as the last thing; whatever else happens,
the attempt's own record and log say what did.
"""

import dataclasses
import errno
import json
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from executor import context
from executor.capture import Log, captured, tail
from executor.changes import code_drift
from executor.code import forget, reach
from executor.control import Control, Interrupted
from executor.errors import LeaseLost, MarinadeError, StepHalted
from executor.external import is_raw, look, verify
from executor.files import LocalFiles
from executor.identity import hash_json
from executor.lease import Holder, Lease
from executor.milestones import counts, unpublished
from executor.record import FileRecord, MilestoneRecord, Record, digest_of_files, files_under
from executor.secrets import redact, redact_json, reveal
from executor.store import IndexEntry, Store, new_id, now
from executor.task import Answer, Message, Progress, Published, Started, Task, Waiting

_LARGEST_OPAQUE_BYTES = 64 << 20
_PROGRESS_SECONDS = 0.5
_UPLOAD_SECONDS = 20.0

Emit = Callable[[Message], None]


def run_task(task: Task, emit: Emit, control: Control, *, descriptors: bool) -> Answer:
    """Run a step, or find that somebody else did meanwhile. Exceptions of the step end up in the answer."""
    for name in task.secrets:
        reveal(os.environ.get(name, ""))
    store = Store(task.prefix)
    attempt = new_id()

    def waiting(holder: Holder) -> None:
        emit(Waiting(reason=f"running elsewhere (host {holder.host}, process {holder.pid}, attempt {holder.attempt})"))

    try:
        lease = Lease.acquire(
            store, task.content_key, name=task.name, attempt=attempt, waiting=waiting, give_up=control.stopped
        )
    except OSError as error:
        return Answer(status="failed", error=_in_words(task, error), traceback=redact(traceback.format_exc()))
    if lease is None:
        return Answer(status="interrupted", error="interrupted while it waited for another process")
    try:
        found = _found(store, task)
        if found is not None:
            return found
        return _Attempt(task, store, lease, attempt, emit, control).run(descriptors)
    finally:
        try:
            lease.release()
        except OSError as error:  # the next one takes over from a process that is gone, or a beat that stands still
            print(f"lease of {task.name} not released: {error}", file=sys.stderr)


def _found(store: Store, task: Task) -> Answer | None:
    """The result, if it came to be while we waited for the lease, or is there but for its last record."""
    if task.stop_at is not None:
        return None if unpublished(store, task) else Answer(status="reused", address=task.address)
    record = store.find_content(task.name, task.content_key)
    if record is None:
        record = next((one for one in store.attempts(task.address) if _completes(one, task)), None)
        if record is not None and not store.absent(record):
            store.commit(record)  # its process ended between its own record and the one that counts
    if record is None or record.attempt == task.superseded or store.absent(record):
        return None
    store.enter(task.recipe_key, IndexEntry(content_key=task.content_key, address=record.address))
    return Answer(status="reused", attempt=record.attempt, address=record.address, record=record.to_json())


def _completes(record: Record, task: Task) -> bool:
    counts = record.attempt != task.superseded and record.attempt >= task.not_before
    return record.finished and record.content_key == task.content_key and counts


class _Attempt:
    def __init__(self, task: Task, store: Store, lease: Lease, attempt: str, emit: Emit, control: Control) -> None:
        self.task, self.store, self.lease, self.attempt = task, store, lease, attempt
        self.emit, self.control = emit, control
        self.output = store.location(task.address, attempt)
        self.published: dict[int, MilestoneRecord] = {}
        self.started = time.monotonic()
        self.last_progress = 0.0
        self.log_path = ""
        self.record = Record(
            name=task.name,
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
            provenance=redact_json({**task.provenance, "host": socket.gethostname(), "pid": os.getpid()}),
        )

    def run(self, descriptors: bool) -> Answer:
        record, error, trace = self.record, "", ""
        try:
            self.control.begin(self._abandon)
            self.lease.on_lost = self.control.lose
            earlier = self._earlier()
            number = 1 + max((found.number for found in self.store.attempts(record.address)), default=0)
            self.record = record = dataclasses.replace(record, number=number)
            self.store.write_attempt(record)
            self.emit(Started(attempt=self.attempt, address=record.address, host=socket.gethostname(), pid=os.getpid()))
            self._check_code()
            for step, raw in self.task.raw:
                verify(step, raw.location)
            log = self._open_log()
            try:
                with captured(log, descriptors=descriptors):
                    result = self._call(earlier)
            finally:
                log.close()
            self.control.end()  # from here on nothing interrupts: the rest is short and must be whole
            record = self._finish(result)
        except (Interrupted, KeyboardInterrupt) as stop:
            lost = self.lease.lost
            error = lost or "interrupted"
            record = dataclasses.replace(record, status="interrupted", error=error)
            if isinstance(stop, KeyboardInterrupt):
                self.control.end()
                self.control.stop()
        except StepHalted as halt:
            record = dataclasses.replace(record, status="halted", error=redact(str(halt)))
        except LeaseLost as lost:
            record = dataclasses.replace(record, status="interrupted", error=str(lost))
            self.lease.lost = self.lease.lost or str(lost)
        except BaseException as failure:  # SystemExit of a step is a failure like any other
            error, trace = redact(_in_words(self.task, failure)), redact(_trace(failure))
            record = dataclasses.replace(record, status="failed", error=f"{error}\n\n{trace}")
        finally:
            self.control.end()
            context.enter(None)
        return self._answer(record, error or record.error, trace)

    def _call(self, earlier: tuple[str, ...]) -> Any:
        task = self.task
        context.enter(
            context.StepContext(
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
            )
        )
        if isinstance(self.store.files, LocalFiles):
            os.makedirs(self.output, exist_ok=True)
        try:
            return task.function(task.config, self.output)
        except BaseException as failure:
            # Printed while the log is still open, so that the log alone tells the story.
            if not isinstance(failure, Interrupted | KeyboardInterrupt | StepHalted | LeaseLost):
                print(redact(_trace(failure)), file=sys.stderr, flush=True)
            raise

    def _earlier(self) -> tuple[str, ...]:
        """Output folders to resume from, newest first. Attempts still called running are dead: the lease is ours."""
        folders = []
        for record in self.store.attempts(self.task.address):
            if record.status == "running":
                error = "the process that ran it ended without a word (killed, out of memory, or its machine lost)"
                self.store.write_attempt(dataclasses.replace(record, status="interrupted", error=error, ended=now()))
            if record.attempt >= self.task.not_before and self.store.has_files(record.address, record.attempt):
                folders.append(self.store.location(record.address, record.attempt))
        return tuple(folders)

    def _check_code(self) -> None:
        forget()
        code = reach(self.task.things)
        drift = code_drift(self.task.code, code.fingerprints)
        if drift:
            raise MarinadeError(
                f"step {self.task.name}: its code here is not the code that was planned ({', '.join(drift[:5])}"
                f"{', ...' if len(drift) > 5 else ''}): it was edited meanwhile, or this worker has other files; "
                "run again"
            )
        sources = reach((*self.task.things, *self.task.outside)).sources
        self.store.write_source(self.task.address, self.attempt, sources)

    def _progress(self, done: float, total: float, unit: str, metrics: dict[str, Any]) -> None:
        self.control.check()
        moment = time.monotonic()
        if moment - self.last_progress >= _PROGRESS_SECONDS or done >= total:
            self.last_progress = moment
            plain = {name: _plain(value) for name, value in metrics.items()}
            self.emit(Progress(done=float(done), total=float(total), unit=unit, metrics=plain))

    def _publish(self, at: int, part: str, result: dict[str, Any] | None) -> None:
        self.lease.check()
        folder = f"{self.attempt}/{part}" if part else self.attempt
        files = self._manifest(folder, opaque_bytes=0)
        if not files:
            raise MarinadeError(
                f"step {self.task.name}: milestone {at} has no files: {part!r} under its output is empty"
            )
        digest = digest_of_files(files) or ""
        if self.task.opaque:
            digest = "attempt:" + hash_json([self.task.content_key, self.attempt, at])
        record = MilestoneRecord(
            at=at,
            name=self.task.name,
            address=self.task.address,
            attempt=self.attempt,
            part=part,
            recipe_key=self.task.recipe_key,
            content_key=self.task.content_key,
            digest=digest,
            files=files,
            result=result,
            published=now(),
        )
        if not self.store.publish(record):
            before = self.store.milestones(self.task.address)[at]
            if counts(self.store, self.task, before):
                record = before
            else:
                self.store.publish(record, replace=True)
        self.published[at] = record
        self.emit(Published(record=record.to_json()))

    def _manifest(self, folder: str, *, opaque_bytes: int) -> tuple[FileRecord, ...]:
        """Digest of every file; files of opaque steps larger than `opaque_bytes` are known by their attempt instead."""
        found = self.store.find(self.task.address, folder)

        def record(path: str) -> FileRecord:
            info = found[path]
            if self.task.opaque and info.size > opaque_bytes:
                digest = f"attempt:{self.attempt}"
            else:
                base = f"{self.task.address}/{folder}"
                digest = self.store.files.digest(f"{base}/{path}" if path else base, info)
            return FileRecord(path=path, size=info.size, digest=digest)

        return tuple(self.store.files.each(record, sorted(found)).values())

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
        seconds = round(time.monotonic() - self.started, 3)
        record = dataclasses.replace(
            self.record,
            result=result,
            milestones=tuple(sorted(self.published)),
            ended=now(),
            wall_seconds=seconds,
            events=(),
        )
        if task.stop_at is not None:
            return dataclasses.replace(record, status="stopped_at_milestone")
        files = self._manifest(self.attempt, opaque_bytes=_LARGEST_OPAQUE_BYTES)
        for part, consumer in task.parts.items():
            if not files_under(files, part):
                wrote = ", ".join(file.path for file in files[:8]) or "nothing"
                raise MarinadeError(
                    f"step {task.name} returned without writing {part!r}, which step {consumer} reads; "
                    f"it wrote {wrote}{', ...' if len(files) > 8 else ''}"
                )
        digest = digest_of_files(files) or "sha256:" + hash_json([])
        if task.opaque:
            digest = "attempt:" + hash_json([task.content_key, self.attempt])
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

    def _open_log(self) -> Log:
        folder = self.store.log_dir(self.task.address, self.attempt)
        if not isinstance(self.store.files, LocalFiles):
            import tempfile

            folder = tempfile.mkdtemp(prefix="marinade-log-")
        self.log_path = f"{folder}/log.txt"
        return Log(self.log_path)

    def _answer(self, record: Record, error: str, trace: str) -> Answer:
        """Write how the attempt ended; a record that cannot be written is said, not swallowed."""
        if not record.ended:
            seconds = round(time.monotonic() - self.started, 3)
            record = dataclasses.replace(
                record, ended=now(), wall_seconds=seconds, milestones=tuple(sorted(self.published))
            )
        text = self._log_text()
        try:
            self._upload_log(text)
            if record.finished:
                self.lease.check()
                self.store.commit(record)
            else:
                self.store.write_attempt(record)
        except LeaseLost as lost:
            record, error = dataclasses.replace(record, status="interrupted"), str(lost)
            self.lease.lost = self.lease.lost or error
        except OSError as failure:
            said = redact(_in_words(self.task, failure))
            error = f"{error}\n(and its record could not be written: {said})" if error else said
            trace = trace or redact(_trace(failure))
            record = dataclasses.replace(record, status="failed" if record.finished else record.status)
        status: Any = "lease_lost" if self.lease.lost else record.status
        return Answer(
            status=status,
            attempt=self.attempt,
            address=record.address,
            record=record.to_json() if status == "succeeded" else "",
            error=error,
            traceback=trace,
            log=f"{self.store.log_dir(record.address, self.attempt)}/log.txt",
            log_tail=tail(text),
            seconds=record.wall_seconds,
            result=record.result,
        )

    def _log_text(self) -> str:
        try:
            with open(self.log_path, errors="replace") as file:
                return file.read()
        except OSError:  # it failed before there was a log
            return ""

    def _upload_log(self, text: str) -> None:
        if text and not isinstance(self.store.files, LocalFiles):
            self.store.files.write(f"{self.task.address}/.step/attempts/{self.attempt}/log.txt", text.encode())

    def _abandon(self) -> None:
        """Called from another thread when the step does not let itself be interrupted."""
        record = dataclasses.replace(self.record, status="interrupted", error="interrupted", ended=now())
        self.store.write_attempt(record)
        self.lease.release()


def _trace(failure: BaseException) -> str:
    return "".join(traceback.format_exception(failure))


def _in_words(task: Task, failure: BaseException) -> str:
    """The failure in one line that names the step, and what to do where that is known."""
    if isinstance(failure, OSError) and failure.errno in (errno.ENOSPC, errno.EDQUOT):
        at = f" while writing {failure.filename}" if failure.filename else ""
        return (
            f"step {task.name}: no space left on device{at}; free some space for {task.prefix} and run again, "
            "finished steps are kept"
        )
    text = str(failure)
    if isinstance(failure, MarinadeError) and text:
        return text if task.name in text else f"step {task.name}: {text}"
    if isinstance(failure, MemoryError):
        text = text or "out of memory"
    return (
        f"step {task.name}: {type(failure).__name__}: {text}" if text else f"step {task.name}: {type(failure).__name__}"
    )


def _plain(value: Any) -> Any:
    """A metric as JSON: numbers of array libraries become Python's."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    item = getattr(value, "item", None)
    return item() if callable(item) else str(value)
