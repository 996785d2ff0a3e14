"""What a change costs as tables that fit 80 columns, as Markdown and as JSON.

Each step has a line for a, one for b, and one for the difference, below the numbers' names; numbers that do not differ
are left out.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from executor.comparing.costs import Costs, NumberChange, ResultChange, StepCost, ToRun
from executor.render.estimate import number_text
from executor.render.terminal import Terminal, columns
from executor.render.values import percent_text

_MOST_STEPS = 12
_TITLES = {
    "parameters_total": "params",
    "parameters_active": "active",
    "forward_flops_per_token": "FLOPs/token",
    "tokens": "tokens",
    "flops_total": "FLOPs",
    "devices": "devices",
    "memory_per_device_bytes": "mem/dev",
    "step_seconds": "step time",
    "days": "days",
    "device_hours": "dev-hours",
}
_WORDS = {"flops_total": "FLOPs"}
_UNKNOWN = (
    "the numbers of {} were not kept (it ran before runs kept them, or its run's file is gone), "
    "so costs are not compared"
)


def costs_text(costs: Costs, terminal: Terminal) -> str:
    """Empty where there is nothing to say."""
    lines: list[str] = []
    if costs.steps:
        lines += [terminal.paint("costs", "bold")]
        for table in _tables(costs, terminal.width):
            rows = columns(table, right=range(2, len(table[0])))
            lines += ["  " + terminal.paint(rows[0], "dim"), *("  " + row for row in rows[1:]), ""]
        left = len(costs.steps) - _MOST_STEPS
        lines += [f"  … {left} more steps in --json"] if left > 0 else []
        remarks = [line for step in costs.steps[:_MOST_STEPS] for line in _remark(step, terminal)]
        lines += [*remarks, ""] if remarks or left > 0 else []
    if costs.to_run is not None:
        lines += [*terminal.wrap(to_run_words(costs.to_run), 0), ""]
    if costs.results:
        lines += [terminal.paint("results", "bold")]
        rows = [["", "", "a", "b", "b - a", ""], *_results(costs.results)]
        table = columns(rows, right=(2, 3, 4, 5))
        lines += ["  " + terminal.paint(table[0], "dim"), *("  " + row for row in table[1:])]
        lines += [*_predicted(costs, terminal), ""]
    for note in _notes(costs):
        lines += [terminal.paint(line, "dim") for line in terminal.wrap(f"note: {note}")]
    return "\n".join(lines).rstrip() + "\n" if lines else ""


def costs_markdown(costs: Costs) -> str:
    """Empty where there is nothing to say."""
    lines: list[str] = []
    if costs.steps:
        names = _names(costs)
        lines += ["#### Costs", "", "| step | " + " | ".join(map(_title, names)) + " |", "|---|" + "--:|" * len(names)]
        for step in costs.steps:
            changes = {change.name: change for change in step.numbers}
            cells = [_cell(changes[name], step.kind) if name in changes else "" for name in names]
            lines.append(f"| `{step.step}`{_kind_words(step)} | " + " | ".join(cells) + " |")
        totals = {change.name: change for change in costs.totals}
        cells = [_cell(totals[name], "changed") if name in totals else "" for name in names]
        lines += ["| **total of all steps** | " + " | ".join(cells) + " |", ""]
    if costs.to_run is not None:
        text = to_run_words(costs.to_run)
        lines += [text[0].upper() + text[1:] + ".", ""]
    if costs.results:
        lines += ["#### Results", "", "| step | | a | b | b - a | |", "|---|---|--:|--:|--:|--:|"]
        lines += ["| " + " | ".join(row) + " |" for row in _results(costs.results)]
        lines += ["", *("\\" + line.strip() for line in _predicted(costs, Terminal(width=10_000))), ""]
    lines += [f"- note: {note}" for note in _notes(costs)]
    return "\n".join(lines).rstrip() + "\n" if lines else ""


def costs_json(costs: Costs) -> dict[str, Any]:
    return {
        "steps": [
            {
                "step": step.step,
                "kind": step.kind,
                "before": step.before,
                "amends": step.amends,
                "same_key": step.is_same,
                "numbers": _changes_json(step.numbers),
            }
            for step in costs.steps
        ],
        "totals": _changes_json(costs.totals),
        "to_run": None
        if costs.to_run is None
        else {
            "actions": dict(costs.to_run.actions),
            "steps": sum(costs.to_run.actions.values()),
            "of": costs.to_run.of,
            "numbers": dict(costs.to_run.numbers),
        },
        "results": [
            {
                "step": result.step,
                "name": result.name,
                "old": _finite(result.old),
                "new": _finite(result.new),
                "predicted": result.predicted,
            }
            for result in costs.results
        ],
        "unknown": list(costs.unknown),
        "notes": list(costs.notes),
    }


def to_run_words(found: ToRun) -> str:
    """`b still has to run 4 of 43 steps (3 run, 1 maybe): 8.85e24 FLOPs, ...`."""
    count = sum(found.actions.values())
    if not count:
        return "b has nothing left to run"
    actions = ", ".join(f"{number} {action}" for action, number in sorted(found.actions.items()))
    words = f"b still has to run {count} of {found.of} steps ({actions})"
    numbers = ", ".join(
        f"{number_text(name, value)} {_WORDS.get(name, name.replace('_', ' '))}"
        for name, value in found.numbers.items()
    )
    return f"{words}: {numbers or 'none of them has numbers'}"


def _tables(costs: Costs, width: int) -> list[list[list[str]]]:
    """Tables of as many numbers each as fit."""
    names, tables = _names(costs), []
    while names:
        count = len(names)
        while count > 1 and max(map(len, columns(_table(costs, names[:count])))) > width - 2:
            count -= 1
        tables.append(_table(costs, names[:count]))
        names = names[count:]
    return tables


def _names(costs: Costs) -> list[str]:
    """Names that occur, those of `marinade estimate` in its order first."""
    found = dict.fromkeys(change.name for step in costs.steps[:_MOST_STEPS] for change in step.numbers)
    known = [name for name in _TITLES if name in found]
    return known + [name for name in found if name not in _TITLES]


def _table(costs: Costs, names: Sequence[str]) -> list[list[str]]:
    rows = [["", "", *map(_title, names)]]
    for step in costs.steps[:_MOST_STEPS]:
        rows += _rows(step.step, {change.name: change for change in step.numbers}, names, step.kind)
    rows += _rows("total of all steps", {change.name: change for change in costs.totals}, names, "changed")
    return rows


def _rows(title: str, changes: Mapping[str, NumberChange], names: Sequence[str], kind: str) -> list[list[str]]:
    """The lines of one step; none where it has nothing in these columns."""
    found = [changes.get(name) for name in names]
    if not any(found):
        return []
    if kind != "changed":
        side = "b" if kind == "added" else "a"
        return [[title, side, *(_text(c.name, c.new if kind == "added" else c.old) if c else "" for c in found)]]
    rows = [
        [title, "a", *(_text(change.name, change.old) if change else "" for change in found)],
        ["", "b", *(_text(change.name, change.new) if change else "" for change in found)],
    ]
    percents = [_percent(change) if change else "" for change in found]
    return [*rows, ["", "", *percents]] if any(percents) else rows


def _remark(step: StepCost, terminal: Terminal) -> list[str]:
    words = {
        "added": f"only in b{f', amends {step.amends}' if step.amends else ''}",
        "removed": f"only in a{f', amends {step.amends}' if step.amends else ''}",
        "changed": "the same step; only how far it is wanted, or how it is estimated, differs" if step.is_same else "",
    }[step.kind]
    if step.before:
        words = f"was {step.before}{f'; {words}' if words else ''}"
    return [terminal.paint(line, "dim") for line in terminal.wrap(f"{step.step}: {words}", 2)] if words else []


def _kind_words(step: StepCost) -> str:
    words = [] if step.kind == "changed" else [step.kind]
    words += [f"was `{step.before}`"] if step.before else []
    words += [f"amends `{step.amends}`"] if step.amends else []
    return f"<br>{', '.join(words)}" if words else ""


def _cell(change: NumberChange, kind: str) -> str:
    if kind != "changed":
        return _text(change.name, change.new if kind == "added" else change.old)
    if change.old == change.new:
        return _text(change.name, change.new)
    percent = _percent(change)
    words = f"{_text(change.name, change.old)} → {_text(change.name, change.new)}"
    return f"{words} ({percent})" if percent else words


def _results(results: Sequence[ResultChange]) -> list[list[str]]:
    rows, last = [], ""
    for found in results:
        new = "not run" if found.new is None else f"{found.new:.5g}{'*' if found.predicted else ''}"
        old = "not run" if found.old is None else f"{found.old:.5g}"
        change, percent = "", ""
        if found.old is not None and found.new is not None:
            change, percent = f"{found.new - found.old:+.3g}", percent_text(found.old, found.new)
        rows.append([found.step if found.step != last else "", found.name, old, new, change, percent])
        last = found.step
    return rows


def _predicted(costs: Costs, terminal: Terminal) -> list[str]:
    steps = list(dict.fromkeys(result.step for result in costs.results if result.predicted))
    if not steps:
        return []
    text = f"* not run yet: told by the config of b from the result of a, which reads the same ({', '.join(steps)})"
    return [terminal.paint(line, "dim") for line in terminal.wrap(text, 2)]


def _notes(costs: Costs) -> list[str]:
    sides = " and ".join(costs.unknown)
    return [*([_UNKNOWN.format(sides)] if costs.unknown else []), *costs.notes]


def _title(name: str) -> str:
    return _TITLES.get(name, name.replace("_", " "))


def _text(name: str, value: float | int | None) -> str:
    return number_text(name, value)


def _percent(change: NumberChange) -> str:
    return "" if change.old is None or change.new is None else percent_text(change.old, change.new)


def _changes_json(changes: Sequence[NumberChange]) -> list[dict[str, Any]]:
    return [{"name": change.name, "old": _finite(change.old), "new": _finite(change.new)} for change in changes]


def _finite(value: float | int | None) -> float | int | None:
    return value if value is not None and math.isfinite(value) else None
