"""An experiment as data: what was declared before a run, in the JSON that goes on record.

    graph = graph_of(experiment)             every step that the targets depend on, and a check of the criteria
    declared = declaration(experiment, graph)

Invariant: the hash is of hypothesis, criteria and prediction alone; it does not depend on where or when it is taken.
"""

from collections.abc import Iterator
from typing import Any

from executor.errors import UsageError
from executor.external import is_raw
from executor.keys.graph import Graph
from executor.keys.identity import hash_json
from executor.step import Bound, Criterion, Experiment, Value


def graph_of(experiment: Experiment) -> Graph:
    """All steps; the report is wanted too, so its step is a target.

    Raises UsageError where a criterion or the prediction reads a step that no target depends on.
    """
    report = experiment.report
    graph = Graph.of([*experiment.targets, *([report.step] if report is not None else [])])
    for words, value in _values(experiment):
        _check(words, value, graph)
    return graph


def declaration(experiment: Experiment, graph: Graph) -> dict[str, Any]:
    """Hypothesis, issue, criteria and prediction, with steps by name; and the hash of all but the issue."""
    prediction = experiment.prediction
    declared: dict[str, Any] = {
        "hypothesis": experiment.hypothesis,
        "success": [_criterion(criterion, graph) for criterion in experiment.success],
        "prediction": _bound(prediction, graph) if prediction is not None else None,
    }
    return {**declared, "issue": experiment.issue, "hash": hash_json(declared)}


def observed(experiment: Experiment, graph: Graph) -> tuple[str, ...]:
    """Names of the steps whose results the criteria and the prediction read."""
    return tuple(dict.fromkeys(graph.names[id(value.step)] for _, value in _values(experiment)))


def outcomes_read(declared: dict[str, Any]) -> tuple[str, ...]:
    """Names of the steps that a declaration says something about: those on the left of its criteria."""
    criteria = [criterion for criterion in declared.get("success", ()) if isinstance(criterion, dict)]
    return tuple(dict.fromkeys(criterion["value"]["step"] for criterion in criteria))


def _values(experiment: Experiment) -> Iterator[tuple[str, Value]]:
    """Every value read, with words for who reads it."""
    for criterion in experiment.success:
        if isinstance(criterion, Criterion):
            yield f"criterion {criterion.words!r}", criterion.value
            for bounds in criterion.bounds.values():
                for bound in bounds:
                    if isinstance(bound, Value):
                        yield f"criterion {criterion.words!r}", bound
    if experiment.prediction is not None:
        yield "the prediction", experiment.prediction


def _check(words: str, value: Value, graph: Graph) -> None:
    name = value.step.name
    if id(value.step) not in graph.names:
        other = (
            "the targets depend on another step of that name; read that one"
            if name in graph.steps
            else f"add it to the experiment's targets, or read one of {', '.join(list(graph.steps)[:8])}"
        )
        raise UsageError(f"{words} reads {name}.{value.path}, but no target depends on this step {name}: {other}")
    if is_raw(value.step):
        raise UsageError(f"{words} reads {name}.{value.path}, but {name} is raw data, which has no result")


def _criterion(criterion: Criterion | str, graph: Graph) -> dict[str, Any] | str:
    if isinstance(criterion, str):
        return criterion
    bounds = {name: [_bound(bound, graph) for bound in found] for name, found in criterion.bounds.items() if found}
    declared = {"words": criterion.words, "value": _bound(criterion.value, graph), "bounds": bounds}
    return declared if criterion.within is None else {**declared, "within": criterion.within}


def _bound(bound: Bound, graph: Graph) -> Any:
    return {"step": graph.names[id(bound.step)], "path": bound.path} if isinstance(bound, Value) else bound
