"""What different ways of limiting the exchange would drop, from the same counts.

Counts are [S, E]: assignments of every sender for every expert. Each policy gives the share that is dropped.
"""

import math

import jax.numpy as jnp
import numpy as np

from steps.model.moe.plan import Limits, make_plan

CAPACITY, CELL_CAPACITY = 1.15, 1.33


def per_cell(counts: np.ndarray) -> float:
    """A cap for each (sender, expert): the plain fixed all-to-all."""
    room = math.ceil(CELL_CAPACITY * counts.sum(axis=1).mean() / counts.shape[1])
    return float(np.maximum(counts - room, 0).sum() / counts.sum())


def pooled_wave(counts: np.ndarray) -> float:
    """A cap for each (sender, device), pooled over its experts, then one for each expert: the hero's first backend."""
    pairs = _pairs(counts)
    wanted = pairs.sum(axis=-1)
    sent = np.minimum(wanted, math.ceil(CAPACITY * wanted.sum(axis=1).mean() / len(counts)))
    kept = pairs * (sent / np.maximum(wanted, 1))[..., None]
    room = math.ceil(CAPACITY * counts.sum() / counts.shape[1])
    return float(1 - np.minimum(kept.sum(axis=0), room).sum() / counts.sum())


def per_expert(counts: np.ndarray) -> float:
    """A cap for each expert at the receiver, senders unlimited."""
    room = math.ceil(CAPACITY * counts.sum() / counts.shape[1])
    return float(np.maximum(counts.sum(axis=0) - room, 0).sum() / counts.sum())


def ours(counts: np.ndarray, pair_capacity: float | None = None) -> float:
    """Our plan: a cap for each device, pooled over its experts and all senders; and one for pairs if asked for."""
    limits = Limits.relative(
        assignments=int(counts[0].sum()),
        num_devices=counts.shape[0],
        num_experts=counts.shape[1],
        capacity=CAPACITY,
        pair_capacity=pair_capacity,
    )
    plan = make_plan(jnp.asarray(counts, jnp.int32), limits)
    return float(1 - int(plan.accepted.sum()) / counts.sum())


def ours_with_pairs(counts: np.ndarray) -> float:
    """Our plan with a cap on pairs as well, as static waves need."""
    return ours(counts, CAPACITY)


def ours_dealt_out(counts: np.ndarray) -> float:
    """The same after tokens were dealt out over the devices: every sender has an equal part of all documents."""
    dealt = np.stack([counts // len(counts)] * len(counts)).sum(axis=1)
    rest = (counts - len(counts) * (counts // len(counts))).sum(axis=0)
    for expert, left in enumerate(rest):
        dealt[np.arange(left) % len(counts), expert] += 1
        dealt[:, expert] += (left - min(left, len(counts))) // len(counts)
    return ours(dealt, CAPACITY)


def largest_pair(counts: np.ndarray) -> float:
    """The fullest pair over the mean."""
    pairs = _pairs(counts).sum(axis=-1)
    return float(pairs.max() / pairs.mean())


def _pairs(counts: np.ndarray) -> np.ndarray:
    return counts.reshape(len(counts), len(counts), -1)


POLICIES = {
    f"cap per sender and expert, {CELL_CAPACITY}": per_cell,
    f"pooled wave: per pair, then per expert, {CAPACITY}": pooled_wave,
    f"per expert at the receiver, {CAPACITY}": per_expert,
    f"ours: per device, pooled, {CAPACITY}": ours,
    f"ours, and per pair {CAPACITY}": ours_with_pairs,
    f"ours, and per pair {CAPACITY}, tokens dealt out": ours_dealt_out,
}
