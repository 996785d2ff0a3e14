"""The learning-rate schedule: linear warmup, then linear decay to a fraction of the peak.

Pure arithmetic: the loop asks it for a number before each step.
"""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """One schedule over the whole horizon, whichever phases it is trained in.

    Attributes:
        horizon_steps: steps of all phases together; the decay ends there.
        warmup_fraction: part of the horizon over which the rate rises from 0.
        min_ratio: rate at the horizon over the peak.
        learning_rate: rate at `phase_start`, falling linearly from there to the same end, never rising; None keeps
            the schedule. Adam's rate moves by the same factor.
        phase_start: first step of the phase that has a rate of its own.
    """

    horizon_steps: int
    warmup_fraction: float = 0.01
    min_ratio: float = 0.05
    learning_rate: float | None = None
    phase_start: int = 0

    def __post_init__(self) -> None:
        if self.horizon_steps < 1:
            raise ValueError(f"horizon_steps must be at least 1, found {self.horizon_steps}")
        if self.learning_rate is not None and self.learning_rate <= 0:
            raise ValueError(f"learning_rate must be above 0, found {self.learning_rate}")

    @property
    def warmup_steps(self) -> int:
        return int(self.warmup_fraction * self.horizon_steps)

    def factor(self, step: int, peak: float) -> float:
        """Learning rate over its peak in the step that follows `step` finished ones.

        With a rate of its own, `peak` (the schedule's own) turns it into a factor.
        """
        if self.learning_rate is not None:
            done = (step - self.phase_start) / max(1, self.horizon_steps - self.phase_start)
            first = self.learning_rate / peak
            return first + (min(self.min_ratio, first) - first) * done
        decay = (step - self.warmup_steps) / max(1, self.horizon_steps - self.warmup_steps)
        falling = 1 + (self.min_ratio - 1) * decay
        rising = (step + 1) / max(1, self.warmup_steps + 1)
        return min(rising, falling)
