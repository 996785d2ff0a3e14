"""The published ladder with its law up to the hero, and what the laptop's ladder said beside what came true."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from steps.published import ASYMPTOTE, COMPLETE_RUNGS, HERO_FLOPS, OFFICIAL_PREDICTION, PARTIAL_RUNG
from steps.scaling import fit


def draw(found: Mapping[str, Any], path: str) -> None:
    """Left: losses over compute, with the range that leaves one rung out. Right: errors over the factor of compute."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (ladder, errors) = pyplot.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    _draw_ladder(ladder, found["published"])
    _draw_errors(errors, found["laptop"])
    figure.savefig(path, metadata={"Date": None} if path.endswith(".svg") else None)
    pyplot.close(figure)


def _draw_ladder(axes: Any, published: Mapping[str, float]) -> None:
    law = fit([rung.flops for rung in COMPLETE_RUNGS], [rung.loss for rung in COMPLETE_RUNGS], asymptote=ASYMPTOTE)
    over = np.geomspace(COMPLETE_RUNGS[0].flops, HERO_FLOPS, 100)
    axes.plot(over, [law.loss(flops) for flops in over], color="tab:gray", label="law of three rungs")
    axes.plot([r.flops for r in COMPLETE_RUNGS], [r.loss for r in COMPLETE_RUNGS], "o", color="tab:blue", label="rungs")
    axes.plot(PARTIAL_RUNG.flops, PARTIAL_RUNG.loss, "o", mfc="none", color="tab:blue", label="d2048, its end derived")
    predicted = published["prediction"]
    spread = [[predicted - published["low"]], [published["high"] - predicted]]
    axes.errorbar([HERO_FLOPS], [predicted], yerr=spread, fmt="*", color="tab:red", capsize=4, label="hero, predicted")
    axes.plot(HERO_FLOPS, OFFICIAL_PREDICTION, "_", markersize=16, color="black", label="the run's own prediction")
    axes.set(xscale="log", xlabel="training FLOPs without the head", ylabel="loss at the end, nats per token")
    axes.set_title(f"published ladder: {predicted:.4f}")
    axes.legend(fontsize=8)


def _draw_errors(axes: Any, laptop: list[Mapping[str, Any]]) -> None:
    for seed in dict.fromkeys(row["seed"] for row in laptop):
        rows = [row for row in laptop if row["seed"] == seed]
        at = [row["factor"] for row in rows]
        axes.plot(at, [100 * (row["predicted"] / row["actual"] - 1) for row in rows], "o-", label=f"seed {seed}")
    axes.axhspan(-2, 2, color="tab:green", alpha=0.12, label="within 2%")
    axes.axhline(0, color="tab:gray", linewidth=1)
    axes.set(xlabel="compute of the hero over the top rung used", ylabel="predicted / actual - 1, %")
    axes.set_title("laptop ladder")
    axes.legend(fontsize=8)
