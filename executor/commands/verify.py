"""`marinade verify`: read everything and compare it with the records; exit code 1 when something is damaged."""

import argparse
import dataclasses
import shlex
import sys
from collections.abc import Iterable

from executor.commands.finding import find_artifact, is_recipe
from executor.commands.opening import open_recipe
from executor.planning.planner import survey
from executor.recipe import DEFAULT_SCALE
from executor.render.reading import Reading
from executor.render.terminal import Terminal
from executor.render.verify import verified_text, verify_end_text
from executor.storage.record import Record
from executor.upkeep.verify import Tell, Verified, lineage_gaps, verify_artifact, verify_recipe


def execute(args: argparse.Namespace) -> int:
    terminal, results = Terminal.of(sys.stdout), []
    with Reading(sys.stderr, Terminal.of(sys.stderr)) as reading:
        job = (_of_recipe if is_recipe(args.target) else _of_artifact)(args, reading)
        for verified in job.found:
            reading.clear()
            results.append(verified)
            if not args.json:
                sys.stdout.write(verified_text(verified, terminal))
                sys.stdout.flush()
    damaged = [verified.name for verified in results if verified.problems]
    command = shlex.join([*job.run, "--force", ",".join(damaged)]) if damaged and job.run else ""
    if args.json:
        from executor.render.as_json import dumps, verified_json

        print(dumps(verified_json(args.target, results, job.absent, command)))
    else:
        sys.stdout.write(verify_end_text(results, job.absent, command, terminal))
    return 1 if damaged else 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Job:
    """What is to be verified; `absent` are steps without an artifact; `run` is the command that makes them all."""

    found: Iterable[Verified]
    absent: tuple[str, ...] = ()
    run: tuple[str, ...] = ()


def _of_recipe(args: argparse.Namespace, tell: Tell) -> _Job:
    opened = open_recipe(args, args.target)
    prepared = survey(opened.experiment, opened.store, recipe=opened.recipe.name, scale=opened.scale)
    words = ["marinade", "run", args.target, *(["--prefix", args.prefix] if args.prefix else [])]
    words += ["--scale", args.scale] if args.scale != DEFAULT_SCALE else []
    return _Job(
        found=verify_recipe(prepared, opened.store, tell),
        absent=tuple(step.name for step in prepared.plan.steps if step.action != "reuse"),
        run=(*words, *(word for override in args.overrides for word in ("--set", override))),
    )


def _of_artifact(args: argparse.Namespace, tell: Tell) -> _Job:
    store, record = find_artifact(args.target, args.prefix)
    gaps = lineage_gaps([record]).get(record.name, ())
    return _Job(found=[verify_artifact(store, record, gaps, tell)], run=_command_of(record))


def _command_of(record: Record) -> tuple[str, ...]:
    """The command line that made an artifact, as `marinade run`, without what was forced then."""
    recipe = record.provenance.get("recipe", "")
    if not recipe:
        return ()
    typed = list(record.provenance.get("arguments", ()))
    if typed[:1] == ["run"]:
        typed = [word for word in typed[1:] if not word.endswith(recipe.rpartition("/")[2])]
    kept = [word for before, word in zip(["", *typed], typed, strict=False) if "--force" not in (before, word)]
    return ("marinade", "run", recipe, *kept)
