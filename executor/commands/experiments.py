"""`marinade experiments`: what was expected of each run, how it ended, what came of it and what it cost."""

import argparse
import dataclasses
import sys
from pathlib import Path

from executor.errors import UsageError
from executor.experiments.listing import Experiments, experiments
from executor.render.terminal import Terminal
from executor.storage.store import Store, default_prefix


def execute(args: argparse.Namespace) -> int:
    found = _chosen(experiments(Store(args.prefix or default_prefix())), args.recipes, args.scale)
    if args.json:
        from executor.render.as_json import dumps, experiments_json

        print(dumps(experiments_json(found)))
    elif args.markdown:
        from executor.render.experiments import experiments_markdown

        sys.stdout.write(experiments_markdown(found))
    else:
        from executor.render.experiments import experiments_text

        sys.stdout.write(experiments_text(found, Terminal.of(sys.stdout)))
    return 0


def _chosen(found: Experiments, recipes: list[str], scale: str) -> Experiments:
    """Those of the recipes and the scale asked for. Recipes need not exist any more, so they go by their names."""
    wanted = {typed: {group.recipe for group in found.groups if _is(group.recipe, typed)} for typed in recipes}
    for typed, names in wanted.items():
        if not names:
            there = ", ".join(dict.fromkeys(group.recipe for group in found.groups)) or "none"
            raise UsageError(f"{typed}: no run of it under {found.prefix}; there are runs of {there}")
    chosen = set().union(*wanted.values()) if recipes else {group.recipe for group in found.groups}
    groups = (group for group in found.groups if group.recipe in chosen and scale in ("", group.scale))
    return dataclasses.replace(found, groups=tuple(groups))


def _is(recipe: str, typed: str) -> bool:
    """Whether `recipes/x.py`, an absolute path to it or `recipes.x` means the recipe recorded under this name."""
    path = Path(typed) if typed.endswith(".py") else Path(*typed.split(".")).with_suffix(".py")
    return recipe == path.as_posix() or path.absolute().as_posix().endswith(f"/{recipe}")
