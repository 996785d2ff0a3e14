"""What a change costs: the numbers of both sides of a diff, side by side.

    found = costs(diff(a, b), a, b)
    found.steps     every step whose numbers differ, and steps that only one side has
    found.totals    what can be added up over all steps of each side
    found.to_run    what B still has to run, where a store says so
    found.results   what steps said they found (`headline` of their result), run or predicted

Numbers are what configs offer (`numbers(until)`, see executor.planning.estimate); the engine knows no names of theirs.
A step's function may put `headline` into its result, {name: number}: what is worth comparing. A config may offer
`predicted(result)`: the headline of its own step, told from the result of the step it is compared with.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

from executor.comparing.compare import Diff
from executor.comparing.side import Side, SideStep
from executor.planning.estimate import ADDED_UP, Numbers

Predict = Callable[[Mapping[str, Any]], Mapping[str, float]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class NumberChange:
    """One number on both sides; None where a side has none of that name."""

    name: str
    old: float | int | None
    new: float | int | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepCost:
    """The numbers that differ of one step, or all of a step that only one side has.

    Attributes:
        before: its name in a where that is another one.
        amends: the step it amends, of an added or removed amendment.
        is_same: the key is equal: only how much of the step is wanted, or how it is estimated, differs.
    """

    step: str
    kind: Literal["changed", "added", "removed"]
    numbers: tuple[NumberChange, ...]
    before: str = ""
    amends: str = ""
    is_same: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class ToRun:
    """What a side still has to run.

    Attributes:
        actions: planned action -> how many steps, of those that are not there yet.
        numbers: what those steps take together; each counts whole, also one that will be resumed or may be spared.
        of: steps of the whole plan.
    """

    actions: Mapping[str, int]
    numbers: Numbers
    of: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResultChange:
    """One number of a step's headline on both sides.

    Attributes:
        old, new: None where the step has not run there, or its result has no such number.
        predicted: `new` is told from the result of a by the config of b, and not measured.
    """

    step: str
    name: str
    old: float | None
    new: float | None
    predicted: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Costs:
    """Everything there is to say; `unknown` names the sides ("a", "b") whose numbers were not kept."""

    steps: tuple[StepCost, ...] = ()
    totals: tuple[NumberChange, ...] = ()
    to_run: ToRun | None = None
    results: tuple[ResultChange, ...] = ()
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pair:
    """A step of b and the one of a that it is compared with; one of them None where there is no counterpart."""

    old: str | None
    new: str | None
    amends: str = ""


def pairs(diff: Diff, a: Side, b: Side) -> tuple[Pair, ...]:
    """Every step of both sides once: those of b in its order, then what only a has."""
    old_of = {new: old for old, new in diff.renamed}
    renamed = {old for old, _ in diff.renamed}
    amends = {cause.step: cause.amends for cause in diff.causes if cause.amends}
    added, removed = set(diff.added), set(diff.removed)
    found, taken = [], set()
    for name in b.steps:
        old = old_of.get(name, name)
        alone = name in added or (name in amends and name not in a.steps) or old not in a.steps
        if name not in old_of and name in renamed:
            alone = True
        found.append(Pair(old=None if alone else old, new=name, amends=amends.get(name, "") if alone else ""))
        if not alone:
            taken.add(old)
    left = [name for name in a.steps if name not in taken or name in removed]
    found += [Pair(old=name, new=None, amends=amends.get(name, "")) for name in left]
    return tuple(found)


def costs(
    diff: Diff,
    a: Side,
    b: Side,
    *,
    results_a: Mapping[str, Mapping[str, Any]] | None = None,
    results_b: Mapping[str, Mapping[str, Any]] | None = None,
    predict: Mapping[str, Predict] | None = None,
    to_run: ToRun | None = None,
    notes: tuple[str, ...] = (),
) -> Costs:
    """Numbers of b beside those of a.

    Args:
        results_a, results_b: step -> what its function returned, of the steps that have run.
        predict: step of b -> `predicted` of its config.
        to_run: see `still_to_run`.
    """
    unknown = tuple(label for label, side in (("a", a), ("b", b)) if side.steps and not is_known(side))
    matched = pairs(diff, a, b)
    results = tuple(_results(matched, a, b, results_a or {}, results_b or {}, predict or {}))
    if unknown:
        is_said = len(unknown) == 2 or has_numbers(a) or has_numbers(b)
        return Costs(results=results, to_run=to_run, unknown=unknown if is_said else (), notes=notes)
    steps = tuple(found for pair in matched if (found := _step(pair, a, b)) is not None)
    old, new = added_up(_numbers(a.steps.values())), added_up(_numbers(b.steps.values()))
    return Costs(
        steps=steps,
        totals=_both(old, new) if steps else (),
        to_run=to_run,
        results=results,
        notes=notes,
    )


def added_up(numbers: Iterable[Numbers]) -> dict[str, float | int]:
    """Sums over steps of what can be added up, of the names that occur."""
    sums: dict[str, float | int] = {}
    for found in numbers:
        for name in ADDED_UP:
            if name in found:
                sums[name] = sums.get(name, 0) + found[name]
    return sums


def still_to_run(side: Side, actions: Mapping[str, str]) -> ToRun:
    """What the plan of a side (step -> action) leaves to be done, and its numbers."""
    waiting = {name: action for name, action in actions.items() if action != "reuse"}
    counts: dict[str, int] = {}
    for action in waiting.values():
        counts[action] = counts.get(action, 0) + 1
    return ToRun(
        actions=counts,
        numbers=added_up(_numbers(side.steps[name] for name in waiting if name in side.steps)),
        of=len(actions),
    )


def has_numbers(side: Side) -> bool:
    """True where a step offered some."""
    return any(step.numbers for step in side.steps.values())


def is_known(side: Side) -> bool:
    """True where the numbers of a side were kept, if only to say that there are none."""
    return any(step.numbers is not None for step in side.steps.values())


def _numbers(steps: Iterable[SideStep]) -> Iterator[Numbers]:
    return (step.numbers for step in steps if step.numbers)


def _both(old: Numbers, new: Numbers) -> tuple[NumberChange, ...]:
    return tuple(NumberChange(name=name, old=old.get(name), new=new.get(name)) for name in dict.fromkeys([*old, *new]))


def _step(pair: Pair, a: Side, b: Side) -> StepCost | None:
    before = a.steps[pair.old].numbers if pair.old is not None else {}
    after = b.steps[pair.new].numbers if pair.new is not None else {}
    if before is None or after is None or before == after:
        return None
    if pair.old is None or pair.new is None:
        name = pair.new if pair.new is not None else pair.old
        assert name is not None
        kind = "added" if pair.old is None else "removed"
        return StepCost(step=name, kind=kind, numbers=_both(before, after), amends=pair.amends)
    return StepCost(
        step=pair.new,
        kind="changed",
        numbers=tuple(change for change in _both(before, after) if change.old != change.new),
        before=pair.old if pair.old != pair.new else "",
        is_same=a.steps[pair.old].key == b.steps[pair.new].key,
    )


def _results(
    matched: tuple[Pair, ...],
    a: Side,
    b: Side,
    results_a: Mapping[str, Mapping[str, Any]],
    results_b: Mapping[str, Mapping[str, Any]],
    predict: Mapping[str, Predict],
) -> Iterator[ResultChange]:
    """Headlines of the steps that differ and have run on at least one side."""
    for pair in matched:
        if pair.old is None or pair.new is None:
            continue
        before, after = a.steps[pair.old], b.steps[pair.new]
        if before.key == after.key:
            continue
        result, told = results_a.get(pair.old), predict.get(pair.new)
        old, new = _headline(result), _headline(results_b.get(pair.new))
        is_predicted = False
        if result is not None and not new and told is not None and _reads_the_same(before, after):
            new = told(result)
            is_predicted = bool(new)
        for name in new if is_predicted else dict.fromkeys([*old, *new]):
            yield ResultChange(step=pair.new, name=name, old=old.get(name), new=new.get(name), predicted=is_predicted)


def _headline(result: Mapping[str, Any] | None) -> Mapping[str, float]:
    found = (result or {}).get("headline")
    if not isinstance(found, Mapping):
        return {}
    return {k: v for k, v in found.items() if isinstance(v, int | float) and not isinstance(v, bool)}


def _reads_the_same(old: SideStep, new: SideStep) -> bool:
    """True where all inputs are the very same: then what a read stands for what b would read."""
    return _input_keys(old.payload) == _input_keys(new.payload)


def _input_keys(payload: Any) -> list[tuple[Any, ...]]:
    found, stack = [], [payload]
    while stack:
        value = stack.pop()
        if isinstance(value, Mapping):
            if "$input" in value:
                read = value["$input"]
                found.append((read.get("key"), read.get("part"), read.get("at")))
            else:
                stack.extend(value.values())
        elif isinstance(value, list | tuple):
            stack.extend(value)
    return sorted(found, key=str)
