"""`marinade verify`: read everything and compare it with the records; exit code 1 when something is damaged."""

import argparse
import shlex
import sys
from collections.abc import Iterable

from executor.commands.finding import find_artifact, is_recipe
from executor.commands.opening import open_recipe
from executor.planner import survey
from executor.render.reading import Reading
from executor.render.terminal import Terminal
from executor.render.verify import verified_text, verify_end_text
from executor.verify import Tell, Verified, lineage_gaps, verify_artifact, verify_recipe


def execute(args: argparse.Namespace) -> int:
    terminal, results = Terminal.of(sys.stdout), []
    with Reading(sys.stderr, Terminal.of(sys.stderr)) as reading:
        found, absent, recipe = (_of_recipe if is_recipe(args.target) else _of_artifact)(args, reading)
        for verified in found:
            reading.clear()
            results.append(verified)
            if not args.json:
                sys.stdout.write(verified_text(verified, terminal))
                sys.stdout.flush()
    damaged = [verified.name for verified in results if verified.problems]
    command = _again(args, recipe, damaged) if damaged else ""
    if args.json:
        from executor.render.as_json import dumps, verified_json

        print(dumps(verified_json(args.target, results, absent, command)))
    else:
        sys.stdout.write(verify_end_text(results, absent, command, terminal))
    return 1 if damaged else 0


def _of_recipe(args: argparse.Namespace, tell: Tell) -> tuple[Iterable[Verified], list[str], str]:
    """What to verify, the steps that have nothing to verify, the recipe."""
    opened = open_recipe(args, args.target)
    prepared = survey(opened.experiment, opened.store, recipe=opened.recipe.name, scale=opened.scale)
    absent = [step.name for step in prepared.plan.steps if step.action != "reuse"]
    return verify_recipe(prepared, opened.store, tell), absent, args.target


def _of_artifact(args: argparse.Namespace, tell: Tell) -> tuple[Iterable[Verified], list[str], str]:
    store, record = find_artifact(args.target, args.prefix)
    gaps = lineage_gaps([record]).get(record.name, ())
    recipe = record.provenance.get("recipe", "")
    return [verify_artifact(store, record, gaps, tell)], [], recipe


def _again(args: argparse.Namespace, recipe: str, damaged: list[str]) -> str:
    """The command that makes the damaged steps again; empty where no recipe is known for them."""
    if not recipe:
        return ""
    words = ["marinade", "run", recipe]
    if args.prefix:
        words += ["--prefix", args.prefix]
    if args.scale != "laptop":
        words += ["--scale", args.scale]
    for override in args.overrides:
        words += ["--set", override]
    return shlex.join([*words, "--force", ",".join(damaged)])
