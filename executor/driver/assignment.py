"""From a step of a plan, its inputs known, to what its worker is told."""

import dataclasses
from typing import Any

from executor.history.provenance import Provenance
from executor.planning.planner import Prepared
from executor.step import Resources
from executor.worker.task import Task


def task_for(prepared: Prepared, name: str, address: str, provenance: Provenance | None, *, lease_after: int) -> Task:
    """The step's task; every input must have a result."""
    graph, results = prepared.graph, prepared.results
    planned = prepared.planned[name]
    step = planned.step
    raw = [(graph.steps[reference.step], results.of(reference.step).raw) for reference in graph.inputs[name]]
    return Task(
        name=name,
        function=step.function,
        config=results.resolved_config(name),
        payload=graph.payloads[name],
        recipe_key=graph.keys[name],
        content_key=results.content_key(name),
        address=address,
        prefix=results.store.prefix,
        opaque=step.digest == "opaque",
        things=graph.things[name],
        code=dict(graph.code[name].fingerprints),
        inputs=results.input_records(name),
        execution_only=graph.execution_only[name],
        outside=graph.outside[name],
        raw=tuple((source, data) for source, data in raw if data is not None),
        parts=_parts(prepared, name),
        secrets=graph.secrets[name],
        stop_at=planned.stop_at,
        milestones=prepared.wanted[name],
        superseded=prepared.superseded.get(name, ()),
        afresh=name in prepared.forced,
        lease_after=lease_after,
        resources=_plain(step.resources),
        amends=step.amends.name if step.amends is not None else "",
        provenance=provenance.facts if provenance else {},
        patch=provenance.patch if provenance else "",
        packages=provenance.packages if provenance else {},
    )


def _parts(prepared: Prepared, name: str) -> dict[str, str]:
    """Parts of the output that steps of this plan read -> one of them."""
    parts: dict[str, str] = {}
    for consumer in prepared.graph.consumers[name]:
        if consumer in prepared.planned:
            for reference in prepared.graph.inputs[consumer]:
                if reference.step == name and reference.part:
                    parts[reference.part] = consumer
    return parts


def _plain(resources: Resources) -> dict[str, Any]:
    found = {field.name: getattr(resources, field.name) for field in dataclasses.fields(resources)}
    return {**found, "environment": dict(resources.environment)}
