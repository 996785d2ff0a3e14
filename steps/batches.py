"""Batches of token sequences: what a training step reads, and what it is validated on.

A batch is a dict of arrays, B sequences of S tokens:

    tokens       int32   [B, S]
    loss_mask    float32 [B, S]   weight of predicting tokens[t + 1] at t; 0 where that token is of another document,
                                  padding, or past the end
    segment_ids  int32   [B, S]   documents of a sequence numbered from 0; -1 at padding

Documents are packed back to back. What step n reads is a function of mixture, seed and n alone (Levanter's
block-deterministic mixture), so a run may start anywhere and across machines.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Float, Int
from levanter.data.dataset import AsyncDataset
from levanter.data.loader import DataLoader, DataLoaderIterator
from levanter.data.mixture import MixtureDataset
from levanter.data.text.datasets import TokenSeqDataset
from levanter.store.cache import TreeCache

from executor import resolved
from steps.mixture import MixtureConfig, check_alignment, sequences_drawn, sequences_per_block
from steps.tokenize import SPLITS

Batch = Mapping[str, Any]
EXEMPLAR = {"input_ids": np.zeros(0, np.int32)}
PADDING = -1
MAX_DRAWN = 2**31
"""Levanter's mixture adds up the sequences of finished stages in 32 bits."""


def read_counts(location: str) -> dict[str, dict[str, float]]:
    """`counts.json` of a token artifact."""
    import fsspec

    with fsspec.open(f"{location}/counts.json", "rt") as file:
        return json.load(file)  # pyright: ignore[reportArgumentType]


def token_cache(location: str, split: str) -> TreeCache:
    """One split of a token artifact; rows are documents, `input_ids` of each."""
    assert split in SPLITS, split
    return TreeCache.load(f"{location}/{split}", EXEMPLAR)


def example_of(tokens: Int[np.ndarray, " S"], eos_id: int) -> dict[str, np.ndarray]:
    """A sequence cut from packed documents: a new segment begins behind every `eos_id`."""
    tokens = np.asarray(tokens, np.int32)
    ends = np.cumsum(tokens == eos_id, dtype=np.int32)
    segment_ids = np.concatenate([np.zeros(1, np.int32), ends[:-1]])
    return {"tokens": tokens, "loss_mask": loss_mask_of(segment_ids), "segment_ids": segment_ids}


def loss_mask_of(segment_ids: Int[np.ndarray, " S"]) -> Float[np.ndarray, " S"]:
    """1 where the next token is of the same document."""
    mask = np.zeros(len(segment_ids), np.float32)
    mask[:-1] = (segment_ids[1:] == segment_ids[:-1]) & (segment_ids[1:] != PADDING)
    return mask


def eos_of(cache: TreeCache) -> int:
    """The token that ends every document of a cache."""
    document: Any = cache[0]
    return int(document["input_ids"][-1])


def training_dataset(config: MixtureConfig, *, sequence_length: int, batch_size: int) -> AsyncDataset[dict]:
    """Examples of `sequence_length` tokens, mixed by the stages; endless, a component that runs out begins again.

    Raises ValueError unless the stages cover the run from its first step (`continued`) and begin where blocks end.
    """
    if config.stages[0].start_step != 0:
        raise ValueError(
            f"the mixture's first stage starts at step {config.stages[0].start_step}, expected 0: put the stages of "
            "the run before it in front with steps.mixture.continued(config, earlier)"
        )
    check_alignment(config, batch_size)
    drawn = sequences_drawn(config, batch_size, config.stages[-1].start_step)
    if max(drawn.values()) >= MAX_DRAWN:
        raise ValueError(f"before the last stage more than {MAX_DRAWN} sequences are drawn of one component: {drawn}")
    key = jax.random.key(config.seed)
    datasets = {}
    for index, name in enumerate(sorted(config.components)):
        if not any(stage.weights[name] for stage in config.stages):
            continue
        cache = token_cache(resolved(config.components[name]), "train")
        sequences = TokenSeqDataset(cache, sequence_length)
        if cache.flat_field_length("input_ids") < sequence_length:
            raise ValueError(
                f"component {name} has {cache.flat_field_length('input_ids')} tokens, one sequence takes "
                f"{sequence_length}; give it more text, shorten the sequence or set its weight to 0"
            )
        shuffled = sequences.shuffle(jax.random.fold_in(key, index))
        datasets[name] = shuffled.map(_to_example, eos_id=eos_of(cache))
    stages = [
        (stage.start_step * batch_size, _exact_weights(stage.weights, config.block_size)) for stage in config.stages
    ]
    return MixtureDataset(datasets, stages, config.block_size, key=jax.random.fold_in(key, len(config.components)))


def _exact_weights(weights: Mapping[str, float], block_size: int) -> dict[str, Any]:
    """Shares as fractions: the mixture multiplies them by the block and cuts, which must not lose one to rounding."""
    from fractions import Fraction

    counts = sequences_per_block(weights, block_size)
    return {name: Fraction(count, block_size) for name, count in counts.items() if count}


def _to_example(sequence: Mapping[str, np.ndarray], eos_id: int) -> dict[str, np.ndarray]:
    return example_of(sequence["input_ids"], eos_id)


def available_sequences(config: MixtureConfig, sequence_length: int) -> dict[str, int]:
    """Whole sequences each component has: what `steps.mixture.epochs` counts in."""
    return {
        name: int(read_counts(resolved(location))["train"]["tokens"]) // sequence_length
        for name, location in config.components.items()
    }


def loader(
    dataset: AsyncDataset[dict],
    *,
    batch_size: int,
    start_step: int = 0,
    mesh: Mesh | None = None,
    axes: tuple[str, ...] = ("data", "expert"),
) -> DataLoaderIterator:
    """Batches from `start_step` on, read ahead in the background; close() it to end that.

    The batch axis is sharded over these axes of the mesh, each process loading its own part; without a mesh it lies
    on the first CPU device.
    """
    if mesh is None:
        mesh = Mesh(np.array(jax.local_devices(backend="cpu")[:1]).reshape((1,) * len(axes)), axes)
    data_loader = DataLoader(
        dataset,
        batch_size,
        mesh=mesh,
        axis_resources={"batch": axes},
        max_buffered_batches=16,
        fetch_batch_size=8,
    )
    return data_loader.iter_from_step(start_step)


def validation_batches(
    location: str, *, sequence_length: int, batch_size: int, max_sequences: int | None = None
) -> list[dict[str, np.ndarray]]:
    """The validation part of a token artifact in fixed order, its tail padded, the last batch filled up with padding.

    With `max_sequences` that many, evenly spaced over the whole.
    """
    cache = token_cache(location, "validation")
    eos_id = eos_of(cache)
    tokens = np.concatenate([np.asarray(row["input_ids"], np.int32) for row in cache])
    starts = np.arange(0, len(tokens), sequence_length)
    if max_sequences is not None and max_sequences < len(starts):
        starts = starts[np.arange(max_sequences) * len(starts) // max_sequences]
    return stack(
        [padded(tokens[start : start + sequence_length], eos_id, sequence_length) for start in starts], batch_size
    )


def padded(tokens: Int[np.ndarray, " n"], eos_id: int, sequence_length: int) -> dict[str, np.ndarray]:
    """An example of fewer tokens than a sequence has."""
    example = example_of(tokens, eos_id)
    missing = sequence_length - len(tokens)
    fill = {"tokens": eos_id, "loss_mask": 0, "segment_ids": PADDING}
    return {name: np.pad(array, (0, missing), constant_values=fill[name]) for name, array in example.items()}


def stack(examples: Sequence[Mapping[str, np.ndarray]], batch_size: int) -> list[dict[str, np.ndarray]]:
    """Examples as batches; the last one is filled up with padding, which weighs nothing."""
    if not examples:
        return []
    first = examples[0]
    nothing = {
        "tokens": np.zeros_like(first["tokens"]),
        "loss_mask": np.zeros_like(first["loss_mask"]),
        "segment_ids": np.full_like(first["segment_ids"], PADDING),
    }
    filled = [*examples, *[nothing] * (-len(examples) % batch_size)]
    return [
        {name: np.stack([example[name] for example in filled[start : start + batch_size]]) for name in nothing}
        for start in range(0, len(filled), batch_size)
    ]
