"""Figures of the real run that the forecast is held against, each with its public source. Data only.

Numbers of the form #N are issues and pull requests of marin-community/marin.
"""

import dataclasses
import math

HERO_FLOPS = 2.6108941613772703e24
"""Training FLOPs of the hero without the head, at 100% (#8435, reproduced exactly from its shape)."""

ASYMPTOTE = 1.5
"""Loss that no amount of compute would beat, held fixed in the fit (plot_scaling_ladder.py)."""

OFFICIAL_PREDICTION = 2.039
"""The hero's loss at 100% as predicted by the run's own code before it started (#8435)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublishedRung:
    """One rung's end: training FLOPs without the head, and dropless macro validation loss in nats per token."""

    name: str
    flops: float
    loss: float


COMPLETE_RUNGS = (
    PublishedRung(name="d768", flops=2.649679880270119e19, loss=3.0154),
    PublishedRung(name="d1024", flops=1.7261182741798453e20, loss=2.7809),
    PublishedRung(name="d1536", flops=1.3813258500033133e21, loss=2.5638),
)
"""Rungs that ran to their end: FLOPs from the run's code, losses from its public metrics (third-party archive)."""

PARTIAL_RUNG = PublishedRung(name="d2048", flops=7.741814947656449e21, loss=2.41)
"""The rung that crashed at about 80%. Its loss at 100% is derived (a line through 60 to 80%, plus 0.005)."""

PARTIAL_RUNG_LAST_PROGRESS = 0.8
PARTIAL_RUNG_LAST_LOSS = 2.4745
"""Its last measured loss, which belongs to 80% of its FLOPs and not to its end."""

LAW_LOG_AMPLITUDE, LAW_EXPONENT = 4.417787153904886, 0.08948863704877295
"""`steps.scaling.fit` of the complete rungs above `ASYMPTOTE`, kept as numbers so that a plan needs no NumPy."""


def loss_by_published_ladder(flops: float) -> float:
    """Loss that the law through the published rungs gives for a member of the real family on the real run's data.

    `flops` are those of the whole run without the head. Nats per token, dropless macro validation loss.
    """
    return ASYMPTOTE + math.exp(LAW_LOG_AMPLITUDE - LAW_EXPONENT * math.log(flops))
