"""The scaling law of the ladder: a power of compute above an asymptote. Numbers only, no I/O.

    law = fit(flops=[...], losses=[...], asymptote=1.5)      L(C) = asymptote + amplitude * C ** -exponent
    law.loss(2.6e24)

Source of the method: plot_scaling_ladder.py of marin-community/marin (docs/hero.md, section 2). Loss in nats per
token, C in training FLOPs without the head.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from steps.scaling_method import FEWEST_RUNGS, Method


@dataclasses.dataclass(frozen=True, kw_only=True)
class PowerLaw:
    """L(C) = asymptote + exp(log_amplitude) * C ** -exponent."""

    asymptote: float
    log_amplitude: float
    exponent: float

    def loss(self, flops: float) -> float:
        return self.asymptote + math.exp(self.log_amplitude - self.exponent * math.log(flops))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prediction:
    """A predicted loss; `low` and `high` span the predictions with any one rung left out, and the prediction."""

    loss: float
    low: float
    high: float


def fit(flops: Sequence[float], losses: Sequence[float], *, asymptote: float) -> PowerLaw:
    """Least squares of log(loss - asymptote) on log(flops).

    Raises:
        ValueError: fewer than two different amounts of compute, or a loss at or below the asymptote.
    """
    if len(flops) != len(losses) or len(set(flops)) < 2:
        raise ValueError(f"a power law needs two or more rungs of different compute, found compute {list(flops)}")
    below = [loss for loss in losses if not loss > asymptote]
    if below:
        raise ValueError(
            f"the asymptote must lie below every loss: asymptote {asymptote}, found losses {below}; "
            "lower ForecastConfig.asymptote"
        )
    x = np.log(np.asarray(flops, np.float64))
    y = np.log(np.asarray(losses, np.float64) - asymptote)
    slope = float(np.sum((x - x.mean()) * (y - y.mean())) / np.sum((x - x.mean()) ** 2))
    return PowerLaw(asymptote=asymptote, log_amplitude=float(y.mean() - slope * x.mean()), exponent=-slope)


def fit_free(flops: Sequence[float], losses: Sequence[float]) -> PowerLaw:
    """The same with the asymptote fitted too: the one, from 0 up to the lowest loss, whose law leaves least.

    Three rungs determine it exactly, so that nothing is left to tell a law from a bend.

    Raises:
        ValueError: fewer than three different amounts of compute.
    """
    from scipy.optimize import minimize_scalar

    if len(set(flops)) < 3:
        raise ValueError(f"a free asymptote needs three or more rungs of different compute, found {list(flops)}")

    def left(asymptote: float) -> float:
        law = fit(flops, losses, asymptote=asymptote)
        return sum(
            math.log((law.loss(c) - asymptote) / (loss - asymptote)) ** 2 for c, loss in zip(flops, losses, strict=True)
        )

    highest = min(losses) * (1 - 1e-6)
    grid = np.linspace(0.0, highest, 200)
    best = int(np.argmin([left(asymptote) for asymptote in grid]))
    bounds = (grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)])
    found = minimize_scalar(left, bounds=bounds, method="bounded", options={"xatol": 1e-9})
    return fit(flops, losses, asymptote=float(found.x))


def laws(
    flops: Sequence[float], curves: Sequence[Sequence[float]], *, asymptote: float, method: Method = "per-checkpoint"
) -> list[PowerLaw]:
    """A law for each mark, of the compute that has been spent there.

    Args:
        flops: of each rung's whole run.
        curves: of each rung its loss at every mark, even parts of its progress.

    Raises:
        ValueError: see `fit` and `fit_free`.
    """
    marks = len(curves[0])
    spent = [[rung * (index + 1) / marks for rung in flops] for index in range(marks)]
    there = [[curve[index] for curve in curves] for index in range(marks)]
    if method == "free-asymptote":
        return [fit_free(x, y) for x, y in zip(spent, there, strict=True)]
    each = [fit(x, y, asymptote=asymptote) for x, y in zip(spent, there, strict=True)]
    if method == "per-checkpoint":
        return each
    shared = sum(law.exponent for law in each) / marks
    middle = [float(np.mean(np.log(x))) for x in spent]
    return [
        PowerLaw(
            asymptote=asymptote,
            log_amplitude=law.log_amplitude + (shared - law.exponent) * x,
            exponent=shared,
        )
        for law, x in zip(each, middle, strict=True)
    ]


def predict_curve(
    flops: Sequence[float],
    curves: Sequence[Sequence[float]],
    *,
    target: float,
    asymptote: float,
    method: Method = "per-checkpoint",
) -> list[Prediction]:
    """Loss at every mark of a run of `target` FLOPs, with the range over fits that leave one rung out.

    Where leaving one out leaves too few (two rungs, three for a free asymptote) the range is the prediction alone.
    """
    marks = len(curves[0])

    def losses(kept: Sequence[int]) -> list[float]:
        fitted = laws([flops[i] for i in kept], [curves[i] for i in kept], asymptote=asymptote, method=method)
        return [law.loss(target * (index + 1) / marks) for index, law in enumerate(fitted)]

    everyone = range(len(flops))
    found = [losses(everyone)]
    if len(flops) > FEWEST_RUNGS[method]:
        found += [losses([other for other in everyone if other != left_out]) for left_out in everyone]
    spans = list(zip(*found, strict=True))
    return [Prediction(loss=span[0], low=min(span), high=max(span)) for span in spans]


def predict(flops: Sequence[float], losses: Sequence[float], *, target: float, asymptote: float) -> Prediction:
    """Loss at the end of a run of `target` FLOPs, from the rungs' losses at their ends."""
    return predict_curve(flops, [[loss] for loss in losses], target=target, asymptote=asymptote)[0]


def loss_at_marks(
    curve: Sequence[tuple[float, float]], *, marks: int, window: tuple[float, float] = (0.6, 0.8), offset: float = 0.005
) -> list[float]:
    """Loss of a run at each of `marks` even parts of its progress.

    Each is the measurement nearest the mark. From the first mark that no measurement comes within half a mark of, a
    run that stopped early goes on along a straight line through the measurements inside `window`, plus `offset`,
    which stands for what a decaying learning rate still gains.

    Args:
        curve: (progress in (0, 1], loss), in order.

    Raises:
        ValueError: nothing was measured, or a stopped run has fewer than two measurements in the window.
    """
    if not curve:
        raise ValueError("a rung without a single evaluation cannot be used in a forecast")
    progress, losses = np.asarray(curve, np.float64).T
    last = float(progress.max())
    found = []
    for mark in range(1, marks + 1):
        at = mark / marks
        if at <= last + 0.5 / marks:
            found.append(float(losses[np.argmin(np.abs(progress - at))]))
        else:
            found.append(_line(progress, losses, window, last)(at) + offset)
    return found


def _line(progress: np.ndarray, losses: np.ndarray, window: tuple[float, float], last: float) -> np.poly1d:
    inside = (progress >= window[0] - 1e-9) & (progress <= window[1] + 1e-9)
    if inside.sum() < 2:
        raise ValueError(
            f"a rung stopped at {last:.0%} of its progress; to be extended it needs two or more evaluations between "
            f"{window[0]:.0%} and {window[1]:.0%}, found {int(inside.sum())}; leave it out or train it on"
        )
    return np.poly1d(np.polyfit(progress[inside], losses[inside], 1))
