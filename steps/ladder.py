"""How a family scales: steps of a rung, learning rates, and where phases begin. Pure arithmetic.

The ladder's small models and the hero follow one set of rules, so that what is fitted on the former says something
about the latter (docs/hero.md, sections 2 and 3).

Letters: T tokens of the whole run, d hidden width, B tokens per batch.
"""

import dataclasses
import math

from steps.train.config import MomentsConfig, OptimizerConfig

TOKENS_PER_ACTIVE = 791
"""Tokens per active parameter on the real ladder."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Heuristic:
    """The hero's rule for optimizer settings, fitted by the lab at small scale (docs/hero.md, section 3).

    adam = min(cap, scale T^tokens_power d^hidden_power sqrt(B)); MuonH's rate is `muonh_ratio` times that, capped too.
    """

    scale: float = 0.087571
    tokens_power: float = -0.3461
    hidden_power: float = -0.3448
    muonh_ratio: float = 13 / 3
    cap: float = 0.05
    epsilon_scale: float = 9.676e-18
    beta2_per_block: float = 0.999
    beta2_block: int = 131_072

    def optimizer(self, *, tokens: int, hidden: int, tokens_per_batch: int) -> OptimizerConfig:
        """Optimizer settings of a run of `tokens` tokens at width `hidden`."""
        root = math.sqrt(tokens_per_batch)
        adam = min(self.cap, self.scale * tokens**self.tokens_power * hidden**self.hidden_power * root)
        beta2 = self.beta2_per_block ** (tokens_per_batch / self.beta2_block)
        return OptimizerConfig(
            learning_rate=min(self.cap, self.muonh_ratio * adam),
            adam_learning_rate=adam,
            moments=MomentsConfig(
                beta2=min(0.9999, max(0.95, beta2)), epsilon=self.epsilon_scale * math.sqrt(tokens / tokens_per_batch)
            ),
        )


def rung_steps(*, parameters_active: int, tokens_per_active: float, tokens_per_batch: int) -> int:
    """Optimizer steps of a rung: round(tokens_per_active * active / tokens per batch), at least one."""
    return max(1, round(tokens_per_active * parameters_active / tokens_per_batch))


def aligned_step(*, progress: float, horizon_steps: int, batch_size: int, block_size: int) -> int:
    """The last step at or before `progress` of the horizon at which a mixture block ends.

    Args:
        progress: in (0, 1).
        batch_size, block_size: in sequences.

    Raises:
        ValueError: no whole step lies on a block boundary that early.
    """
    steps_per_alignment = math.lcm(batch_size, block_size) // batch_size
    step = int(progress * horizon_steps) // steps_per_alignment * steps_per_alignment
    if step == 0:
        raise ValueError(
            f"no mixture block ends at a step before {progress:.0%} of {horizon_steps} steps: blocks of {block_size} "
            f"sequences and batches of {batch_size} meet every {steps_per_alignment} steps; take a smaller block_size"
        )
    return step
