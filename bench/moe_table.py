"""The MoE benchmark's rows as a table for people."""

from collections.abc import Mapping, Sequence
from typing import Any

_COLUMNS = ("shape", "dtype", "impl", "ms", "of floor", "of pooled", "dropped", "temp MB", "wire MB", "collectives")
_COUNTS = ("gathers", "scatters", "whiles")


def as_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Markdown; ratios are to the floor and to the better pooled wave of the same shape, type and run."""
    table = [(*_COLUMNS, *_COUNTS), *(_row(row, rows) for row in rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in table]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def _row(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    same = [other for other in rows if (other["shape"], other["dtype"]) == (row["shape"], row["dtype"])]
    return (
        row["shape"],
        row["dtype"],
        row["impl"],
        f"{row['ms']:.0f}",
        _ratio(row, [other for other in same if other["impl"] == "floor"]),
        _ratio(row, [other for other in same if "pooled" in other["impl"]]),
        f"{100 * row['drop_fraction']:.2f}%",
        f"{row['temp_bytes'] / 1e6:.1f}",
        f"{row['wire_bytes'] / 1e6:.1f}",
        str(row["collectives"]),
        *(str(row[name]) for name in _COUNTS),
    )


def _ratio(row: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> str:
    return f"{row['ms'] / min(other['ms'] for other in others):.2f}" if others else ""
