"""The parts of a run's settings, each a dataclass that `--set` reaches into."""

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Where text comes from.

    Attributes:
        domains: names of the mixture's components.
        root: folder or URL with a folder of `.jsonl`, `.parquet` or `.txt` files (also `.gz`, `.zst`) for each domain;
            empty reads the interpreter's own library.
        text_field: field of a JSON line or Parquet row that holds the text.
        validation_fraction: share of documents held out.
        max_malformed_fraction: share of lines that may be malformed.
        tokenizer: folder or URL of a tokenizer, or its Hugging Face id; empty trains one.
        tokenizer_revision: commit or tag of a Hugging Face tokenizer.
        vocab_size: entries of the tokenizer.
    """

    domains: tuple[str, ...]
    root: str = ""
    text_field: str = "text"
    validation_fraction: float = 0.055
    max_malformed_fraction: float = 0.0
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
        evaluation_batch_size: sequences per forward pass of an evaluation; None takes `batch_size`.
        microbatches: parts that a batch is worked on in, one after the other.
    """

    hidden: int
    num_layers: int
    batch_size: int
    racks: int = 1
    steps: int | None = None
    mfu: float
    evaluation_batch_size: int | None = None
    microbatches: int = 1


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
    pair_capacity_factor: float | None = 1.15
    expert_parallel: int = 64
    compute_dtype: Literal["float32", "bfloat16"] = "bfloat16"
    remat: Literal["none", "experts", "layer"] = "layer"


@dataclasses.dataclass(frozen=True, kw_only=True)
class MidtrainSettings:
    """The cooldown. `learning_rate` replaces the schedule's value at its first step; None keeps the schedule."""

    learning_rate: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuneSettings:
    """Supervised fine-tuning on question and answer pairs; at full scale this project's own choice.

    Attributes:
        pairs: folder or URL with `train.jsonl` and `validation.jsonl` of `question` and `answer`; empty makes them from
            the domain `docstrings`.
        learning_rate_ratio: peak over the pretraining peak.
    """

    steps: int
    batch_size: int
    pairs: str = ""
    learning_rate_ratio: float = 0.1
