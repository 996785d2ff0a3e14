"""A plan and the store's attempts -> the state of each step: what is there, what runs where, what failed and why."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from executor.lease import holder as holder_of
from executor.plan import Plan, PlannedStep
from executor.record import Record

if TYPE_CHECKING:
    from executor.store import Store

State = Literal["succeeded", "running", "failed", "halted", "interrupted", "partial", "waiting", "never run"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepStatus:
    """State of one step.

    Attributes:
        state: `partial` for a step stopped at a milestone, `waiting` for one that the last run did not come to.
        where: location of the artifact, or host and process of who runs it.
        started, ended: of the last attempt, ISO 8601; empty when there was none.
        error: last line of the last attempt's exception.
        log: where the last attempt's log lies.
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Status:
    """State of every step of a recipe; `last_run` is when it was last started, empty for never."""

    recipe: str
    scale: str
    prefix: str
    last_run: str
    steps: tuple[StepStatus, ...]


def status_of(plan: Plan, store: "Store") -> Status:
    """Look at the attempts of every step that is not simply there; the rest is in the plan."""
    last = store.last_run(plan.recipe, plan.scale)
    outcomes = last.outcome if last else {}
    steps = []
    for step in plan.steps:
        # The content key is unknown while an input is missing; then the last run's attempt is the one to speak of.
        address = step.address or outcomes.get(step.name, {}).get("address", "")
        steps.append(_step_status(step, address, outcomes, store))
    return Status(
        recipe=plan.recipe,
        scale=plan.scale,
        prefix=plan.prefix,
        last_run=last.started if last else "",
        steps=tuple(steps),
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
        return dataclasses.replace(found, state="interrupted", error=found.error or "the process that ran it is gone")
    if found.state == "never run" and step.name in outcomes:
        return dataclasses.replace(found, state="waiting")
    return found


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
