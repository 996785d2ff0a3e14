"""A plan, as data: every step with what will happen to it and why."""

import dataclasses
from typing import Any, Literal

from executor.keys.reason import Reason
from executor.step import Step

Action = Literal["reuse", "run", "resume", "maybe", "wait", "halted", "blocked"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedStep:
    """One step of a plan.

    Attributes:
        key: recipe key. content_key: empty while an input is not committed.
        address: `{name}-{content key}` under the prefix, empty while unknown.
        location: folder of the attempt that counts, empty when there is none.
        inputs: names of the steps it reads, in config order.
        stop_at: the furthest milestone asked for when the whole step is not wanted, else None.
        payload: what the key hashes.
        notes: remarks that are not reasons (drift of pinned code).
    """

    step: Step
    name: str
    key: str
    content_key: str = ""
    address: str = ""
    location: str = ""
    action: Action
    reasons: tuple[Reason, ...] = ()
    inputs: tuple[str, ...] = ()
    stop_at: int | None = None
    payload: dict[str, Any] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """All steps in an order in which every step comes after its inputs; `issue` is where people discuss them."""

    recipe: str
    scale: str
    prefix: str
    steps: tuple[PlannedStep, ...]
    issue: str = ""

    def counts(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for step in self.steps:
            counts[step.action] = counts.get(step.action, 0) + 1
        return counts
