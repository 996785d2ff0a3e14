"""What `marinade diff` shows beside the differences: what they cost, what steps found, and metrics of two runs.

Everything here is read from the store; where it cannot be read, that is said once and the diff stands without it.
"""

import argparse
import dataclasses
import os
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from executor.commands.finding import find_artifact, is_recipe
from executor.commands.opening import Opened, load_recipe, open_recipe
from executor.comparing.alignment import Aligned, align
from executor.comparing.compare import Diff
from executor.comparing.costs import Costs, Pair, ToRun, costs, has_numbers, pairs, still_to_run
from executor.comparing.metrics import DESCRIPTION, Curve, Description, read_curve
from executor.comparing.revision import split
from executor.comparing.side import Side
from executor.errors import MarinadeError, StoreError, UsageError
from executor.secrets import redact
from executor.storage.record import Record
from executor.storage.store import Store, default_prefix


@dataclasses.dataclass(frozen=True, kw_only=True)
class Beside:
    """What was found.

    Attributes:
        metrics: (step, both curves); the step is empty where the two artifacts themselves were typed.
        measured: steps that differ and have metrics on both sides, which were not asked for.
    """

    costs: Costs
    metrics: tuple[tuple[str, Aligned], ...] = ()
    measured: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Known:
    """What else is known of a side: where its artifacts lie, the one that was typed, the recipe's file that it is."""

    store: Store
    root: Record | None = None
    recipe: str = ""


def beside(args: argparse.Namespace, found: Diff, a: Side, b: Side) -> Beside:
    """Raises UsageError where metrics were asked for by name and there are none."""
    name, revision = split(args.a)
    known_a = _known(args, args.a, is_last_run=args.b is None and not revision)
    known_b = _known(args, args.b or name)
    a, b = _with_numbers(a, known_a), _with_numbers(b, known_b)
    matched = pairs(found, a, b)
    metrics, notes = (), ()
    try:
        metrics = _metrics(args, matched, a, b, known_a, known_b)
    except (MarinadeError, OSError) as error:
        if args.metrics or args.picture:
            raise
        notes = (f"metrics are not compared: {error}",)
    if not (has_numbers(a) or has_numbers(b)):
        return Beside(costs=costs(found, a, b, notes=notes), metrics=metrics)
    results: list[dict[str, Any]] = [{}, {}]
    predict, to_run, measured = {}, None, ()
    differing = [pair for pair in matched if pair.old and pair.new and a.steps[pair.old].key != b.steps[pair.new].key]
    try:
        records_a = _records(known_a.store, a, [pair.old for pair in differing if pair.old])
        records_b = _records(known_b.store, b, [pair.new for pair in differing if pair.new])
        results = [{name: record.result for name, record in found.items()} for found in (records_a, records_b)]
        if not metrics:
            measured_a = _measured(known_a.store, records_a)
            measured_b = _measured(known_b.store, records_b) if measured_a else set()
            measured = tuple(
                pair.new for pair in differing if pair.new and pair.old in measured_a and pair.new in measured_b
            )
        opened = open_recipe(args, known_b.recipe) if known_b.recipe and (found.different or results[0]) else None
        predict = _predict(opened) if opened is not None and results[0] else {}
        to_run = _to_run(opened, b) if opened is not None and found.different else None
    except (MarinadeError, OSError) as error:
        notes += (f"what has run and what is left to run is not known: {error}",)
    return Beside(
        costs=costs(
            found,
            a,
            b,
            results_a=results[0],
            results_b=results[1],
            predict=predict,
            to_run=to_run,
            notes=notes,
        ),
        metrics=metrics,
        measured=measured,
    )


def _known(args: argparse.Namespace, typed: str, is_last_run: bool = False) -> _Known:
    if is_recipe(typed):
        prefix = args.prefix or default_prefix(load_recipe(typed))
        return _Known(store=Store(prefix), recipe="" if is_last_run else typed)
    folder = os.path.dirname(os.path.abspath(typed))
    if typed.endswith(".json") and os.path.basename(folder) == ".runs":
        return _Known(store=Store(os.path.dirname(folder)))
    try:
        store, root = find_artifact(typed, args.prefix)
    except MarinadeError:  # a record apart from its artifact, or a recipe at a revision
        return _Known(store=Store(args.prefix or default_prefix()))
    return _Known(store=store, root=root)


def _with_numbers(side: Side, known: _Known) -> Side:
    """The steps behind an artifact with the numbers that the run which made it had put on record."""
    run_id = known.root.provenance.get("run") if known.root is not None else None
    if not run_id:
        return side
    try:
        kept = known.store.run(run_id).steps
    except StoreError:  # the run's file is gone: its numbers are not known, which the costs say
        return side
    steps = {}
    for name, step in side.steps.items():
        same = kept.get(name)
        numbers = same.get("numbers") if same is not None and same["key"] == step.key else None
        steps[name] = dataclasses.replace(step, numbers=numbers)
    return dataclasses.replace(side, steps=steps)


def _addresses(store: Store, side: Side, names: list[str]) -> dict[str, str]:
    """Where the artifacts of steps lie, as the side says or the index knows."""
    asked = [side.steps[name].key for name in names if not side.steps[name].address]
    entries = store.index.lookup("recipe", asked) if asked else {}
    found = {}
    for name in names:
        step = side.steps[name]
        entry = entries.get(step.key)
        address = step.address or (entry.address if entry is not None else "")
        if address:
            found[name] = address
    return found


def _records(store: Store, side: Side, names: list[str]) -> dict[str, Record]:
    """The records of those steps that have run."""
    addresses = _addresses(store, side, names)
    records = store.records(addresses.values())
    found = {name: records[address] for name, address in addresses.items()}
    return {name: record for name, record in found.items() if record is not None and record.finished}


def _measured(store: Store, records: Mapping[str, Record]) -> set[str]:
    """Those whose attempt left metrics that say how they are read."""
    paths = {f"{r.address}/.step/attempts/{r.attempt}/{DESCRIPTION}": name for name, r in records.items()}
    return {paths[path] for path in store.files.read_many(paths)}


def _predict(opened: Opened) -> dict[str, Any]:
    configs = {name: step.config for name, step in opened.graph().steps.items()}
    return {name: config.predicted for name, config in configs.items() if hasattr(config, "predicted")}


def _to_run(opened: Opened, side: Side) -> ToRun:
    from executor.planning.planner import make_plan

    plan = make_plan(opened.experiment, opened.store, recipe=opened.recipe.name, scale=opened.scale)
    return still_to_run(side, {step.name: step.action for step in plan.steps})


def _metrics(
    args: argparse.Namespace, matched: tuple[Pair, ...], a: Side, b: Side, known_a: _Known, known_b: _Known
) -> tuple[tuple[str, Aligned], ...]:
    """Of the two artifacts typed; or of the steps that `--metrics` names, where both sides have an artifact."""
    if not args.metrics:
        if known_a.root is None or known_b.root is None:
            return ()
        aligned = _aligned((known_a.store, known_a.root, args.a), (known_b.store, known_b.root, args.b))
        return (("", aligned),) if aligned is not None else ()
    wanted = [
        (pair.old, pair.new)
        for pair in matched
        if pair.old is not None and pair.new is not None and _is_named(pair.new, args.metrics)
    ]
    if not wanted:
        raise UsageError(f"--metrics {' '.join(args.metrics)}: no step of that name is on both sides")
    places_a = _addresses(known_a.store, a, [old for old, _ in wanted])
    places_b = _addresses(known_b.store, b, [new for _, new in wanted])
    found = []
    for old, new in wanted:
        records = (
            known_a.store.record(places_a[old]) if old in places_a else None,
            known_b.store.record(places_b[new]) if new in places_b else None,
        )
        if records[0] is not None and records[1] is not None:
            aligned = _aligned(
                (known_a.store, records[0], records[0].address), (known_b.store, records[1], records[1].address)
            )
            if aligned is not None:
                found.append((new, aligned))
    if not found:
        names = ", ".join(new for _, new in wanted)
        raise UsageError(f"--metrics {' '.join(args.metrics)}: {names} has not run on both sides, or wrote no metrics")
    return tuple(found)


def _is_named(name: str, patterns: list[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _aligned(a: tuple[Store, Record, str], b: tuple[Store, Record, str]) -> Aligned | None:
    """None where one of them left no rows. Where only one says how rows are read, the other's are read that way too."""
    curve_a, curve_b = _curve(a), _curve(b)
    if curve_a is None or curve_b is None:
        return None
    if curve_a.description.axis != curve_b.description.axis:
        told_a, told_b = curve_a.description, curve_b.description
        curve_a, curve_b = _curve(a, told_b) or curve_a, _curve(b, told_a) or curve_b
    return align(curve_a, curve_b)


def _curve(place: tuple[Store, Record, str], otherwise: Description | None = None) -> Curve | None:
    store, record, label = place
    return read_curve(store, record, redact(label), otherwise)
