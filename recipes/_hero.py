"""The hero's family: settings that describe a run at any scale, its shapes and horizons.

A scale is data. `full` is the real run (docs/hero.md: 18.005T tokens in 390,251 steps of 11,264 x 4,096); `laptop` is
the same pipeline on two cores and the interpreter's own library. A variant changes settings, never this file.
"""

import dataclasses

from infra.topology import Machine, gb200_nvl72, laptop
from recipes._settings import (
    DataSettings,
    FineTuneSettings,
    MidtrainSettings,
    MixtureSettings,
    RunSettings,
    ShapeSettings,
)
from steps.ladder import TOKENS_PER_ACTIVE, Heuristic, aligned_step, rung_steps
from steps.model.config import ModelConfig
from steps.scaling_method import Method
from steps.train.config import CheckpointConfig, EvaluationConfig, TrackerConfig, WatchdogConfig
from steps.train.estimate import HERO_MFU, LAPTOP_MFU, RUNG_MFU
from steps.train.guards import Guard, standard_guards


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeroSettings:
    """Everything a recipe of this family can be asked to change with `--set`.

    Attributes:
        tokens_per_active: tokens per active parameter of a run without `steps`.
        ladder: rungs by name.
        max_evaluated_sequences: validation sequences per domain of the final evaluation; None reads all.
        asymptote: of the forecast's law, nats per token.
        forecast_method: how its law is fitted (steps/scaling_method.py).
        is_published: the shapes and data are the real run's, so that its published rungs say what to expect before
            ours have run.
        swap: whether the mixture is swapped at `mixture.swap_step`.
        guards: rules that watch every training step; `--set guards.forecast_twice.action=note` keeps one from pausing.
        rollbacks: rules that go back and skip batches, which changes what is trained.
    """

    machine: Machine
    data: DataSettings
    mixture: MixtureSettings
    shape: ShapeSettings = ShapeSettings()
    tokens_per_active: float = TOKENS_PER_ACTIVE
    ladder: dict[str, RunSettings]
    hero: RunSettings
    midtrain: MidtrainSettings = MidtrainSettings()
    fine_tune: FineTuneSettings
    evaluation: EvaluationConfig
    max_evaluated_sequences: int | None = None
    checkpoint: CheckpointConfig
    trackers: TrackerConfig = TrackerConfig()
    watchdog: WatchdogConfig = WatchdogConfig()
    guards: dict[str, Guard] = dataclasses.field(default_factory=standard_guards)
    rollbacks: dict[str, Guard] = dataclasses.field(default_factory=dict)
    heuristic: Heuristic = Heuristic()
    asymptote: float = 1.5
    forecast_method: Method = "per-checkpoint"
    is_published: bool = False
    swap: bool = False
    seed: int = 0

    @classmethod
    def at_scale(cls, scale: str) -> "HeroSettings":
        """The run as it is at `laptop` or `full`."""
        scales = {"laptop": laptop_settings, "full": full_settings}
        if scale not in scales:
            raise ValueError(f"unknown scale {scale!r}; this recipe knows {', '.join(scales)}")
        return scales[scale]()


def model_of(settings: HeroSettings, run: RunSettings) -> ModelConfig:
    """The shape of one member of the family."""
    shape = settings.shape
    model = ModelConfig.of_family(
        hidden=run.hidden,
        num_layers=run.num_layers,
        vocab_size=settings.data.vocab_size,
        head_dim=shape.head_dim,
        num_experts=shape.num_experts,
        top_k=shape.top_k,
        window=shape.window,
        sequence_length=shape.sequence_length,
        gated_norm_rank=shape.gated_norm_rank,
        capacity_factor=shape.capacity_factor,
        expert_parallel=shape.expert_parallel,
    )
    return dataclasses.replace(
        model,
        compute_dtype=shape.compute_dtype,
        pair_capacity_factor=shape.pair_capacity_factor,
        remat=shape.remat,
    )


def horizon_of(settings: HeroSettings, run: RunSettings) -> int:
    """Optimizer steps of one run, as given or by the ladder's rule."""
    if run.steps is not None:
        return run.steps
    return rung_steps(
        parameters_active=model_of(settings, run).parameters_active,
        tokens_per_active=settings.tokens_per_active,
        tokens_per_batch=run.batch_size * settings.shape.sequence_length,
    )


def cooldown_of(settings: HeroSettings, run: RunSettings) -> int:
    """The step at which a run's cooldown begins."""
    return aligned_step(
        progress=settings.mixture.cooldown_from,
        horizon_steps=horizon_of(settings, run),
        batch_size=run.batch_size,
        block_size=settings.mixture.block_size,
    )


def laptop_settings() -> HeroSettings:
    """Two cores, the interpreter's own library, minutes."""
    initial = {"prose": 0.15, "docstrings": 0.30, "code": 0.55}
    hero = RunSettings(hidden=96, num_layers=4, batch_size=4, mfu=LAPTOP_MFU)
    settings = HeroSettings(
        machine=laptop(),
        data=DataSettings(domains=tuple(initial), vocab_size=2048),
        mixture=MixtureSettings(
            initial=initial,
            swapped={"prose": 0.15, "docstrings": 0.45, "code": 0.40},
            cooldown={"prose": 0.20, "docstrings": 0.45, "code": 0.35},
            swap_step=0,
            block_size=32,
        ),
        shape=ShapeSettings(
            head_dim=16,
            num_experts=16,
            top_k=4,
            window=64,
            sequence_length=256,
            gated_norm_rank=8,
            capacity_factor=1.25,
            pair_capacity_factor=None,
            expert_parallel=2,
            compute_dtype="float32",
            remat="experts",
        ),
        tokens_per_active=2.5,
        ladder={f"d{hidden}": dataclasses.replace(hero, hidden=hidden) for hidden in (48, 64, 80)},
        hero=hero,
        fine_tune=FineTuneSettings(steps=150, batch_size=4),
        evaluation=EvaluationConfig(sequences_per_domain=16),
        checkpoint=CheckpointConfig(),
    )
    return _forking_at(settings, 108_000 / 390_251)


def _forking_at(settings: HeroSettings, progress: float) -> HeroSettings:
    """The settings with the swap at the last block before `progress`, and a permanent checkpoint there."""
    step = aligned_step(
        progress=progress,
        horizon_steps=horizon_of(settings, settings.hero),
        batch_size=settings.hero.batch_size,
        block_size=settings.mixture.block_size,
    )
    return dataclasses.replace(
        settings,
        mixture=dataclasses.replace(settings.mixture, swap_step=step),
        checkpoint=dataclasses.replace(settings.checkpoint, permanent_every=step),
    )


# Topic -> percent of the mixture: initially, after the swap, in the cooldown (docs/hero.md, section 4).
_TOPICS = {
    "performance_and_low_level_code": (9.0, 10.6, 11.4),
    "software_infrastructure": (9.3, 8.3, 8.0),
    "command_line_agents": (1.3, 6.0, 6.6),
    "web_and_general_code": (7.9, 4.5, 3.1),
    "natural_science": (8.8, 6.9, 11.3),
    "history_and_literature": (6.9, 3.7, 3.7),
    "finance": (5.6, 2.4, 2.8),
    "mathematics": (4.3, 1.8, 1.4),
    "law": (1.1, 3.6, 2.9),
    "world_news": (0.8, 2.7, 1.8),
}


def full_settings() -> HeroSettings:
    """The real run: 535B parameters on 11 racks."""
    initial, swapped, cooldown = (
        {topic: shares[phase] for topic, shares in _TOPICS.items()}
        | {"other": round(100 - sum(shares[phase] for shares in _TOPICS.values()), 1)}
        for phase in range(3)
    )
    rungs = {768: (8, 1), 1024: (12, 2), 1536: (16, 6), 2048: (22, 11)}
    return HeroSettings(
        machine=gb200_nvl72(),
        data=DataSettings(
            domains=tuple(initial),
            root="/data/hero",
            tokenizer="marin-community/marin-tokenizer",
            vocab_size=128_256,
        ),
        mixture=MixtureSettings(
            initial=initial, swapped=swapped, cooldown=cooldown, swap_step=108_000, block_size=49_152
        ),
        ladder={
            f"d{hidden}": RunSettings(
                hidden=hidden,
                num_layers=layers,
                racks=racks,
                batch_size=1024 * racks,
                mfu=RUNG_MFU,
                evaluation_batch_size=64 * racks,
            )
            for hidden, (layers, racks) in rungs.items()
        },
        hero=RunSettings(
            hidden=6144,
            num_layers=48,
            racks=11,
            batch_size=11_264,
            steps=390_251,
            mfu=HERO_MFU,
            evaluation_batch_size=64 * 11,
        ),
        fine_tune=FineTuneSettings(steps=630, batch_size=704, pairs="/data/hero/conversations"),
        evaluation=EvaluationConfig(every=3000, sequences_per_domain=704),
        max_evaluated_sequences=11_264,
        checkpoint=CheckpointConfig(permanent_every=6000, rolling_seconds=3600),
        is_published=True,
    )
