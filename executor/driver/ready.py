"""Steps that could start, and room for them: first in the plan's order among those that fit.

Steps that need the same are one queue, so that ten thousand waiting ones cost no more than one to look at.
"""

import heapq
from collections.abc import Iterable

from executor.driver.resources import Capacity
from executor.step import Resources

_Need = tuple[int, int]
"""Cores and GPUs, of all hosts."""


class Ready:
    """A priority queue for each combination of cores and GPUs."""

    def __init__(self, order: Iterable[str]) -> None:
        self._order = {name: number for number, name in enumerate(order)}
        self._queues: dict[_Need, list[tuple[int, str]]] = {}

    def __bool__(self) -> bool:
        return bool(self._queues)

    def add(self, name: str, resources: Resources) -> None:
        heapq.heappush(self._queues.setdefault(_need(resources), []), (self._order[name], name))

    def next(self, running: Iterable[Resources], capacity: Capacity, max_parallel: int | None) -> str | None:
        """Take the first step that fits beside what runs; None where none does. Alone, a step always fits."""
        beside = [_need(other) for other in running]
        if max_parallel is not None and len(beside) >= max_parallel:
            return None
        cpus = capacity.cpus - sum(min(other[0], capacity.cpus) for other in beside)
        gpus = capacity.gpus - sum(other[1] for other in beside)
        fitting = [
            (queue[0], need)
            for need, queue in self._queues.items()
            if not beside or (min(need[0], capacity.cpus) <= cpus and need[1] <= gpus)
        ]
        if not fitting:
            return None
        _, need = min(fitting)
        _, name = heapq.heappop(self._queues[need])
        if not self._queues[need]:
            del self._queues[need]
        return name

    def clear(self) -> None:
        self._queues.clear()


def _need(resources: Resources) -> _Need:
    processes = resources.hosts * resources.groups
    return max(resources.cpus, 0) * processes, resources.gpus * processes
