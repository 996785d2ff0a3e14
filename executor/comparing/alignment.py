"""Two curves of metrics side by side, aligned on their axis. Data only; `executor.render.curves` shows it.

    aligned = align(a, b)
    aligned.final     each column at the end of both
    aligned.marks     both at a quarter, half, three quarters and all of what they share of the axis
    aligned.drawn     the curves, and their difference

Nothing is interpolated: the value at a place is that of the nearest row at or before it, and the place of that row is
kept. The curves may log at different intervals, end at different places, and begin at different ones (a fork).
"""

import bisect
import dataclasses
import math
from collections.abc import Iterator
from fnmatch import fnmatchcase

from executor.comparing.metrics import TAIL, Curve, Drawn, Points, Take
from executor.errors import MarinadeError

MARKS = (0.25, 0.5, 0.75, 1.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinalValue:
    """One column at the end of each run; None where a run has no such column."""

    column: str
    take: Take
    a: float | None
    b: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class MarkValue:
    """One column at a mark: the values at the nearest rows at or before it, and where these are; None for no row."""

    column: str
    a: float | None
    b: float | None
    a_at: float | None
    b_at: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mark:
    """A place on the axis and what both have there."""

    at: float
    values: tuple[MarkValue, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DrawnPair:
    """Two curves of one column and b - a, which is taken at the places of the one that logs less often."""

    drawn: Drawn
    a: Points
    b: Points
    difference: Points


@dataclasses.dataclass(frozen=True, kw_only=True)
class Aligned:
    """Two curves side by side; `shared` is the part of the axis that both cover, None where there is none."""

    a: Curve
    b: Curve
    axis_name: str
    shared: tuple[float, float] | None
    final: tuple[FinalValue, ...]
    marks: tuple[Mark, ...]
    drawn: tuple[DrawnPair, ...]

    @property
    def largest_lag(self) -> float:
        """How far before its mark the farthest row lies that was taken."""
        places = ((m.at, at) for m in self.marks for value in m.values for at in (value.a_at, value.b_at))
        return max((mark - at for mark, at in places if at is not None), default=0.0)


def align(a: Curve, b: Curve) -> Aligned:
    """Raises MarinadeError where the two are not on one axis."""
    description = b.description
    if a.description.axis != description.axis:
        raise MarinadeError(
            f"{a.label} is measured along {a.description.axis} and {b.label} along {description.axis}: "
            "they have no axis in common"
        )
    begin, end = max(a.begins, b.begins), min(a.ends, b.ends)
    shared = (begin, end) if begin < end else None
    columns = [item for item in description.drawn if item.column in a.columns or item.column in b.columns]
    marks = [begin + (end - begin) * part for part in MARKS] if shared else []
    return Aligned(
        a=a,
        b=b,
        axis_name=description.axis_name or description.axis,
        shared=shared,
        final=tuple(_final(a, b)),
        marks=tuple(Mark(at=at, values=tuple(_at(a, b, item.column, at) for item in columns)) for at in marks),
        drawn=tuple(_pair(a, b, item, shared) for item in columns),
    )


def _final(a: Curve, b: Curve) -> Iterator[FinalValue]:
    shown: set[str] = set()
    for item in (*b.description.final, *a.description.final):
        for column in dict.fromkeys([*a.columns, *b.columns]):
            if column not in shown and fnmatchcase(column, item.column):
                shown.add(column)
                yield FinalValue(
                    column=column, take=item.take, a=_taken(a, column, item.take), b=_taken(b, column, item.take)
                )


def _taken(curve: Curve, column: str, take: Take) -> float | None:
    points = curve.columns.get(column)
    if not points:
        return None
    if take == "last":
        return points[-1][1]
    since = curve.ends - (curve.ends - curve.begins) / TAIL if take == "tail" else -math.inf
    values = [value for at, value in points if at > since] or [points[-1][1]]
    return sum(values) / len(values)


def _at(a: Curve, b: Curve, column: str, at: float) -> MarkValue:
    found_a, found_b = (_before(curve.columns.get(column, ()), at) for curve in (a, b))
    return MarkValue(
        column=column,
        a=found_a[1] if found_a else None,
        b=found_b[1] if found_b else None,
        a_at=found_a[0] if found_a else None,
        b_at=found_b[0] if found_b else None,
    )


def _before(points: Points, at: float) -> tuple[float, float] | None:
    """The nearest point at or before a place."""
    number = bisect.bisect_right(points, at, key=lambda point: point[0])
    return points[number - 1] if number else None


def _pair(a: Curve, b: Curve, item: Drawn, shared: tuple[float, float] | None) -> DrawnPair:
    points_a, points_b = a.columns.get(item.column, ()), b.columns.get(item.column, ())
    begin, end = shared or (math.inf, -math.inf)
    inside_a, inside_b = ([at for at, _ in points if begin <= at <= end] for points in (points_a, points_b))
    difference = []
    for at in min(inside_a, inside_b, key=len):
        found_a, found_b = _before(points_a, at), _before(points_b, at)
        if found_a and found_b:
            difference.append((at, found_b[1] - found_a[1]))
    return DrawnPair(drawn=item, a=points_a, b=points_b, difference=tuple(difference))
