"""The hero's family: settings that describe a run at any scale, and the steps every recipe of it shares.

A scale is data. `full` is the real run (HERO figures: 18.005T tokens in 390,251 steps of 11,264 x 4,096); `laptop` is
the same pipeline on two cores and the interpreter's own library. A variant changes settings, never this file.
"""

import dataclasses
import platform
from typing import Literal

from executor import Resources, Step, adopt
from infra.topology import Machine, gb200_nvl72, laptop
from steps.corpus import CorpusConfig, FileSource, InterpreterSource, collect
from steps.ladder import TOKENS_PER_ACTIVE, Heuristic, aligned_step, rung_steps
from steps.mixture import MixtureConfig, Stage
from steps.model.config import ModelConfig
from steps.tokenize import TokenizeConfig, tokenize
from steps.tokenizer import PretrainedTokenizerConfig, TokenizerConfig, import_tokenizer, train_tokenizer
from steps.train.config import CheckpointConfig, EvaluationConfig, TrackerConfig, TrainConfig
from steps.train.estimate import HERO, HERO_MFU, LAPTOP, LAPTOP_MFU, RUNG_MFU, estimate
from steps.train.schedule import ScheduleConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Where text comes from.

    Attributes:
        domains: names of the mixture's components.
        root: folder or URL with `{domain}/` folders of JSON lines; empty reads the interpreter's own library.
        pattern: files below each domain's folder.
        tokenizer, tokenizer_revision: Hugging Face id of a tokenizer and its commit or tag; empty trains one.
        vocab_size: entries of the tokenizer.
    """

    domains: tuple[str, ...]
    root: str = ""
    pattern: str = "*.jsonl.zst"
    tokenizer: str = ""
    tokenizer_revision: str = "main"
    vocab_size: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class MixtureSettings:
    """Weights of the run's data, each a share per domain.

    Attributes:
        initial: from the first step.
        swapped: from `swap_step`, where a recipe swaps the mixture.
        cooldown: over the last part of the run, with or without the swap.
        cooldown_from: progress at which the cooldown begins, aligned down to a mixture block.
        block_size: sequences over which the weights are realised exactly.
    """

    initial: dict[str, float]
    swapped: dict[str, float]
    cooldown: dict[str, float]
    cooldown_from: float = 0.8
    swap_step: int
    block_size: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunSettings:
    """One model of the family and how long it trains.

    Attributes:
        racks: racks it trains on, where the machine has racks.
        steps: optimizer steps; None follows the ladder's rule from the active parameters.
        mfu: share of the machine's peak that `estimate` reckons with.
    """

    hidden: int
    num_layers: int
    batch_size: int
    racks: int = 1
    steps: int | None = None
    mfu: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShapeSettings:
    """What all models of the family share; see `ModelConfig`."""

    head_dim: int = 128
    num_experts: int = 384
    top_k: int = 8
    window: int = 2048
    sequence_length: int = 4096
    gated_norm_rank: int = 128
    capacity_factor: float = 1.15
    expert_parallel: int = 64
    compute_dtype: Literal["float32", "bfloat16"] = "bfloat16"


@dataclasses.dataclass(frozen=True, kw_only=True)
class MidtrainSettings:
    """The cooldown. `learning_rate` replaces the schedule's value at its first step; None keeps the schedule."""

    learning_rate: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuneSettings:
    """Supervised fine-tuning on question and answer pairs; at full scale this project's own choice.

    Attributes:
        learning_rate_ratio: peak over the pretraining peak.
    """

    steps: int
    batch_size: int
    learning_rate_ratio: float = 0.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeroSettings:
    """Everything a recipe of this family can be asked to change with `--set`.

    Attributes:
        tokens_per_active: tokens per active parameter of a run without `steps`.
        ladder: rungs by name.
        asymptote: of the forecast's law, nats per token.
        swap: whether the mixture is swapped at `mixture.swap_step`.
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
    checkpoint: CheckpointConfig
    trackers: TrackerConfig = TrackerConfig()
    heuristic: Heuristic = Heuristic()
    asymptote: float = 1.5
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
    return dataclasses.replace(model, compute_dtype=shape.compute_dtype)


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Data:
    """The steps that make tokens."""

    corpus: Step
    tokenizer: Step
    tokens: dict[str, Step]


def data_steps(settings: HeroSettings) -> Data:
    """Corpus, tokenizer, and one token artifact per domain."""
    data, resources = settings.data, data_resources(settings)
    corpus = Step(
        "corpus",
        collect,
        CorpusConfig(domains={name: _source(data, name) for name in data.domains}),
        resources=resources,
    )
    documents = {name: corpus / name for name in data.domains}
    if data.tokenizer:
        config = PretrainedTokenizerConfig(id=data.tokenizer, revision=data.tokenizer_revision)
        tokenizer = Step("tokenizer", import_tokenizer, config, resources=resources)
    else:
        config = TokenizerConfig(documents=documents, vocab_size=data.vocab_size)
        tokenizer = Step("tokenizer", train_tokenizer, config, resources=resources)
    tokens = {
        name: Step(
            f"tokens/{name}",
            tokenize,
            TokenizeConfig(documents=documents[name], tokenizer=tokenizer),
            resources=resources,
        )
        for name in data.domains
    }
    return Data(corpus=corpus, tokenizer=tokenizer, tokens=tokens)


def _source(data: DataSettings, domain: str) -> InterpreterSource | FileSource:
    if data.root:
        return FileSource(files=adopt(f"{data.root.rstrip('/')}/{domain}/{data.pattern}"))
    return InterpreterSource(kind=domain, python_version=platform.python_version())  # pyright: ignore[reportArgumentType]


def training_of(
    settings: HeroSettings, run: RunSettings, tokens: dict[str, Step], weights: dict[int, dict[str, float]]
) -> TrainConfig:
    """A whole run in one step; its phases replace start, end and stages.

    `weights` maps the step from which they hold to the mixture's weights.
    """
    model = model_of(settings, run)
    horizon = horizon_of(settings, run)
    tokens_per_batch = run.batch_size * model.sequence_length
    return TrainConfig(
        model=model,
        data=MixtureConfig(
            components=tokens, stages=stages_of(weights), block_size=settings.mixture.block_size, seed=settings.seed
        ),
        optimizer=settings.heuristic.optimizer(
            tokens=horizon * tokens_per_batch, hidden=run.hidden, tokens_per_batch=tokens_per_batch
        ),
        schedule=ScheduleConfig(horizon_steps=horizon),
        batch_size=run.batch_size,
        until_step=horizon,
        seed=settings.seed,
        evaluation=settings.evaluation,
        checkpoint=settings.checkpoint,
        trackers=settings.trackers,
    )


def stages_of(weights: dict[int, dict[str, float]]) -> tuple[Stage, ...]:
    return tuple(Stage(start_step=step, weights=shares) for step, shares in weights.items())


def estimated(settings: HeroSettings, run: RunSettings, config: TrainConfig) -> TrainConfig:
    """The config with what its own part of the run takes on the machine meant, for `estimate`."""
    machine = settings.machine
    figures = estimate(
        config.model,
        steps=config.until_step - config.start_step,
        batch_size=config.batch_size,
        machine=machine,
        gang=machine.gang(racks=min(run.racks, machine.racks)),
        precision=HERO if machine.accelerator else LAPTOP,
        mfu=run.mfu,
    )
    return dataclasses.replace(config, estimated=dict(figures))


def training_resources(settings: HeroSettings, run: RunSettings, *, cpus: int) -> Resources:
    """A gang over whole racks where the machine has accelerators, else one process with virtual devices."""
    machine = settings.machine
    if not machine.accelerator:
        return Resources(cpus=cpus, environment=_virtual_devices(machine))
    gang = machine.gang(racks=run.racks)
    return Resources(
        cpus=machine.host_cpus,
        gpus=gang.devices_per_host,
        memory_gib=machine.host_memory_bytes / 2**30,
        hosts=gang.hosts,
        groups=gang.groups,
        colocate=machine.rack_label,
        accelerator=machine.accelerator,
    )


def data_resources(settings: HeroSettings) -> Resources:
    """One core; on a laptop the same environment as training, so that a worker serves both."""
    machine = settings.machine
    return Resources() if machine.accelerator else Resources(environment=_virtual_devices(machine))


def _virtual_devices(machine: Machine) -> dict[str, str]:
    flag = f"--xla_force_host_platform_device_count={machine.devices_per_host}"
    return {"XLA_FLAGS": flag, "JAX_PLATFORMS": "cpu"}


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
            expert_parallel=2,
            compute_dtype="float32",
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
                hidden=hidden, num_layers=layers, racks=racks, batch_size=1024 * racks, mfu=RUNG_MFU
            )
            for hidden, (layers, racks) in rungs.items()
        },
        hero=RunSettings(hidden=6144, num_layers=48, racks=11, batch_size=11_264, steps=390_251, mfu=HERO_MFU),
        fine_tune=FineTuneSettings(steps=630, batch_size=704),
        evaluation=EvaluationConfig(sequences_per_domain=704),
        checkpoint=CheckpointConfig(permanent_every=6000, rolling_seconds=3600),
    )
