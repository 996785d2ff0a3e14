"""A plan, run: steps start as their inputs are committed and the machine allows.

The driver waits on messages of the workers and never looks into the store to learn how they are. A failing step stops
its dependents and nothing else. A step whose content key turns out to have an artifact is not run (early cutoff). A
step that another driver runs occupies no worker here: where the cluster leads to its process the driver listens to
that, else it looks at the lease now and then.
"""

import dataclasses
import time
from collections.abc import Callable

from executor.driver.assignment import task_for
from executor.driver.backend import Backend
from executor.driver.events import (
    Event,
    StepFailed,
    StepFinished,
    StepNoted,
    StepOutcome,
    StepProgress,
    StepReused,
    StepStarted,
    StepWaiting,
)
from executor.driver.ready import Ready
from executor.errors import MarinadeError
from executor.external import is_raw
from executor.history.provenance import Provenance
from executor.planning.planner import Prepared
from executor.retry import POLICIES, Failure, Restarts
from executor.step import Resources
from executor.storage.index import IndexEntry
from executor.storage.lease import Holder, Watch
from executor.storage.record import MilestoneRecord, Record
from executor.storage.stamps import now
from executor.worker.capture import tail
from executor.worker.task import Answer, Message, Noted, Progress, Published, Started

_WATCH_SECONDS = 0.5


class Scheduler:
    """One run of one plan."""

    def __init__(
        self,
        prepared: Prepared,
        backend: Backend,
        listener: Callable[[Event], None],
        *,
        provenance: Provenance | None,
        fail_fast: bool = False,
        max_parallel: int | None = None,
    ) -> None:
        self.prepared, self.backend, self.listener = prepared, backend, listener
        self.graph, self.results, self.store = prepared.graph, prepared.results, prepared.results.store
        self.planned = prepared.planned
        self.provenance, self.fail_fast, self.max_parallel = provenance, fail_fast, max_parallel
        self.outcomes: dict[str, StepOutcome] = {}
        self.ready = Ready(self.planned)
        self.pending: dict[str, set[str]] = {}
        self.running: dict[str, Resources] = {}
        self.attached: set[str] = set()
        self.restarts: dict[str, Restarts] = {}
        self.watches: dict[str, Watch] = {}
        self.told: dict[str, Holder] = {}
        self.later: dict[str, float] = {}
        self.interrupted = False

    def run(self) -> dict[str, StepOutcome]:
        try:
            self._begin()
            while self.ready or self.running or self.later:
                self._dispatch()
                if not self.running and not self.later:
                    break
                self.backend.wait(self._until_later(), self._deliver)
                self._release_later()
                if self.fail_fast and any(outcome.status == "failed" for outcome in self.outcomes.values()):
                    self.ready.clear()
                    self.later.clear()
                    self.backend.stop(self._deliver)
                    break
        except KeyboardInterrupt:
            self.interrupted = True
            self.backend.stop(self._deliver)
        for name in self.planned:
            if name not in self.outcomes:
                self.outcomes[name] = self._not_run(name)
        return self.outcomes

    def _begin(self) -> None:
        entries: dict[str, IndexEntry] = {}
        contents: list[IndexEntry] = []
        for name in self.prepared.unindexed:
            record = self.results.of(name).record
            assert record is not None
            entry = IndexEntry(content_key=self._content_key(name), address=record.address)
            entries[self.graph.keys[name]] = entry
            contents.append(IndexEntry(content_key=record.content_key, address=record.address))
        self.store.index.enter_all(entries, contents)
        for name, step in self.planned.items():
            if step.action == "reuse" or is_raw(step.step):
                self._reuse(name)
        for name, step in self.planned.items():
            if name in self.outcomes or step.action in ("halted", "blocked"):
                continue
            sources = {ref.step for ref in self.graph.inputs[name]}
            self.pending[name] = {source for source in sources if not self._is_committed(source)}
            if not self.pending[name]:
                self._make_ready(name)

    def _is_committed(self, name: str) -> bool:
        """Whether a step has what its dependents read; raw data that cannot be read has an outcome, and has not."""
        return name in self.outcomes and self.outcomes[name].status == "reused"

    def _reuse(self, name: str) -> None:
        step, result = self.planned[name], self.results.of(name)
        raw = result.raw
        if raw is not None and not raw.digest:
            self._fail(name, Answer(status="failed", error=f"step {name}: cannot be read: {raw.unreachable}"))
            return
        record = result.record
        location = step.location
        if record is not None:
            location = self.store.location(record.address, record.attempt)
        elif raw is None and result.milestones:
            last = result.milestones[max(result.milestones)]
            location = self.store.location(last.address, last.attempt, last.part)
        self.outcomes[name] = StepOutcome(
            name=name,
            status="reused",
            location=location,
            address=record.address if record else step.address,
            attempt=record.attempt if record else "",
            content_key=step.content_key or self._content_key(name),
            result=record.result if record else None,
        )
        self.listener(StepReused(name=name, location=location))
        self._done(name)

    def _done(self, name: str) -> None:
        for consumer in self.graph.consumers[name]:
            self._satisfied(consumer, name)

    def _satisfied(self, consumer: str, name: str) -> None:
        waiting = self.pending.get(consumer)
        if waiting is not None and name in waiting:
            waiting.discard(name)
            if not waiting:
                self._make_ready(consumer)

    def _make_ready(self, name: str) -> None:
        self.ready.add(name, self.planned[name].step.resources)

    def _dispatch(self) -> None:
        """Start what is ready, as far as there is room; what needs no worker is done at once."""
        while (name := self.ready.next(self.running.values(), self.backend.capacity, self.max_parallel)) is not None:
            try:
                if not self._already_there(name) and not self._runs_elsewhere(name):
                    self._start(name)
            except Exception as error:
                self._fail(name, Answer(status="failed", error=_naming(name, error)))

    def _already_there(self, name: str) -> bool:
        """Early cutoff: with its inputs known, the step may have an artifact; or another driver made it meanwhile."""
        step, result = self.planned[name], self.results.of(name)
        if name not in self.watches and (step.content_key or name in self.prepared.forced or name in self.restarts):
            return False
        key = self.results.content_key(name)
        record = self.store.find_content(name, key)
        if record is not None and record.attempt in self.prepared.superseded.get(name, ()):
            return False
        if self.prepared.wanted[name]:
            result.milestones = self.store.milestones(self._address(name, key))
            there = [at for at, found in result.milestones.items() if not self.store.absent_from(found)]
            if not set(self.prepared.wanted[name]) <= set(there):
                return False
        if record is None and (step.stop_at is None or not self.prepared.wanted[name]):
            return False
        if record is not None and self.store.absent(record):
            self.prepared.superseded[name] = (record.attempt,)
            return False
        result.record = record
        if record is not None:
            self.store.index.enter(self.graph.keys[name], IndexEntry(content_key=key, address=record.address))
        self._reuse(name)
        return True

    def _address(self, name: str, content_key: str) -> str:
        return self.store.index.addresses({name: content_key})[name]

    def _runs_elsewhere(self, name: str) -> bool:
        """Whether somebody else is at this work: then listen to it, or come back to it later."""
        if name not in self.watches:
            if self.planned[name].action != "wait":
                return False
            self.watches[name] = Watch(self.store, self.results.content_key(name))
        holder = self.watches[name].look()
        if holder is None:
            return False
        if self.backend.attach(name, holder):
            self.attached.add(name)
            self.running[name] = Resources(cpus=0)
            return True
        if self.told.get(name) != holder:
            self.told[name] = holder
            reason = f"running elsewhere (host {holder.host}, process {holder.pid}, attempt {holder.attempt})"
            self.listener(StepWaiting(name=name, reason=reason))
        self.later[name] = time.monotonic() + _WATCH_SECONDS
        return True

    def _start(self, name: str) -> None:
        key, resources = self.results.content_key(name), self.planned[name].step.resources
        address = self.planned[name].address or self._address(name, key)
        if name in self.prepared.forced and name not in self.prepared.superseded:
            attempts = self.store.attempts(address)
            self.prepared.superseded[name] = tuple(attempt.attempt for attempt in attempts)
        after = self.watches[name].number if name in self.watches else 0
        task = task_for(self.prepared, name, address, self.provenance, lease_after=after)
        self.running[name] = resources
        self.backend.start(name, task, resources)

    def _deliver(self, name: str, message: Message | Failure) -> None:
        if isinstance(message, str):
            self._lost(name, message)
        elif isinstance(message, Started):
            self.listener(StepStarted(name=name, attempt=message.attempt, host=message.host, pid=message.pid))
        elif isinstance(message, Progress):
            progress = dataclasses.asdict(message)
            self.listener(StepProgress(name=name, **progress))
        elif isinstance(message, Noted):
            self.listener(StepNoted(name=name, message=message.event["message"]))
        elif isinstance(message, Published):
            self._published(name, MilestoneRecord.from_json(message.record))
        else:
            self._answered(name, message)

    def _published(self, name: str, record: MilestoneRecord) -> None:
        """Steps that wait for milestones only may start while this one goes on."""
        result = self.results.of(name)
        result.milestones[record.at] = record
        for consumer in self.graph.consumers[name]:
            references = [ref for ref in self.graph.inputs[consumer] if ref.step == name]
            if all(ref.at is not None and ref.at in result.milestones for ref in references):
                self._satisfied(consumer, name)

    def _answered(self, name: str, answer: Answer) -> None:
        self.running.pop(name, None)
        was_attached = name in self.attached
        self.attached.discard(name)
        if answer.status == "held":
            self.watches.setdefault(name, Watch(self.store, self.results.content_key(name)))
            self._make_ready(name)
        elif answer.status == "lease_lost" or (
            was_attached and answer.status == "interrupted" and not self.interrupted
        ):
            self._make_ready(name)
        elif answer.status == "failed" and self._again(name, answer.failure, answer.error, answer.log):
            pass
        elif not _is_end(answer):
            self._fail(name, answer)
        else:
            self._succeed(name, answer)

    def _succeed(self, name: str, answer: Answer) -> None:
        result = self.results.of(name)
        if answer.record:
            result.record = Record.from_json(answer.record)
        elif result.record is not None and result.record.content_key != self.results.content_key(name):
            result.record = None
        if self.prepared.wanted[name]:
            result.milestones = self.store.milestones(answer.address)
        if answer.status == "reused":
            self._reuse(name)
            return
        location = self.store.location(answer.address, answer.attempt)
        self.outcomes[name] = StepOutcome(
            name=name,
            status=answer.status,
            location=location,
            address=answer.address,
            attempt=answer.attempt,
            content_key=self.results.content_key(name),
            log=answer.log,
            seconds=answer.seconds,
            result=answer.result,
        )
        self.listener(
            StepFinished(
                name=name, status=answer.status, location=location, seconds=answer.seconds, result=answer.result
            )
        )
        self._done(name)

    def _again(self, name: str, failure: Failure, error: str, log: str) -> bool:
        """Whether a failed step is to be started again by itself; then it is, after a while."""
        restarts = self.restarts.setdefault(name, Restarts(retries=self.planned[name].step.retries))
        delay = None if self.interrupted else restarts.delay(failure)
        if delay is None:
            return False
        self.later[name] = time.monotonic() + delay
        self.listener(StepFailed(name=name, error=f"{error}; starting it again", log=log, retrying=True))
        return True

    def _fail(self, name: str, answer: Answer) -> None:
        self.outcomes[name] = StepOutcome(
            name=name,
            status=answer.status,
            address=answer.address,
            attempt=answer.attempt,
            content_key=self._content_key(name),
            error=answer.error,
            traceback=answer.traceback,
            log=answer.log,
            log_tail=answer.log_tail,
            seconds=answer.seconds,
        )
        self.listener(
            StepFailed(
                name=name,
                error=answer.error,
                traceback=answer.traceback,
                log=answer.log,
                log_tail=answer.log_tail,
            )
        )

    def _content_key(self, name: str) -> str:
        """Empty for raw data, and where an input is unknown or lacks the part that the step reads."""
        if is_raw(self.planned[name].step):
            return ""
        try:
            return self.results.content_key(name)
        except MarinadeError:
            return ""

    def _lost(self, name: str, failure: Failure) -> None:
        """The worker of a step is gone: start the step again, or give it up and say so in its record."""
        self.running.pop(name, None)
        self.attached.discard(name)
        error = f"step {name}: {POLICIES[failure].words}"
        last = self._cut_off(name)
        log = f"{self.store.log_dir(last.address, last.attempt)}/log.txt" if last else ""
        if self._again(name, failure, error, log):
            return
        if last is not None:
            self.store.write_attempt(dataclasses.replace(last, status="failed", error=error, ended=now()))
        self._fail(
            name,
            Answer(
                status="interrupted" if self.interrupted else "failed",
                attempt=last.attempt if last else "",
                address=last.address if last else "",
                error=error,
                log=log,
                log_tail=tail(self.store.log(last.address, last.attempt)) if last else "",
            ),
        )

    def _cut_off(self, name: str) -> Record | None:
        """The attempt that never said how it ended; its worker may have died before it could say that it began."""
        attempts = self.store.attempts(self._address(name, self.results.content_key(name)))
        return attempts[0] if attempts and attempts[0].status == "running" else None

    def _until_later(self) -> float | None:
        return max(0.0, min(self.later.values()) - time.monotonic()) if self.later else None

    def _release_later(self) -> None:
        moment = time.monotonic()
        for name in [name for name, due in self.later.items() if due <= moment]:
            del self.later[name]
            self._make_ready(name)

    def _not_run(self, name: str) -> StepOutcome:
        step = self.planned[name]
        if step.action == "halted":
            reason = next((str(found.new) for found in step.reasons if found.kind == "failed"), "")
            return StepOutcome(name=name, status="halted", error=f"{reason}; go on with --acknowledge {name}")
        bad = [
            ref.step
            for ref in self.graph.inputs[name]
            if ref.step in self.planned and (ref.step not in self.outcomes or not self.outcomes[ref.step].is_good)
        ]
        reason = f"needs {', '.join(dict.fromkeys(bad))}" if bad else "the run ended before it was its turn"
        if step.action == "blocked" and not bad:
            reason = "not selected by --only"
        return StepOutcome(name=name, status="interrupted" if name in self.running else "not_run", error=reason)


def _is_end(answer: Answer) -> bool:
    """Whether the step has what was asked of it."""
    return answer.status in ("succeeded", "reused", "stopped_at_milestone")


def _naming(name: str, error: Exception) -> str:
    text = str(error) or type(error).__name__
    return text if name in text else f"step {name}: {text}"
