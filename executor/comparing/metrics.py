"""What a finished step measured while it ran, read back from beside its artifact.

A step that measures writes rows, one flat JSON object a line, into the log folder of its attempt: `metrics.jsonl`, or
numbered parts `metrics-000000.jsonl`, ... at a store that cannot append. `metrics.json` beside them says how they are
read, so that the recipe is not needed for it:

    {"axis": {"column": "throughput/total_tokens", "name": "tokens"},
     "final": [{"column": "train/loss", "take": "tail"}, {"column": "eval/*/loss"}],
     "drawn": [{"column": "train/loss", "name": "training loss", "unit": "nats per token"}],
     "begins": 51200}

`axis` is the column that rows are ordered and aligned by; `final` are the columns (globs) whose value at the end is
shown, `take` says how: `last` (default), `tail` (mean over the last twentieth of the axis) or `mean`; `drawn` are
those that are worth a curve. `begins` is where on the axis this attempt began. The engine knows no names of metrics.

Several attempts can stand behind one artifact. Their rows are one curve: an attempt that begins at x replaces what
earlier ones said beyond x, because it did that work again.
"""

import dataclasses
import itertools
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal

from executor.storage.record import Record
from executor.storage.store import Store

Take = Literal["last", "tail", "mean"]
_TAKES = ("last", "tail", "mean")
DESCRIPTION = "metrics.json"
TAIL = 20
"""`tail` is one part of so many of a curve, at its end."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Final:
    """A column (or glob) whose value at the end is shown, and how that is taken."""

    column: str
    take: Take = "last"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drawn:
    """A column that is worth a curve, and its name and unit for people."""

    column: str
    name: str = ""
    unit: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Description:
    """How rows are read; see the module. `begins` is None where the attempt did not say."""

    axis: str
    axis_name: str = ""
    final: tuple[Final, ...] = ()
    drawn: tuple[Drawn, ...] = ()
    begins: float | None = None

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "Description":
        """Raises ValueError, TypeError or KeyError where the data is not what the module describes."""
        axis = data["axis"]
        final = tuple(Final(column=str(item["column"]), take=item.get("take", "last")) for item in data["final"])
        for item in final:
            if item.take not in _TAKES:
                raise ValueError(f"{item.column}: take is one of {', '.join(_TAKES)}, found {item.take!r}")
        drawn = tuple(
            Drawn(column=str(item["column"]), name=str(item.get("name", "")), unit=str(item.get("unit", "")))
            for item in data["drawn"]
        )
        begins = data.get("begins")
        return cls(
            axis=str(axis["column"]),
            axis_name=str(axis.get("name", "")),
            final=final,
            drawn=drawn,
            begins=None if begins is None else float(begins),
        )

    def keeps(self, column: str) -> bool:
        """True for columns that are shown or drawn."""
        return any(fnmatchcase(column, item.column) for item in (*self.final, *self.drawn))


Points = Sequence[tuple[float, float]]
"""(place on the axis, value), in order of the axis, each place once."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Curve:
    """The metrics behind one artifact.

    Attributes:
        label: what the user calls it.
        begins: where on the axis its work began: 0, or where what it continues had got to; ends: its last row.
        columns: name -> points; rows that lack a column leave it out there.
        rows: how many rows count; attempts: how many attempts wrote them; replaced: rows that a later attempt redid.
        wall_seconds: of all those attempts together; None where one of them was killed and its time is not known.
        gaps: (from, to) on the axis where an attempt was killed before it had written its rows.
        unread: lines that are not JSON, the last line of a killed attempt for one.
    """

    label: str
    description: Description
    begins: float
    ends: float
    columns: Mapping[str, Points]
    rows: int
    attempts: int = 1
    replaced: int = 0
    wall_seconds: float | None = None
    gaps: tuple[tuple[float, float], ...] = ()
    unread: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Part:
    """One attempt: its files of rows, and what it says about them."""

    record: Record
    texts: list[str]
    own: Description | None

    @property
    def begins(self) -> float | None:
        return self.own.begins if self.own is not None else None


_Rows = list[tuple[float, dict[str, float]]]


def read_curve(store: Store, record: Record, label: str, otherwise: Description | None = None) -> Curve | None:
    """The metrics of all attempts up to the one of `record`; None where none of them left rows that can be read.

    `otherwise` is how rows are read that nothing is said about; without it their first column is the axis.
    """
    parts = [
        _Part(record=found, texts=_texts(store, found), own=_description(store, found))
        for found in _attempts(store, record)
    ]
    description = next((part.own for part in reversed(parts) if part.own is not None), otherwise)
    if description is None:
        description = next((made for part in parts if (made := _by_first_column(part.texts))), None)
    return _joined(label, description, parts) if description is not None else None


def _attempts(store: Store, record: Record) -> list[Record]:
    """Oldest first, by number."""
    return [found for found in reversed(store.attempts(record.address)) if found.number <= record.number]


def _texts(store: Store, record: Record) -> list[str]:
    folder = f"{record.address}/.step/attempts/{record.attempt}"
    # `names` sorts, so numbered parts come in order.
    names = [name for name in store.files.names(folder) if name.startswith("metrics") and name.endswith(".jsonl")]
    found = store.files.read_many(f"{folder}/{name}" for name in names)
    return [found[f"{folder}/{name}"].decode(errors="replace") for name in names if f"{folder}/{name}" in found]


def _description(store: Store, record: Record) -> Description | None:
    data = store.files.read(f"{record.address}/.step/attempts/{record.attempt}/{DESCRIPTION}")
    try:
        return Description.of(json.loads(data)) if data is not None else None
    except (ValueError, TypeError, KeyError):  # cut short, or another program's: as if there was none
        return None


def _by_first_column(texts: Sequence[str]) -> Description | None:
    """Rows of before descriptions were written: the first column is the axis, and every other one is shown."""
    for text in texts:
        for line in text.splitlines():
            row = _row(line)
            if row:
                axis, *others = row
                return Description(axis=axis, axis_name=axis, final=tuple(Final(column=name) for name in others))
    return None


def _row(line: str) -> dict[str, float] | None:
    """The numbers of one row; None where the line is no row."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    return {k: v for k, v in found.items() if isinstance(v, int | float) and not isinstance(v, bool)}


def _rows(texts: Sequence[str], description: Description) -> tuple[_Rows, int]:
    """Place on the axis and the columns that are kept, of every row; and how many lines are no rows."""
    rows: _Rows = []
    unread = 0
    kept: dict[str, bool] = {}
    for text in texts:
        for line in text.splitlines():
            row = _row(line)
            at = row.get(description.axis) if row else None
            if row is None or at is None or not math.isfinite(at):
                unread += bool(line.strip())
                continue
            for name in row.keys() - kept.keys():
                kept[name] = description.keeps(name)
            rows.append((float(at), {name: float(value) for name, value in row.items() if kept[name]}))
    return rows, unread


def _joined(label: str, description: Description, parts: list[_Part]) -> Curve | None:
    """One curve: from where an attempt begins (or its first row, where it does not say), it replaces earlier rows."""
    found = [_rows(part.texts, description) for part in parts]
    counting: list[tuple[_Part, _Rows]] = []
    replaced = 0
    for part, (rows, _) in zip(parts, found, strict=True):
        if not rows:
            continue
        begins, first = part.begins, min(at for at, _ in rows)
        earlier = [
            (before, [row for row in kept if (row[0] < first if begins is None else row[0] <= begins)])
            for before, kept in counting
        ]
        replaced += sum(len(kept) for _, kept in counting) - sum(len(kept) for _, kept in earlier)
        counting = [(before, kept) for before, kept in earlier if kept] + [(part, rows)]
    if not counting:
        return None
    merged: dict[float, dict[str, float]] = {}
    for at, values in (row for _, rows in counting for row in rows):
        merged[at] = merged.get(at, {}) | values
    places = sorted(merged)
    columns: dict[str, list[tuple[float, float]]] = {}
    for at in places:
        for name, value in merged[at].items():
            columns.setdefault(name, []).append((at, value))
    told = [part.begins for part in parts if part.begins is not None]
    begins = min(told) if told else places[0]
    seconds = [part.record.wall_seconds for part, _ in counting]
    return Curve(
        label=label,
        description=description,
        begins=begins,
        ends=places[-1],
        columns=columns,
        rows=len(places),
        attempts=len(counting),
        replaced=replaced,
        wall_seconds=sum(seconds) if all(seconds) else None,
        gaps=_gaps(begins, places, [part.begins for part, _ in counting]),
        unread=sum(unread for _, unread in found),
    )


def _gaps(begins: float, places: list[float], resumed: list[float | None]) -> tuple[tuple[float, float], ...]:
    """Before each place at which work was taken up: where nothing was logged for longer than rows lie apart."""
    found = []
    steps = [after - before for before, after in itertools.pairwise(places)]
    for place in resumed:
        if place is None or place <= begins:
            continue
        last = max((at for at in places if at <= place), default=begins)
        following = min((at for at in places if at > place), default=place)
        usual = statistics.median(steps) if steps else following - place
        if place - last > usual:
            found.append((last, place))
    return tuple(found)
