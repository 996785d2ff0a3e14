"""`marinade gc`: what nothing needs any more; dry unless told to delete."""

import argparse
import sys
import time
from collections.abc import Sequence

from executor.commands.opening import Opened, load_recipe, open_recipe, split_names
from executor.errors import UsageError
from executor.planning.planner import survey
from executor.recipe import DEFAULT_SCALE
from executor.render.gc import collection_text, deleted_text, gc_end_text
from executor.render.terminal import Terminal
from executor.storage.store import Store
from executor.upkeep.deleting import Deleted, delete
from executor.upkeep.gc import collect


def execute(args: argparse.Namespace) -> int:
    opened = _open(args)
    store = Store(_prefix(opened))
    plans = [survey(o.experiment, store, recipe=o.recipe.name, scale=o.scale) for o in opened]
    collection = collect(store, plans, keep_days=args.keep, now=time.time())
    terminal, done = Terminal.of(sys.stdout), list[Deleted]()
    if not args.json:
        sys.stdout.write(collection_text(collection, [(o.recipe.name, o.scale) for o in opened], terminal))
        sys.stdout.flush()
    for deleted in delete(store, collection) if args.delete else ():
        done.append(deleted)
        if not args.json:
            sys.stdout.write(deleted_text(deleted, terminal))
            sys.stdout.flush()
    if args.json:
        from executor.render.as_json import collection_json, dumps

        print(dumps(collection_json(collection, [(o.recipe.name, o.scale) for o in opened], done)))
    else:
        sys.stdout.write(gc_end_text(collection, done if args.delete else None, terminal))
    return 0


def _open(args: argparse.Namespace) -> list[Opened]:
    """Every recipe at every scale that it has; one that has none of them is an error."""
    scales = split_names(args.scale) or (DEFAULT_SCALE,)
    opened: list[Opened] = []
    for typed in args.recipes:
        recipe, refused = load_recipe(typed), list[UsageError]()
        for scale in scales:
            try:
                recipe.settings(scale)
            except UsageError as error:
                refused.append(error)
                continue
            here = argparse.Namespace(**{**vars(args), "recipe": typed, "scale": scale})
            opened.append(open_recipe(here, recipe))
        if len(refused) == len(scales):
            raise refused[0]
        for error in refused:
            print(f"note: {error}", file=sys.stderr)
    return opened


def _prefix(opened: Sequence[Opened]) -> str:
    """The one store that all recipes share."""
    prefixes = {Store(o.prefix).prefix: o.recipe.name for o in opened}
    if len(prefixes) > 1:
        listed = ", ".join(f"{prefix} ({name})" for prefix, name in prefixes.items())
        raise UsageError(f"these recipes have different stores: {listed}; say which with --prefix")
    return next(iter(prefixes))
