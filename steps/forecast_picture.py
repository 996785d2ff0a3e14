"""Pictures of a forecast: the fit through the ladder, and the predicted curve beside what came true."""

import io
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from steps.scaling import PowerLaw


def draw(forecast: dict[str, Any], actual: list[tuple[float, float]] | None = None) -> bytes:
    """PNG of the final fit (left) and the curve over progress (right); `actual` is (progress, loss) of the hero."""
    figure = Figure(figsize=(10, 4), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    ladder, curve = figure.subplots(1, 2)
    _draw_ladder(ladder, forecast)
    _draw_curve(curve, forecast, actual or [])
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def _draw_ladder(axes: Any, forecast: dict[str, Any]) -> None:
    points, target = forecast["marks"][-1]["points"], float(forecast["target_flops"])
    flops, losses = [point["flops"] for point in points], [point["loss"] for point in points]
    law = PowerLaw(**forecast["law"])
    over = np.geomspace(min(flops), target, 100)
    axes.plot(over, [law.loss(value) for value in over], color="tab:gray", label=f"C^-{law.exponent:.3f}")
    axes.scatter(flops, losses, color="tab:blue", zorder=3, label="rungs")
    final = forecast["final"]
    spread = [[final["loss"] - final["low"]], [final["high"] - final["loss"]]]
    axes.errorbar([target], [final["loss"]], yerr=spread, fmt="*", color="tab:red", label=f"hero {final['loss']:.3f}")
    axes.set(xscale="log", xlabel="training FLOPs without head", ylabel="loss at 100%, nats per token")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_title(f"{forecast['extrapolation_factor']:.1f}x beyond the top rung")
    axes.legend()


def _draw_curve(axes: Any, forecast: dict[str, Any], actual: list[tuple[float, float]]) -> None:
    marks = forecast["marks"]
    progress = [100 * mark["progress"] for mark in marks]
    axes.fill_between(
        progress,
        [m["low"] for m in marks],
        [m["high"] for m in marks],
        color="tab:red",
        alpha=0.2,
        label="leave one out",
    )
    axes.plot(progress, [mark["loss"] for mark in marks], color="tab:red", label="forecast")
    for rung in forecast["rungs"]:
        axes.plot(progress, rung["losses"], color="tab:blue", alpha=0.5, linewidth=1)
    if actual:
        axes.plot([100 * at for at, _ in actual], [loss for _, loss in actual], "k.-", label="hero")
    axes.set(xlabel="progress, %", ylabel="loss, nats per token")
    axes.legend()
