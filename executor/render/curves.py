"""Two runs' metrics side by side: a table of ends, a table of marks, and curves in characters that fit 80 columns.

Non-finite values are said as they are in text and are null in JSON, which has no word for them.
"""

import math
from collections.abc import Sequence
from typing import Any

from executor.comparing.alignment import Aligned, DrawnPair, Mark
from executor.comparing.metrics import Curve, Points
from executor.render.terminal import Terminal, columns
from executor.render.values import count_text, duration_text, percent_text

_LEVELS = "▁▂▃▄▅▆▇█"
_MOST_FINAL = 16
_TAKES = {"last": "", "tail": " (mean of the last 5%)", "mean": " (mean)"}


def metrics_text(aligned: Aligned, terminal: Terminal, step: str = "") -> str:
    """Tables and curves; `step` is named where several pairs are shown."""
    rows = [["", "a", "b", "b - a", ""], *_facts(aligned), *_final(aligned)]
    lines = [terminal.paint(_title(aligned, step), "bold"), ""]
    table = columns(rows, right=(1, 2, 3, 4))
    lines += [terminal.paint(table[0], "dim"), *table[1:], *_more(aligned), ""]
    if aligned.marks:
        lines += [*_marks_text(aligned), ""]
    for pair in aligned.drawn:
        lines += [*_curves(aligned, pair, terminal), ""]
    for note in notes(aligned):
        lines += [terminal.paint(line, "dim") for line in terminal.wrap(f"note: {note}")]
    return "\n".join(lines).rstrip() + "\n"


def metrics_markdown(aligned: Aligned, step: str = "", picture: str = "") -> str:
    """The same tables for a pull request, and the picture where one was written."""
    lines = [f"#### {_title(aligned, step)}", "", "| | a | b | b - a | |", "|---|--:|--:|--:|--:|"]
    lines += [_markdown_row(row) for row in [*_facts(aligned), *_final(aligned)]]
    lines += [*_more(aligned), ""]
    if aligned.marks:
        header, *rows = _marks(aligned)
        lines += [_markdown_row(header), "|" + "---|" * 2 + "--:|" * (len(header) - 2)]
        lines += [*map(_markdown_row, rows), ""]
    if picture:
        lines += [f"![{_title(aligned, step)}]({picture})", ""]
    lines += [f"- note: {note}" for note in notes(aligned)]
    return "\n".join(lines).rstrip() + "\n"


def metrics_json(aligned: Aligned, step: str = "") -> dict[str, Any]:
    return {
        "step": step,
        "axis": aligned.axis_name,
        "a": _curve_json(aligned.a),
        "b": _curve_json(aligned.b),
        "shared": list(aligned.shared) if aligned.shared else None,
        "final": [
            {"column": value.column, "take": value.take, "a": _number(value.a), "b": _number(value.b)}
            for value in aligned.final
        ],
        "marks": [
            {
                "at": mark.at,
                "values": [
                    {
                        "column": value.column,
                        "a": _number(value.a),
                        "b": _number(value.b),
                        "a_at": value.a_at,
                        "b_at": value.b_at,
                    }
                    for value in mark.values
                ],
            }
            for mark in aligned.marks
        ],
        "notes": notes(aligned),
    }


def notes(aligned: Aligned) -> list[str]:
    """What a reader has to know of how the rows were matched, in sentences."""
    name, found = aligned.axis_name, []
    if aligned.shared is None:
        found.append(
            f"the two share no {name}: a covers {_range(aligned.a)}, b {_range(aligned.b)}; "
            "only their ends are compared"
        )
    elif aligned.largest_lag:
        found.append(
            f"values at a mark are those of the nearest row at or before it, at most "
            f"{count_text(aligned.largest_lag)} {name} before; nothing is interpolated"
        )
    if aligned.shared and aligned.a.begins != aligned.b.begins:
        later, label = max((aligned.a.begins, "a"), (aligned.b.begins, "b"))
        found.append(
            f"{label} begins at {count_text(later)} {name}, where it continues another run; marks count from there"
        )
    for label, curve in (("a", aligned.a), ("b", aligned.b)):
        if curve.replaced:
            found.append(f"{label}: {curve.replaced} rows of interrupted attempts were trained again and are left out")
        for begin, end in curve.gaps:
            found.append(
                f"{label}: no rows from {count_text(begin)} to {count_text(end)} {name}: the attempt was killed before "
                "it had written them"
            )
        if curve.unread:
            found.append(f"{label}: {curve.unread} lines cannot be read and are left out")
    return found


def _title(aligned: Aligned, step: str) -> str:
    return f"metrics{f' of {step}' if step else ''}, aligned on {aligned.axis_name}"


def _facts(aligned: Aligned) -> list[list[str]]:
    a, b = aligned.a, aligned.b
    rows = [
        [f"from {aligned.axis_name}", count_text(a.begins), count_text(b.begins), "", ""],
        [f"to {aligned.axis_name}", count_text(a.ends), count_text(b.ends), "", ""],
        ["rows", str(a.rows), str(b.rows), "", ""],
    ]
    if a.attempts > 1 or b.attempts > 1:
        rows.append(["attempts", str(a.attempts), str(b.attempts), "", ""])
    times = (a.wall_seconds, b.wall_seconds)
    if any(time is not None for time in times):
        rows.append(["wall time", *("-" if time is None else duration_text(time) for time in times), "", ""])
    return rows


def _final(aligned: Aligned) -> list[list[str]]:
    return [
        [f"{value.column}{_TAKES[value.take]}", _value(value.a), _value(value.b), *_difference(value.a, value.b)]
        for value in aligned.final[:_MOST_FINAL]
    ]


def _more(aligned: Aligned) -> list[str]:
    left = len(aligned.final) - _MOST_FINAL
    return [f"… {left} more in --json"] if left > 0 else []


def _marks(aligned: Aligned) -> list[list[str]]:
    rows = [["at " + aligned.axis_name, "", *(count_text(mark.at) for mark in aligned.marks)]]
    for number, pair in enumerate(aligned.drawn):
        rows.append([_name(pair), "a", *_cells(aligned.marks, number, "a")])
        rows.append(["", "b", *_cells(aligned.marks, number, "b")])
        rows.append(["", "b - a", *_cells(aligned.marks, number, "difference")])
    return rows


def _marks_text(aligned: Aligned) -> list[str]:
    rows = _marks(aligned)
    return columns(rows, right=range(2, len(rows[0])))


def _cells(marks: Sequence[Mark], number: int, which: str) -> list[str]:
    cells = []
    for mark in marks:
        value = mark.values[number]
        if which == "difference":
            cells.append(_difference(value.a, value.b)[0] or "-")
        else:
            cells.append(_value(value.a if which == "a" else value.b))
    return cells


def _curves(aligned: Aligned, pair: DrawnPair, terminal: Terminal) -> list[str]:
    """a and b on one scale, and b - a on its own, each in one line."""
    name = f"{_name(pair)}{f', {pair.drawn.unit}' if pair.drawn.unit else ''}"
    begin, end = min(aligned.a.begins, aligned.b.begins), max(aligned.a.ends, aligned.b.ends)
    width = min(terminal.width, 100) - 30
    lines = terminal.wrap(f"{name}, from {count_text(begin)} to {count_text(end)} {aligned.axis_name}")
    both = [*pair.a, *pair.b]
    for label, points, scale in (("a", pair.a, both), ("b", pair.b, both), ("b - a", pair.difference, pair.difference)):
        values = [value for _, value in scale if math.isfinite(value)]
        if not points or not values:
            lines.append(f"{label:>7}  {'-' if label != 'b - a' else 'no row in common'}")
            continue
        low, high = min(values), max(values)
        sign = "+" if label == "b - a" else ""
        line = sparkline(_buckets(points, begin, end, width), low, high)
        lines.append(f"{label:>7}  {line:<{width}}  {low:{sign}.3g} to {high:{sign}.3g}")
    return lines


def sparkline(values: Sequence[float | None], low: float, high: float) -> str:
    """One character a value between `low` and `high`; a space for None. Rounding errors are a flat line."""
    spread = high - low if high - low > 1e-9 * max(abs(low), abs(high)) else 0.0
    levels = [
        " "
        if value is None or not math.isfinite(value)
        else _LEVELS[min(int((value - low) / spread * len(_LEVELS)), len(_LEVELS) - 1) if spread else 0]
        for value in values
    ]
    return "".join(levels)


def _buckets(points: Points, begin: float, end: float, count: int) -> list[float | None]:
    """Means over even parts of the axis; a part without a row, between two with one, keeps the value before it."""
    sums: list[list[float]] = [[] for _ in range(count)]
    for at, value in points:
        # A row stands for what led up to it, so the last one belongs to the last part.
        place = math.ceil((at - begin) / (end - begin) * count) - 1 if end > begin else 0
        sums[min(max(place, 0), count - 1)].append(value)
    filled = [number for number, values in enumerate(sums) if values]
    found: list[float | None] = []
    for number, values in enumerate(sums):
        if values:
            found.append(sum(values) / len(values))
        else:
            inside = filled and filled[0] < number < filled[-1]
            found.append(found[-1] if inside else None)
    return found


def _name(pair: DrawnPair) -> str:
    return pair.drawn.name or pair.drawn.column


def _value(value: float | None) -> str:
    if value is None:
        return "-"
    return count_text(value) if abs(value) >= 1e4 else f"{value:.5g}"


def _difference(a: float | None, b: float | None) -> tuple[str, str]:
    """b - a, and that in percent of a."""
    if a is None or b is None:
        return "", ""
    change = b - a
    if abs(change) >= 1e3 and math.isfinite(change):
        text = ("+" if change > 0 else "") + count_text(change)
    else:
        text = f"{change:+.3g}" if change else "0"
    return text, percent_text(a, b)


def _range(curve: Curve) -> str:
    return f"{count_text(curve.begins)} to {count_text(curve.ends)}"


def _markdown_row(row: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def _curve_json(curve: Curve) -> dict[str, Any]:
    return {
        "label": curve.label,
        "begins": curve.begins,
        "ends": curve.ends,
        "rows": curve.rows,
        "attempts": curve.attempts,
        "replaced_rows": curve.replaced,
        "unread_lines": curve.unread,
        "gaps": [list(gap) for gap in curve.gaps],
        "wall_seconds": curve.wall_seconds,
    }


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
