"""What a training step is: model, data, optimizer, schedule, and the part of the run it trains itself.

Pretrain and midtrain are two steps of one run: they share horizon, schedule and data order, and the second starts
from a milestone of the first. Pure arithmetic; recipes build these and plans hash them.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from executor import Input, added, execution
from steps.conversations import ConversationConfig
from steps.mixture import MixtureConfig, Stage, check_alignment
from steps.model.config import ModelConfig
from steps.train.guards import Guard, standard_guards
from steps.train.schedule import ScheduleConfig

CHARTS: dict[str, Any] = {
    "axis": {"column": "throughput/total_tokens", "name": "tokens"},
    "final": [
        {"column": "train/loss", "take": "tail"},
        {"column": "eval/macro_loss"},
        {"column": "eval/*/loss"},
        {"column": "moe/drop_fraction", "take": "mean"},
        {"column": "train/router/routing_entropy_mean"},
        {"column": "throughput/tokens_per_second", "take": "mean"},
    ],
    "drawn": [
        {"column": "train/loss", "name": "training loss", "unit": "nats per token"},
        {"column": "eval/macro_loss", "name": "validation loss", "unit": "nats per token"},
    ],
}
"""How the rows of a training step are read and drawn (executor.comparing.metrics), over the tokens of the run."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MomentsConfig:
    """What MuonH, AdamH and Adam keep of past gradients (the hero's values are the defaults).

    Attributes:
        epsilon: of Adam and AdamH; the hero's rule derives it from the tokens of the run.
    """

    beta1: float = 0.9
    beta2: float = 0.95
    epsilon: float = 1e-15
    muon_momentum: float = 0.95
    muon_epsilon: float = 1e-8
    newton_schulz_steps: int = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class WeightDecayConfig:
    """Decoupled weight decay of some of Adam's parameters; matrices of constant norm need none.

    Attributes:
        coefficient_at_start: multiplied with Adam's rate; it falls linearly to 0 at the horizon. 0.02 in the real run.
        start_step: step of the run after which it begins.
        parameters: their names; the real run's head gates and router.
    """

    coefficient_at_start: float = 0.02
    start_step: int = 0
    parameters: tuple[str, ...] = ("head_gate", "router")

    def coefficient(self, step: int, horizon_steps: int) -> float:
        """In the step that follows `step` finished ones."""
        if step < self.start_step:
            return 0.0
        return self.coefficient_at_start * (horizon_steps - step) / max(1, horizon_steps - self.start_step)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """Learning rates at their peak, and the moments.

    Attributes:
        learning_rate: of MuonH and AdamH.
        adam_learning_rate: of Adam.
        weight_decay: None for none.
    """

    learning_rate: float
    adam_learning_rate: float
    moments: MomentsConfig = MomentsConfig()
    weight_decay: WeightDecayConfig | None = added(default=None, born=None)

    def __post_init__(self) -> None:
        if self.learning_rate <= 0 or self.adam_learning_rate <= 0:
            raise ValueError(
                f"learning rates must be above 0, found learning_rate={self.learning_rate}, "
                f"adam_learning_rate={self.adam_learning_rate}"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """Validation during training.

    Attributes:
        marks: evaluations over the horizon, evenly spaced; the forecast is fitted at the same marks.
        every: further evaluations, every so many steps; 0 for none.
        sequences_per_domain: validation sequences read of each domain, always the same ones.
        batch_size: sequences per forward pass; None takes the training batch.
    """

    marks: int = 20
    every: int = 0
    sequences_per_domain: int = 16
    batch_size: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """When to save; nothing here changes what is trained.

    Attributes:
        permanent_every: steps between permanent checkpoints, each published as a milestone; 0 keeps only the last.
        rolling_seconds: age at which a rolling checkpoint is replaced, for resuming after a kill.
        stop_seconds: time that a run asked to end has to save before it does.
    """

    permanent_every: int = 0
    rolling_seconds: float = 20.0
    stop_seconds: float = 60.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrackerConfig:
    """Where metrics go besides the JSONL file of each attempt.

    Attributes:
        wandb_project: project on Weights & Biases, empty for none; without an API key the run is kept offline.
        every: steps between rows.
        peak_flops: FLOP/s of all devices together, which the model FLOPs utilization is measured against; 0 leaves it
            out.
    """

    wandb_project: str = ""
    every: int = 10
    peak_flops: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class WatchdogConfig:
    """After how long without a finished step the process counts as hung: it says where it stands and ends, and is
    started again from the last checkpoint.

    Attributes:
        step_seconds: of a step, an evaluation or the wait for a checkpoint.
        startup_seconds: until the first step is done: restoring and compiling.
    """

    step_seconds: float = 900.0
    startup_seconds: float = 4800.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """One training step of the pipeline.

    Attributes:
        data: a mixture of token caches, or conversations to fine-tune on. A mixture holds only the stages from
            `start_step` on: the earlier ones come with the checkpoint, so that what a phase reads is one sequence
            over the whole run.
        batch_size: sequences per optimizer step.
        until_step: steps of the run that are done when this step ends (of `schedule.horizon_steps`).
        start: checkpoint to continue from, with optimizer, router bias, step and history; None starts at step 0.
        start_step: the step `start` was taken at, for arithmetic before anything has run.
        initial: checkpoint whose weights and router bias a new run begins with (fine-tuning).
        microbatches: parts that a batch is worked on in, one after the other, for its gradients to fit.
        forecast: the ladder's prediction; read when training starts, shown beside the losses; guards read it too.
        guards: rules that watch the run, by name; none of them changes what is trained.
        rollbacks: rules that do: they go back to a checkpoint and skip batches.
        estimated: sizes and times of the machine meant, as `estimate` shows them.
    """

    model: ModelConfig
    data: MixtureConfig | ConversationConfig
    optimizer: OptimizerConfig
    schedule: ScheduleConfig
    batch_size: int
    until_step: int
    start: Input | None = None
    start_step: int = 0
    initial: Input | None = None
    seed: int = 0
    evaluation: EvaluationConfig = EvaluationConfig()
    microbatches: int = added(default=1, born=1)
    rollbacks: Mapping[str, Guard] = added(default_factory=dict, born={})
    checkpoint: CheckpointConfig = execution(CheckpointConfig())
    trackers: TrackerConfig = execution(TrackerConfig())
    forecast: Input | None = execution(None)
    guards: Mapping[str, Guard] = execution(default_factory=standard_guards)
    watchdog: WatchdogConfig = execution(WatchdogConfig())
    estimated: dict[str, float | int] = execution(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.start_step < self.until_step <= self.schedule.horizon_steps:
            raise ValueError(
                "a training step must train something within the horizon: expected start_step < until_step <= "
                f"horizon_steps, found {self.start_step}, {self.until_step}, {self.schedule.horizon_steps}"
            )
        if (self.start is None) != (self.start_step == 0):
            raise ValueError(
                f"start and start_step belong together, found start_step={self.start_step} with start={self.start}"
            )
        if isinstance(self.data, MixtureConfig):
            check_alignment(self.data, self.batch_size)
        for name, guard in (*self.guards.items(), *self.rollbacks.items()):
            goes_back, twice = name in self.rollbacks, name in self.guards and name in self.rollbacks
            if twice or (guard.action == "rollback") != goes_back:
                raise ValueError(
                    "a guard that goes back and skips batches changes what is trained, so it is part of the identity: "
                    f"expected exactly the guards with action 'rollback' under rollbacks, found {name!r} with "
                    f"{guard.action!r} under {'both' if twice else 'rollbacks' if goes_back else 'guards'}"
                )
        if self.microbatches < 1 or self.batch_size % self.microbatches:
            raise ValueError(
                f"a batch is worked on in equal parts: expected a divisor of batch_size({self.batch_size}), found "
                f"microbatches={self.microbatches}"
            )
        rows = f"batch_size({self.batch_size})" + (
            f" / microbatches({self.microbatches})" if self.microbatches > 1 else ""
        )
        rest = self.batch_size // self.microbatches % self.model.expert_parallel
        if rest:
            raise ValueError(
                "the sequences worked on at once are split over the expert axis: expected 0, found "
                f"{rows} % expert_parallel({self.model.expert_parallel}) = {rest}"
            )

    def amended(
        self,
        *,
        start: Input,
        at_step: int,
        data: Mapping[str, float] | MixtureConfig | None = None,
        horizon: int | None = None,
        sequence_length: int | None = None,
        qk_growth: float = 0.1,
        **changes: Any,
    ) -> "TrainConfig":
        """The rest of this run from its checkpoint `start`, taken at `at_step`, under changes (`Step.amend`).

        Args:
            data: weights of the mixture from the fork on, or a mixture whose stages begin there.
            horizon: another end of the run. The rate falls linearly from where it is to the same fraction of its peak
                there. The forecast is dropped: it was made for the old horizon.
            sequence_length: another context, at as many tokens a step: batch and mixture block shrink as it grows.
                Queries are scaled by `qk_growth * ln(new / old) + 1` (docs/hero.md, section 4). The order of the data
                is one of sequences, so that text read before the fork may come again.
            changes: other fields of this config, as they shall be.

        Raises:
            ValueError: the fork lies outside of this part of the run, or a change that does not fit.
        """
        if not self.start_step < at_step < self.until_step:
            raise ValueError(
                f"an amendment forks within the run it amends: expected {self.start_step} < at_step < "
                f"{self.until_step}, found {at_step}"
            )
        unknown = sorted(set(changes) - {field.name for field in dataclasses.fields(self)})
        if unknown:
            raise ValueError(
                f"a training step has no {', '.join(unknown)}; data, horizon, sequence_length and the fields of "
                "TrainConfig can be amended"
            )
        fields: dict[str, Any] = {"start": start, "start_step": at_step, "initial": None}
        if sequence_length is not None:
            fields |= self._with_context(sequence_length, qk_growth)
        if horizon is not None:
            fields |= self._with_horizon(horizon, at_step)
        if isinstance(data, MixtureConfig):
            fields["data"] = data
        elif data is not None:
            mixture = fields.get("data", self.data)
            fields["data"] = dataclasses.replace(mixture, stages=(Stage(start_step=at_step, weights=data),))
        config = dataclasses.replace(self, **fields | changes)
        return dataclasses.replace(config, estimated=self._estimated(config.until_step - at_step))

    def ending_at(self, step: int) -> "TrainConfig":
        """The first part of this one, to `step`, which it ends with an evaluation."""
        return dataclasses.replace(
            self,
            until_step=step,
            evaluation=dataclasses.replace(self.evaluation, every=step),
            estimated=self._estimated(step - self.start_step),
        )

    def _estimated(self, steps: int) -> dict[str, float | int]:
        """What is estimated of as many steps, instead of all that this config trains."""
        part = steps / (self.until_step - self.start_step)
        scaled = {name: self.estimated[name] * part for name in ("days", "device_hours") if name in self.estimated}
        return {**self.estimated, **scaled}

    def _with_context(self, sequence_length: int, qk_growth: float) -> dict[str, Any]:
        old, data = self.model.sequence_length, self.data
        blocks = data.block_size if isinstance(data, MixtureConfig) else self.batch_size
        if self.batch_size * old % sequence_length or blocks * old % sequence_length:
            raise ValueError(
                "another context keeps the tokens of a batch and of a mixture block: expected a length that divides "
                f"{self.batch_size} x {old} and {blocks} x {old} tokens, found {sequence_length}"
            )
        qk_mult = self.model.qk_mult * (qk_growth * math.log(sequence_length / old) + 1)
        fields: dict[str, Any] = {
            "model": dataclasses.replace(self.model, sequence_length=sequence_length, qk_mult=qk_mult),
            "batch_size": self.batch_size * old // sequence_length,
        }
        if isinstance(data, MixtureConfig):
            fields["data"] = dataclasses.replace(data, block_size=blocks * old // sequence_length)
        return fields

    def _with_horizon(self, horizon: int, at_step: int) -> dict[str, Any]:
        peak = self.optimizer.learning_rate
        if at_step < self.schedule.warmup_steps:
            raise ValueError(f"the rate still rises until step {self.schedule.warmup_steps}, found at_step={at_step}")
        schedule = dataclasses.replace(
            self.schedule,
            horizon_steps=horizon,
            learning_rate=peak * self.schedule.factor(at_step, peak),
            phase_start=at_step,
        )
        until = horizon if self.until_step == self.schedule.horizon_steps else self.until_step
        return {"schedule": schedule, "until_step": until, "forecast": None}

    @property
    def tokens_per_step(self) -> int:
        return self.batch_size * self.model.sequence_length

    def evaluation_steps(self) -> dict[int, float]:
        """Training step -> progress of the run, for every mark of the horizon and what `every` adds."""
        marks, every, horizon = self.evaluation.marks, self.evaluation.every, self.schedule.horizon_steps
        further = {step: step / horizon for step in range(every, horizon + 1, every)} if every else {}
        return further | {max(1, round(horizon * mark / marks)): mark / marks for mark in range(1, marks + 1)}

    def charts(self) -> dict[str, Any]:
        """How the metrics of this step are read: see `executor.comparing.metrics`."""
        return CHARTS

    def numbers(self, until: int | None) -> dict[str, Any]:
        """Sizes and costs of what this step trains itself, up to the training step `until` or to its end."""
        steps = min(until or self.until_step, self.until_step) - self.start_step
        tokens = steps * self.tokens_per_step
        return {
            "parameters_total": self.model.parameters_total,
            "parameters_active": self.model.parameters_active,
            "forward_flops_per_token": self.model.forward_flops_per_token,
            "tokens": tokens,
            "flops_total": self.model.training_flops(tokens),
            **self._estimated(steps),
        }
