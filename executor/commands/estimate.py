"""`marinade estimate`: the numbers that the configs of a recipe offer, before anything runs."""

import argparse
import sys

from executor.commands.opening import open_recipe
from executor.planning.estimate import estimate, furthest_milestones
from executor.render.terminal import Terminal


def execute(args: argparse.Namespace) -> int:
    opened = open_recipe(args)
    graph = opened.graph()
    found = estimate(opened.recipe.name, opened.scale, graph.steps, furthest_milestones(graph))
    if args.json:
        from executor.render.as_json import dumps, estimate_json

        print(dumps(estimate_json(found)))
    else:
        from executor.render.estimate import estimate_text

        sys.stdout.write(estimate_text(found, Terminal.of(sys.stdout)))
    return 0
