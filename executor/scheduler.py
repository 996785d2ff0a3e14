"""A plan, run: steps start as their inputs are committed and the machine allows.

The driver waits on messages of the workers and never looks into the store to learn how they are. A failing step stops
its dependents and nothing else. A step whose content key turns out to have an artifact is not run (early cutoff).
"""

import dataclasses
import time
from collections.abc import Callable
from typing import Any, Protocol

from executor.errors import MarinadeError
from executor.events import (
    Event,
    StepFailed,
    StepFinished,
    StepOutcome,
    StepProgress,
    StepReused,
    StepStarted,
    StepWaiting,
)
from executor.external import is_raw
from executor.planner import Prepared
from executor.record import MilestoneRecord, Record
from executor.resources import Capacity
from executor.retry import Loss, Restarts, loss_in_words
from executor.step import Resources
from executor.store import IndexEntry, address_of, now
from executor.task import Answer, Message, Progress, Published, Started, Task, Waiting

Deliver = Callable[[str, Message | Loss], None]


class Backend(Protocol):
    """Where steps run: this process, or Ray."""

    @property
    def capacity(self) -> Capacity: ...

    def start(self, name: str, task: Task, resources: Resources) -> None: ...

    def wait(self, timeout_seconds: float | None, deliver: Deliver) -> None:
        """Wait for the next messages (or the time limit) and deliver them."""
        ...

    def stop(self, deliver: Deliver) -> None:
        """End what runs, as cleanly as it lets itself be ended, and deliver the answers."""
        ...


class Scheduler:
    """One run of one plan."""

    def __init__(
        self,
        prepared: Prepared,
        backend: Backend,
        listener: Callable[[Event], None],
        *,
        provenance: dict[str, Any],
        started_id: str,
        fail_fast: bool = False,
        max_parallel: int | None = None,
    ) -> None:
        self.prepared, self.backend, self.listener = prepared, backend, listener
        self.graph, self.results, self.store = prepared.graph, prepared.results, prepared.results.store
        self.provenance, self.started_id, self.fail_fast = provenance, started_id, fail_fast
        self.max_parallel = max_parallel
        self.planned = {step.name: step for step in prepared.plan.steps}
        self.outcomes: dict[str, StepOutcome] = {}
        self.ready: list[str] = []
        self.running: dict[str, Resources] = {}
        self.attempts: dict[str, Started] = {}
        self.restarts: dict[str, Restarts] = {}
        self.retry_at: dict[str, float] = {}
        self.interrupted = False
        self.order = {name: number for number, name in enumerate(self.planned)}
        self.pending: dict[str, set[str]] = {}

    def run(self) -> dict[str, StepOutcome]:
        try:
            self._begin()
            while self.ready or self.running or self.retry_at:
                self._dispatch()
                if not self.running and not self.retry_at:
                    break
                self.backend.wait(self._until_retry(), self._deliver)
                self._release_retries()
                if self.fail_fast and any(outcome.status == "failed" for outcome in self.outcomes.values()):
                    self.ready.clear()
                    self.retry_at.clear()
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
        for name in self.prepared.unindexed:
            record = self.results.of(name).record
            assert record is not None
            entry = IndexEntry(content_key=self._content_key(name), address=record.address)
            self.store.enter(self.graph.keys[name], entry)
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
            waiting = self.pending.get(consumer)
            if waiting is not None and name in waiting:
                waiting.discard(name)
                if not waiting:
                    self._make_ready(consumer)

    def _make_ready(self, name: str) -> None:
        self.ready.append(name)

    def _dispatch(self) -> None:
        """Start what is ready, in the plan's order, as far as there is room; what needs no worker is done at once."""
        waiting: list[str] = []
        while self.ready:
            self.ready.sort(key=self.order.__getitem__)
            name = self.ready.pop(0)
            try:
                if self._already_there(name):
                    continue
                resources = self.planned[name].step.resources
                if not self._fits(resources):
                    waiting.append(name)
                    continue
                task = self._task(name, resources)
            except Exception as error:
                self._fail(name, Answer(status="failed", error=_naming(name, error)))
                continue
            self.running[name] = resources
            self.backend.start(name, task, resources)
        self.ready = waiting

    def _cost(self, resources: Resources) -> int:
        return min(max(resources.cpus, 0), self.backend.capacity.cpus)

    def _fits(self, resources: Resources) -> bool:
        if self.max_parallel is not None and len(self.running) >= self.max_parallel:
            return False
        capacity = self.backend.capacity
        cpus = sum(self._cost(other) for other in self.running.values()) + self._cost(resources)
        gpus = sum(other.gpus for other in self.running.values()) + resources.gpus
        return not self.running or (cpus <= capacity.cpus and gpus <= capacity.gpus)

    def _already_there(self, name: str) -> bool:
        """Early cutoff: with its inputs known, the step may have an artifact."""
        step, result = self.planned[name], self.results.of(name)
        if step.content_key or name in self.prepared.forced or name in self.restarts:
            return False
        key = self.results.content_key(name)
        record = self.store.find_content(name, key)
        if self.prepared.wanted[name]:
            result.milestones = self.store.milestones(record.address if record else address_of(name, key))
            if not set(self.prepared.wanted[name]) <= set(result.milestones):
                return False
        if record is None and (step.stop_at is None or not self.prepared.wanted[name]):
            return False
        if record is not None and self.store.absent(record):
            self.prepared.superseded[name] = record.attempt
            return False
        result.record = record
        if record is not None:
            self.store.enter(self.graph.keys[name], IndexEntry(content_key=key, address=record.address))
        self._reuse(name)
        return True

    def _task(self, name: str, resources: Resources) -> Task:
        step, key = self.planned[name].step, self.results.content_key(name)
        raw = [(self.graph.steps[ref.step], self.results.of(ref.step).raw) for ref in self.graph.inputs[name]]
        parts: dict[str, str] = {}
        for consumer in self.graph.consumers[name]:
            if consumer in self.planned:
                parts |= {ref.part: consumer for ref in self.graph.inputs[consumer] if ref.step == name and ref.part}
        return Task(
            name=name,
            function=step.function,
            config=self.results.resolved_config(name),
            payload=self.graph.payloads[name],
            recipe_key=self.graph.keys[name],
            content_key=key,
            address=address_of(name, key),
            prefix=self.store.prefix,
            opaque=step.digest == "opaque",
            things=self.graph.things[name],
            code=dict(self.graph.code[name].fingerprints),
            inputs=self.results.input_records(name),
            execution_only=self.graph.execution_only[name],
            outside=self.graph.outside[name],
            raw=tuple((source, data) for source, data in raw if data is not None),
            parts=parts,
            secrets=self.graph.secrets[name],
            stop_at=self.planned[name].stop_at,
            milestones=self.prepared.wanted[name],
            superseded=self.prepared.superseded.get(name, ""),
            not_before=self.started_id if name in self.prepared.forced else "",
            resources=_plain(resources),
            provenance=self.provenance,
        )

    def _deliver(self, name: str, message: Message | Loss) -> None:
        if isinstance(message, str):
            self._lost(name, message)
        elif isinstance(message, Started):
            self.attempts[name] = message
            self.listener(StepStarted(name=name, attempt=message.attempt, host=message.host, pid=message.pid))
        elif isinstance(message, Waiting):
            self.listener(StepWaiting(name=name, reason=message.reason))
        elif isinstance(message, Progress):
            progress = dataclasses.asdict(message)
            self.listener(StepProgress(name=name, **progress))
        elif isinstance(message, Published):
            self._published(name, MilestoneRecord.from_json(message.record))
        else:
            self._answered(name, message)

    def _published(self, name: str, record: MilestoneRecord) -> None:
        """Steps that wait for milestones only may start while this one goes on."""
        result = self.results.of(name)
        result.milestones[record.at] = record
        for consumer in self.graph.consumers[name]:
            waiting = self.pending.get(consumer, set())
            references = [ref for ref in self.graph.inputs[consumer] if ref.step == name]
            if name in waiting and all(ref.at is not None and ref.at in result.milestones for ref in references):
                waiting.discard(name)
                if not waiting:
                    self._make_ready(consumer)

    def _answered(self, name: str, answer: Answer) -> None:
        self.running.pop(name, None)
        result = self.results.of(name)
        if answer.status == "lease_lost":
            self._make_ready(name)
            return
        if answer.status not in ("succeeded", "reused", "stopped_at_milestone"):
            self._fail(name, answer)
            return
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

    def _lost(self, name: str, loss: Loss) -> None:
        """The worker of a step is gone: start the step again, or give it up and say so in its record."""
        self.running.pop(name, None)
        started = self.attempts.get(name)
        log = f"{self.store.log_dir(started.address, started.attempt)}/log.txt" if started else ""
        error = f"step {name}: {loss_in_words(loss)}"
        delay = self.restarts.setdefault(name, Restarts()).delay(loss)
        if delay is not None and not self.interrupted:
            self.retry_at[name] = time.monotonic() + delay
            self.listener(StepFailed(name=name, error=f"{error}; starting it again", log=log, retrying=True))
            return
        log_tail = ""
        if started is not None:
            from executor.capture import tail

            log_tail = tail(self.store.log(started.address, started.attempt))
            record = self.store.attempt(started.address, started.attempt)
            if record is not None and record.status == "running":
                self.store.write_attempt(dataclasses.replace(record, status="failed", error=error, ended=now()))
        self._fail(
            name,
            Answer(
                status="interrupted" if self.interrupted else "failed",
                attempt=started.attempt if started else "",
                address=started.address if started else "",
                error=error,
                log=log,
                log_tail=log_tail,
            ),
        )

    def _until_retry(self) -> float | None:
        return max(0.0, min(self.retry_at.values()) - time.monotonic()) if self.retry_at else None

    def _release_retries(self) -> None:
        for name, moment in list(self.retry_at.items()):
            if moment <= time.monotonic():
                del self.retry_at[name]
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


def _naming(name: str, error: Exception) -> str:
    text = str(error) or type(error).__name__
    return text if name in text else f"step {name}: {text}"


def _plain(resources: Resources) -> dict[str, Any]:
    found = {field.name: getattr(resources, field.name) for field in dataclasses.fields(resources)}
    return {**found, "environment": dict(resources.environment)}
