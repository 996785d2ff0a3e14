"""`marinade accept`: a change that keeps the output, on the record; nothing runs."""

import argparse
import sys

from executor.commands.opening import open_recipe, split_names
from executor.render.terminal import Terminal
from executor.upkeep.accept import accept


def execute(args: argparse.Namespace) -> int:
    opened = open_recipe(args)
    accepted = accept(
        opened.experiment,
        opened.store,
        recipe=opened.recipe.name,
        scale=opened.scale,
        steps=split_names(args.steps),
        reason=args.reason,
    )
    if args.json:
        from executor.render.as_json import accepted_json, dumps

        print(dumps(accepted_json(accepted)))
    else:
        from executor.render.accept import accepted_text

        sys.stdout.write(accepted_text(accepted, Terminal.of(sys.stdout)))
    return 0
