"""What a training step reads: batches addressed by optimizer step, and fixed validation sets.

Two kinds of data, one shape: a staged mixture of token caches for the phases of pretraining, conversations for
fine-tuning.
"""

import dataclasses
import math
from collections.abc import Generator, Iterable, Sequence
from typing import Any

from jax.sharding import Mesh

from executor import Input, resolved
from steps.batches import available_sequences, loader, read_counts, training_dataset, validation_batches
from steps.conversations import (
    ConversationConfig,
    conversation_dataset,
    conversation_validation_batches,
    packed_examples,
)
from steps.mixture import continued, epochs
from steps.model.loss import Batch
from steps.tokenizer import open_tokenizer
from steps.train.config import TrainConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class ValidationSet:
    """One domain's validation sequences.

    Attributes:
        batches: equal batches in a fixed order; padding has no weight.
        bytes_per_token: of the domain's validation text, over the tokens that are predicted.
    """

    batches: tuple[Batch, ...]
    bytes_per_token: float

    def bits_per_byte(self, nats_per_token: float) -> float:
        return nats_per_token / math.log(2) / self.bytes_per_token


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingData:
    """The data of one training step.

    Attributes:
        stages: stages of the mixture from step 0 of the run on, as JSON; empty for conversations.
        sequences: training sequences by component.
        validation: the sets that evaluations during training read, by domain.
    """

    config: TrainConfig
    dataset: Any
    stages: tuple[dict[str, Any], ...]
    sequences: dict[str, int]
    validation: dict[str, ValidationSet]

    @classmethod
    def open(cls, config: TrainConfig, earlier: Sequence[dict[str, Any]]) -> "TrainingData":
        """Open the config's data; `earlier` are the stages that come with the checkpoint it starts from."""
        length, batch_size = config.model.sequence_length, config.batch_size
        limit, held_out_size = config.evaluation.sequences_per_domain, config.evaluation.batch_size or batch_size
        if isinstance(config.data, ConversationConfig):
            tokenizer = open_tokenizer(resolved(config.data.tokenizer))
            check_vocabulary("conversations", tokenizer.vocab_size, config.model.vocab_size)
            held_out = conversation_validation_batches(config.data, sequence_length=length, batch_size=held_out_size)
            shown = held_out[: -(-limit // held_out_size)]
            answers = ValidationSet(batches=as_batches(shown), bytes_per_token=math.nan)
            return cls(
                config=config,
                dataset=conversation_dataset(config.data, sequence_length=length),
                stages=(),
                sequences={"conversations": len(packed_examples(config.data, "train", length))},
                validation={"answers": answers},
            )
        for name, location in config.data.components.items():
            check_vocabulary(name, int(read_counts(resolved(location))["train"]["vocab_size"]), config.model.vocab_size)
        mixture = continued(config.data, earlier)
        return cls(
            config=config,
            dataset=training_dataset(mixture, sequence_length=length, batch_size=batch_size),
            stages=tuple(dataclasses.asdict(stage) for stage in mixture.stages),
            sequences=available_sequences(mixture, length),
            validation={
                name: validation_set(location, length, held_out_size, limit)
                for name, location in config.data.components.items()
            },
        )

    def batches(self, start_step: int, mesh: Mesh) -> Generator[Batch]:
        """Batches from optimizer step `start_step` (counted from 0) on, spread over the mesh; close it when done."""
        batches = loader(self.dataset, batch_size=self.config.batch_size, start_step=start_step, mesh=mesh)
        try:
            for batch in batches:
                yield Batch(**batch)
        finally:
            batches.close()

    def epochs(self, until_step: int) -> dict[str, float]:
        """How often each component has been read after `until_step` optimizer steps of the run."""
        batch_size = self.config.batch_size
        if isinstance(self.config.data, ConversationConfig):
            return {name: until_step * batch_size / count for name, count in self.sequences.items()}
        return epochs(continued(self.config.data, self.stages), self.sequences, batch_size, until_step)


def check_vocabulary(name: str, tokens: int, model: int) -> None:
    """Refuse data whose tokenizer has more entries than the model has embeddings.

    Raises:
        ValueError: it has; ids past the embedding would train on the wrong rows in silence.
    """
    if tokens > model:
        raise ValueError(
            f"{name}: the tokenizer has {tokens:,} entries, the model's vocab_size is {model:,}; "
            f"set data.vocab_size={tokens} or take a smaller tokenizer"
        )


def validation_set(location: Input, sequence_length: int, batch_size: int, limit: int | None = None) -> ValidationSet:
    """Validation sequences of a token artifact: `limit` of them, evenly spaced, or all."""
    folder = resolved(location)
    batches = validation_batches(folder, sequence_length=sequence_length, batch_size=batch_size, max_sequences=limit)
    counts = read_counts(folder)["validation"]
    return ValidationSet(batches=as_batches(batches), bytes_per_token=counts["bytes"] / counts["predicted_tokens"])


def as_batches(batches: Iterable[dict[str, Any]]) -> tuple[Batch, ...]:
    """Batches as the model takes them."""
    return tuple(Batch(**batch) for batch in batches)
