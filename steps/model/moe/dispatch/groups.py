"""Arithmetic on rows that lie in groups one behind the other, and the stable sort that brings them there.

Letters: T tokens of this device, K experts per token, A = T*K assignments (token t's j-th is t*K + j), E experts,
G groups, N places.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

_CHEAP_COMPARISONS = 1 << 20


class Sorted(eqx.Module):
    """The assignments of this device in order of their expert; within an expert as the tokens stand.

    Attributes:
        assignment: which assignment stands at a place of that order; padding comes last.
        start: where an expert's group starts.
        counts: how many assignments it has.
        rank: place of token t's j-th assignment within its expert's group; A for padding, which is past any group.
    """

    assignment: Int[Array, " A"]
    start: Int[Array, " E"]
    counts: Int[Array, " E"]
    rank: Int[Array, "T K"]


def sort_by_expert(experts: Int[Array, "T K"], valid: Bool[Array, " T"], num_experts: int) -> Sorted:
    """Sort the assignments; positions without a token belong to no expert and are counted nowhere."""
    num_tokens, top_k = experts.shape
    keys = jnp.where(valid[:, None], experts, num_experts).reshape(-1).astype(jnp.int32)
    places = jnp.arange(num_tokens * top_k, dtype=jnp.int32)
    in_order, assignment = jax.lax.sort((keys, places), num_keys=1, is_stable=True)
    _, place = jax.lax.sort((assignment, places), num_keys=1)
    bounds = _num_below(in_order, jnp.arange(num_experts + 1, dtype=jnp.int32))
    start = bounds[:-1]
    rank = jnp.where(keys < num_experts, place - bounds[keys], keys.size)
    return Sorted(assignment=assignment, start=start, counts=bounds[1:] - start, rank=rank.reshape(num_tokens, top_k))


def starts(sizes: Int[Array, "*B G"]) -> Int[Array, "*B G"]:
    """Where each group starts: the sizes of those before it."""
    return jnp.cumsum(sizes, axis=-1) - sizes


def locate(sizes: Int[Array, " G"], num_places: int) -> tuple[Int[Array, " N"], Int[Array, " N"], Bool[Array, " N"]]:
    """For each place: its group, its offset within that group, and whether it is in one at all."""
    ends = jnp.cumsum(sizes)
    place = jnp.arange(num_places, dtype=ends.dtype)
    used = place < ends[-1]
    group = jnp.where(used, _num_below(ends, place + 1), 0)
    return group, place - (ends - sizes)[group], used


def _num_below(ascending: Int[Array, " N"], bounds: Int[Array, " M"]) -> Int[Array, " M"]:
    """How many of `ascending` are below each bound: by comparing all with all while that is cheap."""
    method = "compare_all" if ascending.size * bounds.size <= _CHEAP_COMPARISONS else "scan_unrolled"
    return jnp.searchsorted(ascending, bounds, side="left", method=method).astype(jnp.int32)
