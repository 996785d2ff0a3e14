import dataclasses

import pytest

from steps.mixture import (
    MixtureConfig,
    Stage,
    check_alignment,
    continued,
    epochs,
    sequences_drawn,
    sequences_per_block,
)


def mixture(*stages, block_size=64, names=("a", "b", "c")):
    return MixtureConfig(
        components=dict.fromkeys(names, "x"),
        stages=tuple(Stage(start_step=step, weights=weights) for step, weights in stages),
        block_size=block_size,
    )


EVEN = {"a": 1.0, "b": 1.0, "c": 1.0}


@pytest.mark.parametrize(
    ("weights", "block_size", "expected"),
    [
        ({"a": 0.29, "b": 0.71}, 100, {"a": 29, "b": 71}),
        ({"a": 1, "b": 1, "c": 1}, 64, {"a": 22, "b": 21, "c": 21}),
        ({"c": 1, "b": 1, "a": 1}, 64, {"a": 22, "b": 21, "c": 21}),
        ({"a": 3, "b": 0, "c": 1}, 64, {"a": 48, "b": 0, "c": 16}),
        ({"a": 0.9, "b": 0.07, "c": 0.03}, 49_152, {"a": 44_237, "b": 3_441, "c": 1_474}),
    ],
)
def test_a_block_holds_whole_sequences_by_largest_remainder(weights, block_size, expected):
    found = sequences_per_block(weights, block_size)
    assert found == expected
    assert sum(found.values()) == block_size


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ([(0, {"a": 1.0, "b": 1.0})], r"stages\[0\].weights: .*missing: \['c'\], unknown: \[\]"),
        ([(0, EVEN), (4, EVEN | {"d": 1.0})], r"stages\[1\].weights: .*missing: \[\], unknown: \['d'\]"),
        ([(0, EVEN | {"a": -0.5})], r"expected numbers >= 0, found \{'a': -0.5\}"),
        ([(0, EVEN | {"a": float("nan")})], r"expected numbers >= 0, found \{'a': nan\}"),
        ([(0, dict.fromkeys("abc", 0.0))], "expected a sum above 0"),
        ([(0, EVEN), (8, EVEN), (8, EVEN)], r"start steps that grow from 0 or later, found \[0, 8, 8\]"),
        ([], "expected at least one stage"),
        ([(0, {"a": 1.0, "b": 1.0, "c": 0.001})], r"a block of 64 sequences holds no whole sequence of \{'c': .*raise"),
    ],
)
def test_what_is_wrong_with_a_mixture_is_said_with_its_numbers(stages, message):
    with pytest.raises(ValueError, match=message):
        mixture(*stages)


def test_a_stage_inside_a_block_is_an_error_that_names_the_nearest_steps():
    config = mixture((0, EVEN), (10, EVEN))
    check_alignment(config, 32)
    with pytest.raises(ValueError, match=r"start_step\(10\) \* batch_size\(4\) = 40 is 40 past .*steps are 0 and 16"):
        check_alignment(config, 4)


def test_a_phase_continues_the_stages_of_the_run_before_it():
    whole = mixture((0, EVEN), (16, {"a": 2.0, "b": 1.0, "c": 0.0}))
    phase = dataclasses.replace(whole, stages=whole.stages[1:])
    assert continued(phase, [{"start_step": 0, "weights": EVEN}]) == whole
    assert continued(phase, whole.stages) == whole


def test_epochs_count_what_every_stage_draws():
    config = mixture((0, {"a": 1, "b": 1, "c": 2}), (32, {"a": 1, "b": 0, "c": 0}))
    assert sequences_drawn(config, 4, 16) == {"a": 16, "b": 16, "c": 32}
    assert sequences_drawn(config, 4, 48) == {"a": 32 + 64, "b": 32, "c": 64}
    assert epochs(config, {"a": 48, "b": 64, "c": 64}, 4, 48) == {"a": 2.0, "b": 0.5, "c": 1.0}
    with pytest.raises(ValueError, match=r"without a single whole sequence: \['b'\]"):
        epochs(config, {"a": 48, "b": 0, "c": 64}, 4, 48)
