"""`marinade diff`: two recipes, artifacts or records, or a recipe and its last run; causes first."""

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from executor.commands.beside import Beside, beside
from executor.commands.finding import find_record, is_recipe
from executor.commands.opening import open_recipe
from executor.comparing.compare import Diff, Note, diff
from executor.comparing.fields import Change
from executor.comparing.revision import side_at, split
from executor.comparing.side import Side
from executor.errors import StoreError, UsageError
from executor.render.terminal import Terminal
from executor.storage.record import Record
from executor.storage.store import Store


def execute(args: argparse.Namespace) -> int:
    if args.changed:
        from executor.commands import changed

        return changed.execute(args)
    if args.picture:
        from executor.render.picture import check_picture

        check_picture(args.picture)
    a, b = _sides(args)
    found = diff(a, b)
    if args.b is None and not split(args.a)[1]:
        found = dataclasses.replace(found, notes=(*found.notes, *_accepted(args, found, b)))
    more = beside(args, found, a, b)
    if args.picture:
        _draw(args.picture, more)
    if args.json:
        from executor.render.as_json import diff_json, dumps
        from executor.render.beside import beside_json

        print(dumps(diff_json(found) | beside_json(more.costs, more.metrics, more.measured)))
    else:
        from executor.render.beside import beside_markdown, beside_text
        from executor.render.diff import diff_text
        from executor.render.diff_markdown import diff_markdown

        if args.markdown:
            text = diff_markdown(found, full=args.full) + beside_markdown(more.costs, more.metrics, args.picture)
        else:
            terminal = Terminal.of(sys.stdout)
            text = diff_text(found, terminal, full=args.full) + beside_text(
                more.costs, more.metrics, more.measured, terminal
            )
        sys.stdout.write(text)
    return 1 if found.different else 0


def _draw(path: str, more: Beside) -> None:
    from executor.render.picture import draw

    if len(more.metrics) != 1:
        raise UsageError(
            f"--picture {path}: a picture shows one pair of finished runs, found {len(more.metrics)}; "
            "name two training artifacts, or one step of two recipes that have run with --metrics STEP"
        )
    step, aligned = more.metrics[0]
    draw(aligned, path, step=step)


def _sides(args: argparse.Namespace) -> tuple[Side, Side]:
    if args.b is not None:
        return _side(args, args.a), _side(args, args.b)
    if split(args.a)[1]:
        return _side(args, args.a), _side(args, split(args.a)[0])
    if not is_recipe(args.a):
        raise UsageError(f"diff {args.a}: an artifact has no last run to compare with; name a second one")
    return _last_run(args, args.a), _recipe_side(args, args.a)


def _side(args: argparse.Namespace, typed: str) -> Side:
    if split(typed)[1]:
        return side_at(typed, scale=args.scale, overrides=args.overrides)
    if is_recipe(typed):
        return _recipe_side(args, typed)
    return _record_side(args, typed)


def _recipe_side(args: argparse.Namespace, typed: str) -> Side:
    return Side.of_graph(typed, open_recipe(args, typed).graph())


def _last_run(args: argparse.Namespace, typed: str) -> Side:
    opened = open_recipe(args, typed)
    run = opened.store.last_run(opened.recipe.name, opened.scale)
    if run is None:
        raise UsageError(
            f"{opened.recipe.name} was never run at scale {opened.scale} under {opened.store.prefix}; "
            f"marinade run {typed} runs it, marinade diff {typed} OTHER compares it with something else"
        )
    source = _source_of(opened.store, run.steps, run.outcome)
    return Side.of_run(f"{opened.recipe.name}, run {run.id}", run.steps, source)


def _accepted(args: argparse.Namespace, found: Diff, side: Side) -> Iterator[Note]:
    """The changed steps of a recipe whose new key was accepted for an artifact of before, with the reason given."""
    store = open_recipe(args, args.a).store
    keys = {
        side.steps[step.step].key: step.step for step in (*found.causes, *found.inherited) if step.step in side.steps
    }
    entries = store.index.lookup("recipe", keys)
    places = {key: (entry.address, entry.content_key) for key, entry in entries.items()}
    acceptances = store.acceptances(places.values())
    for key, place in places.items():
        if place in acceptances:
            reason = Change(kind="config", path="reason", new=acceptances[place].reason)
            yield Note(step=keys[key], kind="accepted", changes=(reason,))


def _source_of(
    store: Store, steps: Mapping[str, Mapping[str, Any]], outcome: Mapping[str, Mapping[str, Any]]
) -> Callable[[str], Mapping[str, str]]:
    """Reads the code kept of a step of a run: with the attempt that the run ended with, else, where it did not come to
    its end, with the artifact or the newest attempt there is."""

    def read(name: str) -> Mapping[str, str]:
        ended, step = outcome.get(name, {}), steps[name]
        address = ended.get("address") or step.get("address", "")
        if not address:
            entry = store.index.lookup("recipe", [step["key"]]).get(step["key"])
            address = entry.address if entry is not None else ""
        attempt = ended.get("attempt", "")
        if address and not attempt:
            record = store.record(address) or next(iter(store.attempts(address)), None)
            attempt = record.attempt if record is not None else ""
        return store.source(address, attempt).functions if address and attempt else {}

    return read


def _record_side(args: argparse.Namespace, typed: str) -> Side:
    """Everything behind an artifact, or a record's file, by step name."""
    from executor.history.lineage import trace
    from executor.storage.locate import read_record

    if typed.endswith(".json") and os.path.isfile(typed):
        with open(typed) as file:
            data = json.load(file)
        if isinstance(data, dict) and "steps" in data and "recipe" in data:
            folder, source = os.path.dirname(os.path.abspath(typed)), None
            if os.path.basename(folder) == ".runs":
                source = _source_of(Store(os.path.dirname(folder)), data["steps"], data.get("outcome", {}))
            return Side.of_run(typed, data["steps"], source)
        try:
            root = Record.from_json(json.dumps(data))
        except (TypeError, AttributeError) as error:
            raise UsageError(f"{typed} is neither a record nor a run: {error}") from error
    else:
        root = find_record(typed, args.prefix)
    lineage = trace(typed, root, read_record)
    if lineage.missing:
        location, reason = lineage.missing[0]
        raise StoreError(f"{typed}: the lineage has a gap at {location}: {reason}")
    return Side.of_records(typed, lineage.by_step())
