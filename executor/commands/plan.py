"""`marinade plan`: every step with an action and a reason; nothing runs."""

import argparse
import sys

from executor.commands.opening import open_recipe, split_names
from executor.planning.planner import make_plan
from executor.render.terminal import Terminal


def execute(args: argparse.Namespace) -> int:
    opened = open_recipe(args)
    plan = make_plan(
        opened.experiment,
        opened.store,
        recipe=opened.recipe.name,
        scale=opened.scale,
        force=split_names(args.force),
        only=split_names(args.only),
        until=split_names(args.until),
    )
    if args.json:
        from executor.render.as_json import dumps, plan_json

        print(dumps(plan_json(plan)))
    else:
        from executor.render.plan import plan_text

        sys.stdout.write(plan_text(plan, Terminal.of(sys.stdout)))
    return 3 if args.exit_code and set(plan.counts()) - {"reuse"} else 0
