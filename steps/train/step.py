"""The training step: from token caches to a checkpoint, resumable at any moment."""

from typing import Any

from steps.train.config import TrainConfig


def train(config: TrainConfig, output: str) -> dict[str, Any] | None:
    """Train `config.model` from `config.start` (or from scratch) to `config.until_step`.

    Writes `checkpoints/step-N/` (Levanter checkpoints with optimizer state, router bias and history, each published
    as a milestone), `history.json` with losses and evaluations of the whole run so far, and `throughput.json` with
    this attempt's median rate. Metrics go to the attempt's log folder. An earlier attempt that was cut short is
    continued from its newest complete checkpoint.
    """
    from steps.train.loop import run

    return run(config, output)
