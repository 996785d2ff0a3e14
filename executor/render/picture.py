"""A picture of two runs: for each drawn metric both curves over the axis, and their difference below.

The format is that of the file's name (svg, png, pdf). Matplotlib is imported only when a picture is drawn.
"""

import math
import os
from typing import Any

from executor.comparing.alignment import Aligned, DrawnPair
from executor.comparing.metrics import Points
from executor.errors import UsageError

FORMATS = ("svg", "png", "pdf")
_MOST_VECTOR_POINTS = 4000
"""Longer lines are pixels inside an SVG: weeks of rows would make it megabytes."""
_COLORS = {"a": "#1b6ca8", "b": "#d1495b", "difference": "#444444"}


def check_picture(path: str) -> None:
    """Raise UsageError for a file name whose format cannot be drawn."""
    ending = os.path.splitext(path)[1].removeprefix(".").lower()
    if ending not in FORMATS:
        raise UsageError(f"--picture {path}: a picture is one of {', '.join(FORMATS)}, by the end of its name")


def draw(aligned: Aligned, path: str, *, step: str = "") -> None:
    """Write the picture. Raises UsageError where there is nothing to draw, or the format is not known."""
    check_picture(path)
    pairs = [pair for pair in aligned.drawn if pair.a or pair.b]
    if not pairs:
        raise UsageError(f"--picture {path}: the two runs offer no metric to draw (`drawn` in their metrics.json)")
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2 * len(pairs), 5.6), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    layout = figure.get_layout_engine()
    assert layout is not None
    layout.set(w_pad=0.1, h_pad=0.08)  # pyright: ignore[reportCallIssue]
    grid = figure.subplots(2, len(pairs), sharex=True, squeeze=False, height_ratios=(2, 1))
    labels = _labels(aligned)
    for number, pair in enumerate(pairs):
        _draw_pair(aligned, pair, grid[0][number], grid[1][number])
    lines = grid[0][0].get_lines()
    figure.legend(lines, labels, loc="outside upper left", ncols=1, frameon=False, fontsize=9)
    if step:
        figure.suptitle(step, fontsize=11)
    # Equal data give an equal file: no date, and names of parts that do not change from run to run.
    with matplotlib.rc_context({"svg.hashsalt": "marinade", "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None} if path.lower().endswith(".svg") else None)


def _labels(aligned: Aligned) -> list[str]:
    return [f"a  {_short(aligned.a.label)}", f"b  {_short(aligned.b.label)}"]


def _short(label: str, most: int = 90) -> str:
    return label if len(label) <= most else "…" + label[-most + 1 :]


def _draw_pair(aligned: Aligned, pair: DrawnPair, curves: Any, difference: Any) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    for name, points in (("a", pair.a), ("b", pair.b)):
        _plot(curves, points, _COLORS[name], marker="." if len(points) <= 30 else "")
    curves.set_title(pair.drawn.name or pair.drawn.column, fontsize=10)
    if pair.drawn.unit:
        curves.set_ylabel(pair.drawn.unit, fontsize=9)
    difference.axhline(0, color="#bbbbbb", linewidth=0.8)
    _plot(difference, pair.difference, _COLORS["difference"], marker="." if len(pair.difference) <= 30 else "")
    difference.set_ylabel("b - a", fontsize=9)
    difference.set_xlabel(aligned.axis_name, fontsize=9)
    difference.xaxis.set_major_locator(MaxNLocator(5))
    difference.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _place(value)))
    for axes in (curves, difference):
        axes.tick_params(labelsize=8)
        axes.grid(color="#eeeeee", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)


def _plot(axes: Any, points: Points, color: str, marker: str) -> None:
    finite = [(at, value) for at, value in points if math.isfinite(value)]
    axes.plot(
        [at for at, _ in finite],
        [value for _, value in finite],
        color=color,
        linewidth=1.2,
        marker=marker,
        rasterized=len(finite) > _MOST_VECTOR_POINTS,
    )


def _place(value: float) -> str:
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"
