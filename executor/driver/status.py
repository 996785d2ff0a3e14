"""A plan and the store's attempts -> the state of each step: what is there, what runs where, what failed and why."""

import dataclasses
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Literal

from executor.planning.plan import Plan, PlannedStep
from executor.storage.lease import Holder
from executor.storage.lease import holder as holder_of
from executor.storage.record import Record
from executor.worker.capture import tail

if TYPE_CHECKING:
    from executor.storage.store import Store

_NO_WORD = "the process that ran it is gone"
_TRACEBACK = "Traceback (most recent call last):"
_TAIL_LINES = 6

State = Literal["succeeded", "running", "failed", "halted", "interrupted", "partial", "waiting", "never run"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttemptStatus:
    """How one attempt went.

    Attributes:
        number: attempts at an artifact are counted from 1.
        status: as in its record; `running` only while somebody holds the lease.
        started, ended: ISO 8601; ended is empty where it never said how it ended.
        error: what the attempt raised, in words; `traceback` has the rest.
        log: where the log lies; log_tail: its last lines before the traceback, of attempts that did not
            succeed.
    """

    number: int
    attempt: str
    status: str
    host: str = ""
    pid: int = 0
    started: str = ""
    ended: str = ""
    seconds: float = 0.0
    error: str = ""
    traceback: str = ""
    log: str = ""
    log_tail: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepStatus:
    """State of one step.

    Attributes:
        state: `partial` for a step stopped at a milestone, `waiting` for one that the last run did not come to.
        where: location of the artifact, or host and process of who runs it.
        started, ended: of the last attempt, ISO 8601; empty when there was none.
        error: last line of the last attempt's exception.
        log: where the last attempt's log lies.
        attempts: all attempts, newest first.
        asked: the step was named on the command line.
    """

    name: str
    state: State
    action: str
    address: str = ""
    attempt: str = ""
    where: str = ""
    started: str = ""
    ended: str = ""
    seconds: float = 0.0
    error: str = ""
    log: str = ""
    attempts: tuple[AttemptStatus, ...] = ()
    asked: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Status:
    """State of every step of a recipe; `last_run` is when it was last started, empty for never."""

    recipe: str
    scale: str
    prefix: str
    last_run: str
    steps: tuple[StepStatus, ...]
    issue: str = ""


def status_of(plan: Plan, store: "Store", asked: Collection[str] = ()) -> Status:
    """Look at the attempts of every step, or of those asked for only."""
    last = store.last_run(plan.recipe, plan.scale)
    outcomes = last.outcome if last else {}
    steps = []
    for step in plan.steps:
        if asked and step.name not in asked:
            continue
        # The content key is unknown while an input is missing; then the last run's attempt is the one to speak of.
        address = step.address or outcomes.get(step.name, {}).get("address", "")
        found = _step_status(step, address, outcomes, store)
        steps.append(dataclasses.replace(found, asked=step.name in asked))
    return Status(
        recipe=plan.recipe,
        scale=plan.scale,
        prefix=plan.prefix,
        last_run=last.started if last else "",
        steps=tuple(steps),
        issue=plan.issue,
    )


def _step_status(
    step: PlannedStep, address: str, outcomes: Mapping[str, Mapping[str, Any]], store: "Store"
) -> StepStatus:
    found = StepStatus(name=step.name, state="never run", action=step.action, address=address)
    holder = holder_of(store, step.content_key) if step.content_key and step.action != "reuse" else None
    attempts = store.attempts(address) if address else ()
    last = _counting(step, attempts) or (attempts[0] if attempts else None)
    if last is not None:
        found = dataclasses.replace(
            found,
            state=_state(last),
            attempt=last.attempt,
            where=step.location or store.location(address, last.attempt),
            started=last.started,
            ended=last.ended,
            seconds=last.wall_seconds,
            error=_last_line(last.error),
            log=_log_location(last, store),
            attempts=tuple(_attempt(record, holder, store) for record in attempts),
        )
    if holder is not None:
        where = f"{holder.host} process {holder.pid}"
        return dataclasses.replace(
            found, state="running", where=where, attempt=holder.attempt, started=str(holder.since), error="", ended=""
        )
    if step.action == "reuse":
        return dataclasses.replace(found, state="succeeded", where=step.location, error="")
    if step.action == "halted":
        return dataclasses.replace(found, state="halted")
    if found.state == "running":
        # Its attempt says running but nobody holds the lease: the process is gone.
        return dataclasses.replace(found, state="interrupted", error=found.error or _NO_WORD)
    if found.state == "never run" and step.name in outcomes:
        return dataclasses.replace(found, state="waiting")
    return found


def _attempt(record: Record, holder: Holder | None, store: "Store") -> AttemptStatus:
    is_dead = record.status == "running" and (holder is None or holder.attempt != record.attempt)
    error, traceback = _parts(record.error)
    if is_dead:
        error = error or _NO_WORD
    failed = record.status not in ("succeeded", "stopped_at_milestone")
    return AttemptStatus(
        number=record.number,
        attempt=record.attempt,
        status="interrupted" if is_dead else record.status,
        host=str(record.provenance.get("host", "")),
        pid=int(record.provenance.get("pid", 0)),
        started=record.started,
        ended=record.ended,
        seconds=record.wall_seconds,
        error=error,
        traceback=traceback,
        log=_log_location(record, store),
        log_tail=_log_tail(store.log(record.address, record.attempt), traceback) if failed else "",
    )


def _parts(error: str) -> tuple[str, str]:
    """A record's error as what it says and the traceback behind it."""
    words, mark, trace = error.partition(_TRACEBACK)
    return words.strip(), (mark + trace).strip()


def _log_tail(log: str, traceback: str) -> str:
    """What was printed last before the traceback, which the log ends with (each of a chain has the mark)."""
    marks = traceback.count(_TRACEBACK)
    before = log.split(_TRACEBACK)[:-marks] if marks else [log]
    return tail(_TRACEBACK.join(before), _TAIL_LINES)


def _counting(step: PlannedStep, attempts: tuple[Record, ...]) -> Record | None:
    """The attempt that the plan reuses, when it does."""
    if step.action != "reuse":
        return None
    return next((record for record in attempts if record.status == "succeeded"), None)


def _state(record: Record) -> State:
    if record.status == "stopped_at_milestone":
        return "partial"
    return record.status


def _log_location(record: Record, store: "Store") -> str:
    return f"{store.log_dir(record.address, record.attempt)}/log.txt"


def _last_line(error: str) -> str:
    lines = [line for line in error.strip().splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""
