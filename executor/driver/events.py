"""What happens in a run, as it happens. The listener is called from the driver's main thread only."""

import dataclasses
from typing import Any

from executor.planning.plan import Plan


@dataclasses.dataclass(frozen=True, kw_only=True)
class Planned:
    """The plan stands and the run is on record; nothing has started."""

    plan: Plan
    run_id: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepStarted:
    name: str
    attempt: str
    host: str
    pid: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepWaiting:
    """Another process runs the same work."""

    name: str
    reason: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepProgress:
    name: str
    done: float
    total: float
    unit: str
    metrics: dict[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepNoted:
    """A step says something that people should know, a guard's event for one."""

    name: str
    message: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepReused:
    name: str
    location: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepFinished:
    """`status` is succeeded or stopped_at_milestone."""

    name: str
    status: str
    location: str
    seconds: float
    result: dict[str, Any] | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepFailed:
    """A step failed, halted or was interrupted; `retrying` when it will be started again by itself."""

    name: str
    error: str
    traceback: str = ""
    log: str = ""
    log_tail: str = ""
    retrying: bool = False


Event = Planned | StepStarted | StepWaiting | StepProgress | StepNoted | StepReused | StepFinished | StepFailed


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepOutcome:
    """How a step ended in a run.

    Attributes:
        status: reused, succeeded, stopped_at_milestone, failed, halted, interrupted, or not_run.
        error: for people; for `not_run` the reason.
        traceback: of a failed step.
    """

    name: str
    status: str
    location: str = ""
    address: str = ""
    attempt: str = ""
    content_key: str = ""
    error: str = ""
    traceback: str = ""
    log: str = ""
    log_tail: str = ""
    seconds: float = 0.0
    result: dict[str, Any] | None = None

    @property
    def is_good(self) -> bool:
        return self.status in ("reused", "succeeded", "stopped_at_milestone")
