"""The scaling law of the ladder: a power of compute above a fixed asymptote. NumPy only, no I/O.

    law = fit(flops=[...], losses=[...], asymptote=1.5)      L(C) = asymptote + amplitude * C ** -exponent
    law.loss(2.6e24)

Source of the method: plot_scaling_ladder.py of marin-community/marin (docs/hero.md, section 2). Loss in nats per
token, C in training FLOPs without the head.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np


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


def predict(flops: Sequence[float], losses: Sequence[float], *, target: float, asymptote: float) -> Prediction:
    """Loss at `target` FLOPs, with the range over fits that leave one rung out (three rungs or more)."""
    loss = fit(flops, losses, asymptote=asymptote).loss(target)
    others = [loss]
    if len(flops) > 2:
        for left_out in range(len(flops)):
            kept = [index for index in range(len(flops)) if index != left_out]
            law = fit([flops[i] for i in kept], [losses[i] for i in kept], asymptote=asymptote)
            others.append(law.loss(target))
    return Prediction(loss=loss, low=min(others), high=max(others))


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
