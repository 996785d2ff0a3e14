"""What the steps of a recipe take, before anything runs: the numbers that their configs offer.

The engine knows no names of numbers; it adds up what can be added over steps (FLOPs, days, device hours).
"""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from executor.errors import MarinadeError
from executor.step import Step

if TYPE_CHECKING:
    from executor.keys.graph import Graph

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
        values = _offered(step, milestones.get(name))
        if values:
            found.append(StepEstimate(name=name, numbers=values, wanted_until=milestones.get(name)))
    return Estimate(recipe=recipe, scale=scale, steps=tuple(found))


def offered(graph: "Graph") -> dict[str, Numbers]:
    """Name -> the numbers of every step of a recipe as far as it is wanted; empty where a config offers none."""
    milestones = furthest_milestones(graph)
    return {name: _offered(step, milestones.get(name)) for name, step in graph.steps.items()}


def furthest_milestones(graph: "Graph") -> dict[str, int]:
    """The furthest milestone read of each step whose end nothing wants."""
    wanted: dict[str, list[int | None]] = {name: [None] for name in graph.targets}
    for references in graph.inputs.values():
        for reference in references:
            wanted.setdefault(reference.step, []).append(reference.at)
    return {
        name: max(at for at in found if at is not None)
        for name, found in wanted.items()
        if all(at is not None for at in found)
    }


def _offered(step: Step, until: int | None) -> Numbers:
    numbers = getattr(step.config, "numbers", None)
    if numbers is None:
        return {}
    try:
        return {name: value if type(value) in (int, float) else float(value) for name, value in numbers(until).items()}
    except Exception as error:
        raise MarinadeError(f"{step.name}: {type(step.config).__name__}.numbers failed: {error}") from error
