"""What a worker is told about one step, and what it answers. Plain data: no step graph travels."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

from executor.external import RawData
from executor.retry import Failure
from executor.step import Step
from executor.storage.record import InputRecord


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """One step, ready to run: every input resolved to a location.

    Attributes:
        config: with locations in place of inputs.
        things: functions and classes whose code is the step's.
        outside: functions and classes in execution-only fields, whose source is recorded and not compared.
        code: fingerprints the plan saw; the worker must see the same.
        raw: external and adopted inputs as the plan saw them, looked at again when the step commits.
        parts: parts of the output that other steps read -> one of them.
        superseded: attempts that do not count as a result (the step is forced, or their files are missing).
        afresh: superseded attempts are not resumed from either, nor do their milestones count (a forced step).
        provenance, patch, packages: what the run is made from (executor.history.provenance).
        lease_after: a lease up to this number may be taken from a holder that seems alive: its beat stood still.
    """

    name: str
    function: Callable[..., Any]
    config: Any
    payload: dict[str, Any]
    recipe_key: str
    content_key: str
    address: str
    prefix: str
    opaque: bool
    things: tuple[Any, ...]
    code: dict[str, str]
    inputs: tuple[InputRecord, ...]
    execution_only: dict[str, Any]
    outside: tuple[Any, ...] = ()
    raw: tuple[tuple[Step, RawData], ...] = ()
    parts: dict[str, str] = dataclasses.field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    stop_at: int | None = None
    milestones: tuple[int, ...] = ()
    superseded: tuple[str, ...] = ()
    afresh: bool = False
    lease_after: int = 0
    resources: dict[str, Any] = dataclasses.field(default_factory=dict)
    amends: str = ""
    provenance: dict[str, Any] = dataclasses.field(default_factory=dict)
    patch: str = ""
    packages: dict[str, str] = dataclasses.field(default_factory=dict)


AnswerStatus = Literal[
    "succeeded", "reused", "stopped_at_milestone", "failed", "halted", "interrupted", "lease_lost", "held"
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """How an attempt ended.

    Attributes:
        status: `held` when somebody else has the lease: nothing was begun.
        record: JSON of the record that counts now; empty when the step has no finished artifact.
        failure: the kind of failure, which decides whether the step is started again.
        error: one line or a few, for people; `traceback` has the rest.
        log: where the log lies; log_tail: its last lines.
    """

    status: AnswerStatus
    attempt: str = ""
    address: str = ""
    record: str = ""
    failure: Failure = "exception"
    error: str = ""
    traceback: str = ""
    log: str = ""
    log_tail: str = ""
    seconds: float = 0.0
    result: dict[str, Any] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Started:
    attempt: str
    address: str
    host: str
    pid: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Progress:
    done: float
    total: float
    unit: str
    metrics: dict[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Published:
    """A milestone came to be; `record` is its JSON."""

    record: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Noted:
    """Something people should know: `message`, and what the step says about it."""

    event: dict[str, Any]


Message = Started | Progress | Published | Noted | Answer
"""What a worker sends to the driver, an Answer last."""
