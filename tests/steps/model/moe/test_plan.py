"""Who gets what when there is not room for all: against taking turns one row at a time."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steps.model.moe.plan import Limits, fair_share, make_plan


def take_turns(wanted: np.ndarray, room: int) -> np.ndarray:
    """One row a turn, in order, from those who still want one."""
    got = np.zeros_like(wanted)
    while room > 0 and (got < wanted).any():
        for group in range(len(wanted)):
            if room > 0 and got[group] < wanted[group]:
                got[group] += 1
                room -= 1
    return got


@settings(max_examples=60, deadline=None)
@given(wanted=st.lists(st.integers(0, 9), min_size=6, max_size=6), room=st.integers(0, 60))
def test_shares_are_those_of_taking_turns(wanted, room):
    wanted = np.array(wanted, np.int32)
    np.testing.assert_array_equal(fair_share(jnp.asarray(wanted), room), take_turns(wanted, room))


def test_the_last_sender_is_not_starved():
    """Four senders want 10 rows each of a device with room for 21: prefix order would give the last two nothing."""
    counts = jnp.zeros((4, 4), jnp.int32).at[:, 0].set(10)
    plan = make_plan(counts, Limits(num_devices=4, num_experts=4, pair_rows=40, device_rows=21))
    taken = np.asarray(plan.accepted)[:, 0]
    np.testing.assert_array_equal(taken, [6, 5, 5, 5])


@settings(max_examples=40, deadline=None)
@given(
    counts=st.lists(st.integers(0, 12), min_size=18, max_size=18),
    pair_rows=st.integers(1, 20),
    device_rows=st.integers(1, 40),
)
def test_every_assignment_is_accounted_for(counts, pair_rows, device_rows):
    """accepted + sender_dropped + receiver_dropped = counts, per sender; no limit is passed; none is wasted."""
    counts = np.array(counts, np.int32).reshape(3, 6)
    limits = Limits(num_devices=3, num_experts=6, pair_rows=pair_rows, device_rows=device_rows)
    plan = jax.tree.map(np.asarray, make_plan(jnp.asarray(counts), limits))
    accepted = plan.accepted
    assert (accepted >= 0).all() and (accepted <= counts).all()
    np.testing.assert_array_equal(accepted.sum(1) + plan.sender_dropped + plan.receiver_dropped, counts.sum(1))

    pairs = accepted.reshape(3, 3, 2).sum(-1)
    wanted_pairs = np.minimum(counts.reshape(3, 3, 2).sum(-1), pair_rows)
    assert (pairs <= pair_rows).all()
    np.testing.assert_array_equal(pairs.sum(0), np.minimum(wanted_pairs.sum(0), device_rows))
    np.testing.assert_array_equal(plan.sender_dropped, (counts.reshape(3, 3, 2).sum(-1) - wanted_pairs).sum(1))


def test_the_size_of_the_real_run_fits_in_int32():
    """64 devices of 524,288 assignments each, all for one device."""
    limits = Limits(num_devices=64, num_experts=384, pair_rows=524_288, device_rows=602_932)
    counts = jnp.zeros((64, 384), jnp.int32).at[:, 0].set(524_288)
    plan = make_plan(counts, limits)
    assert int(plan.accepted.sum()) == 602_932
    assert int(plan.receiver_dropped.astype(jnp.int32).sum()) == 64 * 524_288 - 602_932


@pytest.mark.parametrize(
    ("capacity_factor", "pair_capacity_factor", "device_rows", "pair_rows"),
    [(None, None, 480, 120), (1.15, None, 138, 120), (1.15, 1.3, 138, 39), (0.5, None, 60, 60)],
)
def test_limits_follow_from_the_config(make_case, capacity_factor, pair_capacity_factor, device_rows, pair_rows):
    """40 tokens with 3 experts each are 120 assignments a device, 30 a pair of the 4 devices."""
    config = dataclasses.replace(
        make_case(expert_parallel=4).config,
        capacity_factor=capacity_factor,
        pair_capacity_factor=pair_capacity_factor,
    )
    limits = Limits.of(config, 40)
    assert (limits.device_rows, limits.pair_rows) == (device_rows, pair_rows)
