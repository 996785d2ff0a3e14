"""`marinade status`: what is there, what runs and where, what failed last and why."""

import argparse
import sys

from executor.commands.opening import open_recipe, split_names
from executor.driver.status import status_of
from executor.planning.planner import make_plan
from executor.planning.selection import matching
from executor.render.terminal import Terminal


def execute(args: argparse.Namespace) -> int:
    opened = open_recipe(args)
    store = opened.store
    plan = make_plan(opened.experiment, store, recipe=opened.recipe.name, scale=opened.scale)
    asked = matching(split_names(args.steps), opened.graph(), "status") if args.steps else frozenset()
    status = status_of(plan, store, asked)
    if args.json:
        from executor.render.as_json import dumps, status_json

        print(dumps(status_json(status)))
    else:
        from executor.render.status import status_text

        sys.stdout.write(status_text(status, Terminal.of(sys.stdout)))
    return 0
