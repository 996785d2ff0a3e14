"""What the steps of a recipe take, before anything runs: the numbers that their configs offer.

The engine knows no names of numbers; it adds up what can be added over steps (FLOPs, days, device hours).
"""

import dataclasses
from collections.abc import Mapping

from executor.errors import MarinadeError
from executor.step import Step

Numbers = Mapping[str, float | int]
ADDED_UP = ("tokens", "flops_total", "days", "device_hours")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepEstimate:
    """Numbers of one step, as far as it is wanted: to the milestone `wanted_until`, or to its end (None)."""

    name: str
    numbers: Numbers
    wanted_until: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimate:
    """Numbers of all steps that have some, in the order in which they run."""

    recipe: str
    scale: str
    steps: tuple[StepEstimate, ...]

    def total(self, name: str) -> float:
        return sum(step.numbers.get(name, 0) for step in self.steps)


def estimate(recipe: str, scale: str, steps: Mapping[str, Step], milestones: Mapping[str, int]) -> Estimate:
    """Ask each config that has `numbers(until)`; `until` is the furthest milestone wanted, None for the whole step.

    Args:
        steps: name -> step, every step after its inputs.
        milestones: name -> furthest milestone wanted, of the steps whose end nothing reads.
    """
    found = []
    for name, step in steps.items():
        numbers = getattr(step.config, "numbers", None)
        if numbers is None:
            continue
        try:
            values = numbers(milestones.get(name))
        except Exception as error:
            raise MarinadeError(f"{name}: {type(step.config).__name__}.numbers failed: {error}") from error
        if values:
            found.append(StepEstimate(name=name, numbers=values, wanted_until=milestones.get(name)))
    return Estimate(recipe=recipe, scale=scale, steps=tuple(found))
