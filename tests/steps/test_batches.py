from collections import Counter
from itertools import islice

import numpy as np
import pytest

from steps.batches import (
    PADDING,
    available_sequences,
    example_of,
    loader,
    read_counts,
    token_cache,
    training_dataset,
    validation_batches,
)
from steps.mixture import MixtureConfig, Stage, epochs
from steps.tokenizer import open_tokenizer

SEQUENCE = 32
BATCH = 4
STAGES = (
    Stage(start_step=0, weights={"letters": 0.75, "numbers": 0.25}),
    Stage(start_step=8, weights={"letters": 0.0, "numbers": 1.0}),
    Stage(start_step=12, weights={"letters": 7.0, "numbers": 9.0}),
)


def config_of(small_data, stages=STAGES, seed=0):
    return MixtureConfig(components=small_data.tokens, stages=stages, block_size=16, seed=seed)


def read(config, count, start_step=0, **options):
    dataset = training_dataset(config, sequence_length=SEQUENCE, batch_size=BATCH)
    batches = loader(dataset, batch_size=BATCH, start_step=start_step, **options)
    try:
        return [{name: np.asarray(array) for name, array in batch.items()} for batch in islice(batches, count)]
    finally:
        batches.close()


def equal(one, two):
    return len(one) == len(two) and all(
        np.array_equal(a[name], b[name]) for a, b in zip(one, two, strict=True) for name in a
    )


def windows(location):
    tokens = np.concatenate([np.asarray(row["input_ids"]) for row in token_cache(location, "train")])
    whole = len(tokens) // SEQUENCE
    return [tuple(row) for row in tokens[: whole * SEQUENCE].reshape(whole, SEQUENCE).tolist()]


@pytest.fixture(scope="module")
def unbroken(small_data):
    return read(config_of(small_data), 24)


def test_every_block_holds_exactly_the_weights_of_its_stage(small_data, unbroken):
    owner = {row: domain for domain, location in small_data.tokens.items() for row in windows(location)}
    rows = [tuple(row.tolist()) for batch in unbroken for row in batch["tokens"]]
    blocks = [Counter(owner[row] for row in rows[start : start + 16]) for start in range(0, len(rows), 16)]
    assert blocks[:2] == [{"letters": 12, "numbers": 4}] * 2
    assert blocks[2] == {"numbers": 16}
    assert blocks[3:] == [{"letters": 7, "numbers": 9}] * 3


@pytest.mark.parametrize("start", [1, 7, 13])
def test_a_loader_started_late_equals_the_unbroken_one_across_stages(small_data, unbroken, start):
    assert equal(read(config_of(small_data), 24 - start, start_step=start), unbroken[start:])


def test_order_is_a_function_of_seed_and_not_of_names_order(small_data, unbroken):
    turned = MixtureConfig(
        components=dict(reversed(small_data.tokens.items())),
        stages=tuple(
            Stage(start_step=stage.start_step, weights=dict(reversed(stage.weights.items()))) for stage in STAGES
        ),
        block_size=16,
    )
    assert equal(read(turned, 24), unbroken)
    assert not equal(read(config_of(small_data, seed=1), 24), unbroken)


def test_a_later_stage_leaves_what_came_before_as_it_was(small_data, unbroken):
    """A mixture swapped at a fork shares every batch before the fork."""
    swapped = (*STAGES[:2], Stage(start_step=12, weights={"letters": 1.0, "numbers": 1.0}))
    found = read(config_of(small_data, swapped), 24)
    assert equal(found[:12], unbroken[:12])
    assert not equal(found[12:], unbroken[12:])
    only = read(config_of(small_data, STAGES[:1]), 8)
    assert equal(only, unbroken[:8])


def test_one_epoch_reads_every_sequence_once_and_the_next_again(small_data):
    names = {"letters": 1.0, "numbers": 0.0}
    config = config_of(small_data, (Stage(start_step=0, weights=names),))
    available = available_sequences(config, SEQUENCE)
    expected = windows(small_data.tokens["letters"])
    assert available["letters"] == len(expected)
    steps = -(-2 * len(expected) // BATCH)
    rows = [tuple(row.tolist()) for batch in read(config, steps) for row in batch["tokens"]]
    whole_blocks = len(expected) // 16 * 16
    assert max(Counter(rows[:whole_blocks]).values()) == 1
    assert set(rows[: whole_blocks + 16]) == set(expected)
    assert set(Counter(rows[: 2 * len(expected)]).values()) <= {1, 2, 3}
    assert sum(count == 2 for count in Counter(rows[: 2 * len(expected)]).values()) > len(expected) - 16
    assert rows[:16] != expected[:16]
    assert epochs(config, available, BATCH, steps)["letters"] == pytest.approx(2, abs=0.1)


def test_segments_follow_documents_and_nothing_is_predicted_across_them(small_data, unbroken):
    tokenizer = open_tokenizer(small_data.tokenizer)
    for batch in unbroken:
        assert {name: array.dtype for name, array in batch.items()} == {
            "tokens": np.int32,
            "loss_mask": np.float32,
            "segment_ids": np.int32,
        }
        begins = batch["tokens"] == tokenizer.bos_id
        assert np.array_equal(np.diff(batch["segment_ids"], axis=1) == 1, begins[:, 1:])
        assert np.array_equal(batch["loss_mask"][:, :-1] == 0, begins[:, 1:])
        assert not batch["loss_mask"][:, -1].any()
        assert not batch["segment_ids"][:, 0].any()


def test_one_sequence_by_hand():
    example = example_of(np.array([7, 8, 1, 0, 9, 1, 0]), eos_id=1)
    assert example["segment_ids"].tolist() == [0, 0, 0, 1, 1, 1, 2]
    assert example["loss_mask"].tolist() == [1, 1, 0, 1, 1, 0, 0]


def test_batches_lie_over_the_mesh(small_data, unbroken):
    import jax

    mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("data", "expert"))
    dataset = training_dataset(config_of(small_data), sequence_length=SEQUENCE, batch_size=BATCH)
    batches = loader(dataset, batch_size=BATCH, start_step=3, mesh=mesh)
    batch = next(batches)
    batches.close()
    assert {shard.data.shape for shard in batch["tokens"].addressable_shards} == {(1, SEQUENCE)}
    assert len(batch["tokens"].addressable_shards) == 4
    assert np.array_equal(np.asarray(batch["tokens"]), unbroken[3]["tokens"])


def test_a_mixture_without_its_beginning_or_its_text_is_an_error(small_data):
    with pytest.raises(ValueError, match=r"first stage starts at step 8, expected 0: .*continued\(config, earlier\)"):
        training_dataset(config_of(small_data, STAGES[1:]), sequence_length=SEQUENCE, batch_size=BATCH)
    with pytest.raises(ValueError, match=r"component letters has \d+ tokens, one sequence takes 1000000"):
        training_dataset(config_of(small_data), sequence_length=1_000_000, batch_size=BATCH)


def test_validation_reads_all_tokens_once_in_order_and_pads_the_rest(small_data):
    location = small_data.tokens["letters"]
    batches = validation_batches(location, sequence_length=SEQUENCE, batch_size=5)
    counts = read_counts(location)["validation"]
    tokens = np.concatenate([batch["tokens"].ravel() for batch in batches])
    segments = np.concatenate([batch["segment_ids"].ravel() for batch in batches])
    expected = np.concatenate([np.asarray(row["input_ids"]) for row in token_cache(location, "validation")])
    assert np.array_equal(tokens[segments != PADDING], expected)
    assert all(batch["tokens"].shape == (5, SEQUENCE) for batch in batches)
    weight = sum(batch["loss_mask"].sum() for batch in batches)
    cuts = len(expected) // SEQUENCE
    assert counts["predicted_tokens"] - cuts <= weight <= counts["predicted_tokens"]
    assert not any(batch["loss_mask"][batch["segment_ids"] == PADDING].any() for batch in batches)
    some = validation_batches(location, sequence_length=SEQUENCE, batch_size=2, max_sequences=4)
    assert len(some) == 2
    rows = {tuple(row) for batch in batches for row in batch["tokens"].tolist()}
    assert all(tuple(row) in rows for batch in some for row in batch["tokens"].tolist())
