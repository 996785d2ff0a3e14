"""Steps from settings: data, training configs and the resources they need, shared by all recipes of the family."""

import dataclasses
import platform

from executor import Resources, Step, adopt
from infra.topology import Machine
from recipes._hero import HeroSettings, horizon_of, model_of
from recipes._settings import DataSettings, RunSettings
from steps.corpus import CorpusConfig, FileSource, InterpreterSource, collect
from steps.mixture import MixtureConfig, Stage
from steps.tokenize import TokenizeConfig, tokenize
from steps.tokenizer import PretrainedTokenizerConfig, TokenizerConfig, import_tokenizer, train_tokenizer
from steps.train.config import TrainConfig
from steps.train.estimate import HERO, LAPTOP, estimate
from steps.train.schedule import ScheduleConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Data:
    """The steps that make tokens."""

    corpus: Step
    tokenizer: Step
    tokens: dict[str, Step]


def data_steps(settings: HeroSettings) -> Data:
    """Corpus, tokenizer, and one token artifact per domain."""
    data, resources = settings.data, data_resources(settings)
    config = CorpusConfig(
        domains={name: _source(data, name) for name in data.domains},
        validation_fraction=data.validation_fraction,
        max_malformed_fraction=data.max_malformed_fraction,
    )
    corpus = Step("corpus", collect, config, resources=resources)
    documents = {name: corpus / name for name in data.domains}
    if data.tokenizer:
        tokenizer = Step("tokenizer", import_tokenizer, _pretrained(data), resources=resources)
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
        files = adopt(f"{data.root.rstrip('/')}/{domain}", name=f"raw/{domain}")
        return FileSource(files=files, text_field=data.text_field)
    return InterpreterSource(kind=domain, python_version=platform.python_version())  # pyright: ignore[reportArgumentType]


def _pretrained(data: DataSettings) -> PretrainedTokenizerConfig:
    """A tokenizer that exists: a folder where it looks like one, else a Hugging Face id."""
    if "://" in data.tokenizer or data.tokenizer.startswith(("/", ".")):
        return PretrainedTokenizerConfig(directory=adopt(data.tokenizer, name="raw/tokenizer"))
    return PretrainedTokenizerConfig(id=data.tokenizer, revision=data.tokenizer_revision)


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
        evaluation=dataclasses.replace(settings.evaluation, batch_size=run.evaluation_batch_size),
        checkpoint=settings.checkpoint,
        trackers=settings.trackers,
        microbatches=run.microbatches,
        guards=settings.guards,
        rollbacks=settings.rollbacks,
        watchdog=settings.watchdog,
    )


def stages_of(weights: dict[int, dict[str, float]]) -> tuple[Stage, ...]:
    return tuple(Stage(start_step=step, weights=shares) for step, shares in weights.items())


def estimated(settings: HeroSettings, run: RunSettings, config: TrainConfig) -> TrainConfig:
    """The config with what its own part of the run takes on the machine meant, for `estimate`."""
    machine = settings.machine
    gang = machine.gang(racks=run.racks)
    figures = estimate(
        config.model,
        steps=config.until_step - config.start_step,
        batch_size=config.batch_size,
        machine=machine,
        gang=gang,
        precision=HERO if machine.accelerator else LAPTOP,
        mfu=run.mfu,
    )
    trackers = dataclasses.replace(config.trackers, peak_flops=gang.devices * machine.peak_flops_per_device)
    return dataclasses.replace(config, trackers=trackers, estimated=dict(figures))


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
    """Environment of a CPU process with several devices.

    The backend's optimisation level is lowered: at this size the step time stays within the noise, and a quarter of
    every compilation is saved. A device that waits for the others' part of a collective may wait long on a busy
    machine, so the limit after which XLA ends the process is raised from 40 seconds.
    """
    devices = f"--xla_force_host_platform_device_count={machine.devices_per_host}"
    patience = "--xla_cpu_collective_call_terminate_timeout_seconds=600"
    level = "--xla_backend_optimization_level=1"
    return {"XLA_FLAGS": f"{devices} {level} {patience}", "JAX_PLATFORMS": "cpu"}
