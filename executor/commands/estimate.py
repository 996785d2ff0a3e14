"""`marinade estimate`: the numbers that the configs of a recipe offer, before anything runs."""

import argparse
import sys

from executor.commands.opening import open_recipe
from executor.estimate import estimate
from executor.graph import Graph
from executor.render.terminal import Terminal


def execute(args: argparse.Namespace) -> int:
    opened = open_recipe(args)
    graph = opened.graph()
    found = estimate(opened.recipe.name, opened.scale, graph.steps, _milestones(graph))
    if args.json:
        from executor.render.as_json import dumps, estimate_json

        print(dumps(estimate_json(found)))
    else:
        from executor.render.estimate import estimate_text

        sys.stdout.write(estimate_text(found, Terminal.of(sys.stdout)))
    return 0


def _milestones(graph: Graph) -> dict[str, int]:
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
