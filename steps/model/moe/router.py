"""Which experts a token goes to, how much each counts, and the bias that would have balanced it.

A token's logits are read at full width. The bias moves the choice and nothing else: the K experts with the highest
biased logits are chosen, the (K+1)-th biased logit is the token's threshold, and the chosen experts are weighted by
the sigmoid of their own unbiased logits, scaled to a fixed sum.

Quantile balancing (docs/hero.md, section 1): an expert would be chosen by just the share K/E of all tokens if its
bias were minus the 1 - K/E quantile of (its logit - the token's threshold). That bias, mean zero, is what the next
step routes with; it has no learning rate and no memory.

Letters: T tokens of this device, D hidden, E experts, K experts per token.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

NUM_BINS = 10_000
"""Bins of the margin histogram between the smallest and the largest margin there is."""

_COARSE = 100


class Routing(eqx.Module):
    """The router's verdict on the tokens of this device.

    Attributes:
        logits: unbiased, fp32.
        experts: the chosen ones, highest biased logit first; equal ones by lowest index.
        weights: theirs, fp32, summing to `combine_scale`.
        margins: logit - the token's threshold, for every expert; no gradient.
        finite: whether all logits of the token are numbers.
    """

    logits: Float[Array, "T E"]
    experts: Int[Array, "T K"]
    weights: Float[Array, "T K"]
    margins: Float[Array, "T E"]
    finite: Bool[Array, " T"]


def route(
    x: Float[Array, "T D"],
    router: Float[Array, "D E"],
    bias: Float[Array, " E"],
    *,
    top_k: int,
    combine_scale: float,
) -> Routing:
    """Choose and weigh. Operands keep their type; sums and results are fp32 (bf16 results change 6% of choices)."""
    logits = jnp.dot(x, router, preferred_element_type=jnp.float32)
    finite = jnp.all(jnp.isfinite(logits), axis=-1)
    logits = jnp.where(finite[:, None], logits, 0)
    biased = jax.lax.stop_gradient(logits + bias)
    highest, experts = jax.lax.top_k(biased, top_k + 1)
    experts, threshold = experts[:, :top_k], highest[:, top_k:]
    weights = jax.nn.sigmoid(jnp.take_along_axis(logits, experts, axis=-1))
    weights = combine_scale * weights / jnp.sum(weights, axis=-1, keepdims=True)
    margins = jax.lax.stop_gradient(logits) - threshold
    return Routing(logits=logits, experts=experts, weights=weights, margins=margins, finite=finite)


def balancing_bias(
    margins: Float[Array, "T E"],
    counted: Bool[Array, " T"],
    bias: Float[Array, " E"],
    *,
    top_k: int,
    axes: tuple[str, ...] = (),
) -> tuple[Float[Array, " E"], Float[Array, ""], Float[Array, ""]]:
    """The balancing bias of the counted tokens of all devices on `axes`, and the range of their margins.

    A histogram of NUM_BINS bins over that range, summed as integers over the devices, interpolated linearly within
    the bin where the quantile lies. Without any counted token the bias stays as it is and the range is (0, 0).
    """
    num_experts = margins.shape[1]
    lowest = jnp.min(margins, initial=jnp.inf, where=counted[:, None])
    highest = jnp.max(margins, initial=-jnp.inf, where=counted[:, None])
    ends = jnp.stack([-lowest, highest])
    if axes:
        ends = jax.lax.pmax(ends, axes)
    ends = jnp.where(jnp.isfinite(ends), ends, 0)
    low, high = -ends[0], ends[1]
    width = (high - low) / NUM_BINS

    bins = jnp.clip((margins - low) / jnp.where(width > 0, width, 1), 0, NUM_BINS - 1).astype(jnp.int32)
    index = jnp.where(counted[:, None], jnp.arange(num_experts) * NUM_BINS + bins, num_experts * NUM_BINS)
    histogram = jnp.zeros_like(index, shape=(num_experts * NUM_BINS,)).at[index.reshape(-1)].add(1, mode="drop")
    if axes:
        histogram = jax.lax.psum(histogram, axes)
    histogram = histogram.reshape(num_experts, NUM_BINS)
    num_tokens = jnp.sum(histogram[0])

    beta = low + width * _quantile(histogram, num_tokens, top_k)
    balanced = -beta + jnp.mean(beta)
    return jnp.where(num_tokens > 0, balanced, bias), low, high


def _quantile(histogram: Int[Array, "E bins"], num_tokens: Int[Array, ""], top_k: int) -> Float[Array, " E"]:
    """The place, in bins, below which lie num_tokens * (1 - K/E) of each row's entries.

    The rank's whole part stays an integer: in fp32 it would be off by tokens in a large batch. The crossing bin is
    looked for among 100 sums of 100 bins, then among 100 bins: the same as one running sum, at a fraction of it.
    """
    num_experts = histogram.shape[0]
    rest = num_experts - top_k
    whole = num_tokens // num_experts * rest + num_tokens % num_experts * rest // num_experts
    fraction = (num_tokens % num_experts * rest % num_experts).astype(jnp.float32) / num_experts
    needed = whole + (fraction > 0)

    fine = histogram.reshape(num_experts, _COARSE, -1)
    before, block = _crossing(jnp.sum(fine, axis=-1), jnp.broadcast_to(needed, (num_experts,)))
    counts = jnp.take_along_axis(fine, block[:, None, None], axis=1)[:, 0]
    before_in_block, place = _crossing(counts, needed - before)
    count = jnp.take_along_axis(counts, place[:, None], axis=1)[:, 0]
    missing = (whole - before - before_in_block).astype(jnp.float32) + fraction
    return (block * fine.shape[-1] + place).astype(jnp.float32) + missing / jnp.maximum(count, 1)


def _crossing(counts: Int[Array, "E n"], needed: Int[Array, " E"]) -> tuple[Int[Array, " E"], Int[Array, " E"]]:
    """The first place where the running sum reaches `needed`, and what was summed before it."""
    running = jnp.cumsum(counts, axis=-1)
    place = jnp.argmax(running >= needed[:, None], axis=-1)
    before = jnp.take_along_axis(running - counts, place[:, None], axis=-1)[:, 0]
    return before, place
