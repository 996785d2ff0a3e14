"""Hosts for the processes of one step: reserved together or not at all.

A group is one Ray placement group: a host for each process, and where the step says so all of them in one domain (a
node label, such as an NVLink clique). Ray reserves a group at once or not at all, but knows no such rule for several
groups; so a step of several gives back what it holds when the rest does not come in time, and asks again later.

`ray` is handed in by the one file that imports it.
"""

import time
from typing import Any, Literal

from executor.step import Resources

PATIENCE_SECONDS = 600.0
"""So long a step keeps some of its groups while it waits for the others."""

_EACH_ON_ITS_HOST = "ray.io/node-id"


class Placement:
    """The groups of one step's processes, `{name}-0`, `{name}-1`, ...; processes are numbered group by group."""

    def __init__(self, ray: Any, resources: Resources, cpus: int, *, name: str) -> None:
        self._ray = ray
        self._hosts = resources.hosts
        self.since = time.monotonic()
        bundle = {kind: float(count) for kind, count in (("CPU", cpus), ("GPU", resources.gpus)) if count}
        rule: dict[str, Any] = (
            {"topology_strategy": {resources.colocate: "STRICT_PACK", _EACH_ON_ITS_HOST: "STRICT_SPREAD"}}
            if resources.colocate
            else {"strategy": "STRICT_SPREAD"}
        )
        self._groups = [
            ray.util.placement_group([bundle] * resources.hosts, name=f"{name}-{number}", lifetime="detached", **rule)
            for number in range(resources.groups)
        ]

    def state(self) -> Literal["placed", "busy", "absent", "in part"]:
        """Whether all hosts are reserved; else whether they are busy, whether the cluster has no such hosts now, or
        whether some have been held for too long without the others."""
        tables = [self._ray.util.placement_group_table(group) for group in self._groups]
        placed = [table["state"] == "CREATED" for table in tables]
        if all(placed):
            return "placed"
        if any(placed) and time.monotonic() - self.since > PATIENCE_SECONDS:
            return "in part"
        return "absent" if any(table["stats"]["scheduling_state"] == "INFEASIBLE" for table in tables) else "busy"

    def of(self, process: int) -> Any:
        """Where a process belongs: what an actor's option `scheduling_strategy` takes."""
        group, index = divmod(process, self._hosts)
        strategy = self._ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy
        return strategy(placement_group=self._groups[group], placement_group_bundle_index=index)


def give_back(ray: Any, name: str) -> None:
    """Free the hosts of a step's groups; what still runs on them ends. A no-op where there are none."""
    number = 0
    while True:
        try:
            group = ray.util.get_placement_group(f"{name}-{number}")
        except ValueError:  # no such group
            return
        ray.util.remove_placement_group(group)
        number += 1
