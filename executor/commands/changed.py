"""`marinade diff --changed BASE [HEAD]`: every recipe whose steps differ between two revisions."""

import argparse
import contextlib
import functools
import sys
from pathlib import Path

from executor.comparing.changed import ChangedRecipe, changed_recipes
from executor.comparing.revision import build_side, files_of, repository_of


def execute(args: argparse.Namespace) -> int:
    """Without HEAD the working tree, as it stands. Exit code 1 where a recipe differs or cannot be built."""
    repository = repository_of(Path.cwd())
    build = functools.partial(build_side, scale=args.scale, overrides=args.overrides)
    with contextlib.ExitStack() as stack:
        before = stack.enter_context(files_of(repository, args.a))
        after = stack.enter_context(files_of(repository, args.b)) if args.b else repository
        found = list(changed_recipes(before, after, build))
    print(_shown(args, found), end="")
    return 1 if any(one.diff is None or one.diff.different for one in found) else 0


def _shown(args: argparse.Namespace, found: list[ChangedRecipe]) -> str:
    against = f"{args.a} against {args.b or 'the working tree'} at {args.scale} scale"
    if args.json:
        from executor.render.as_json import changed_json, dumps

        return dumps(changed_json(args.a, args.b or "", args.scale, found)) + "\n"
    if args.markdown:
        from executor.render.diff_markdown import changed_markdown

        return changed_markdown(against, found, full=args.full)
    from executor.render.diff import changed_text
    from executor.render.terminal import Terminal

    return changed_text(against, found, Terminal.of(sys.stdout), full=args.full)
