"""Keeping experts evenly loaded: the router bias of the next step, and a loss for those who want gradients to do it.

`quantile` (docs/hero.md): an expert would be chosen by just the share K/E of all tokens if its bias were minus the
1 - K/E quantile of (its logit - the token's threshold). That bias has no learning rate and no memory.

`sign` (DeepSeek-V3, arXiv 2412.19437, section 2.1.2): the bias of an expert with more than the mean load goes down by
a fixed rate, that of one with less goes up.

`none`: the bias stays; with `auxiliary_loss` above zero the loss of Switch Transformers (arXiv 2101.03961, equation 4)
is what balances.

Both biases have mean zero, come from integer counts over all devices, and leave padding out.

Letters: T tokens of this device, E experts, K experts per token.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

NUM_BINS = 10_000
"""Bins of the margin histogram between the smallest and the largest margin there is."""

_COARSE = 100
_HALVINGS = 40


def sign_bias(load: Int[Array, " E"], bias: Float[Array, " E"], *, rate: float) -> Float[Array, " E"]:
    """The bias after one step of fixed size towards an even load, mean zero; unchanged without any load.

    `load` holds integers of all devices and is compared as such: a mean in fp32 would be off in a large batch.
    """
    num_experts, total = load.shape[0], jnp.sum(load)
    even, rest = total // num_experts, total % num_experts
    step = jnp.where(load <= even, 1, -1) * ((load != even) | (rest > 0))
    moved = bias + rate * step.astype(bias.dtype)
    return jnp.where(total > 0, moved - jnp.mean(moved), bias)


def auxiliary_loss(
    logits: Float[Array, "T E"],
    counted: Bool[Array, " T"],
    load: Int[Array, " E"],
    num_tokens: Int[Array, ""],
    *,
    top_k: int,
    axes: tuple[str, ...] = (),
) -> Float[Array, ""]:
    """E * sum over experts of (share of assignments) * (mean share of the scores): 1 when all is even.

    Scores are sigmoids of the unbiased logits, normalised over a token's experts. The share of assignments carries no
    gradient; `load` and `num_tokens` are those of all devices on `axes`, whose batch is one batch.
    """
    scores = jax.nn.sigmoid(logits)
    scores = jnp.where(counted[:, None], scores / jnp.sum(scores, axis=-1, keepdims=True), 0)
    total = jnp.sum(scores, axis=0)
    if axes:
        total = jax.lax.psum(total, axes)
    tokens = jnp.maximum(num_tokens, 1).astype(jnp.float32)
    share = jax.lax.stop_gradient(load.astype(jnp.float32)) / (tokens * top_k)
    return load.shape[0] * jnp.sum(share * total / tokens)


def balancing_bias(
    margins: Float[Array, "T E"],
    counted: Bool[Array, " T"],
    bias: Float[Array, " E"],
    *,
    top_k: int,
    axes: tuple[str, ...] = (),
) -> tuple[Float[Array, " E"], Float[Array, ""], Float[Array, ""], Int[Array, "E bins"]]:
    """The balancing bias of the counted tokens of all devices on `axes`, the range of their margins, their histogram.

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
    return jnp.where(num_tokens > 0, balanced, bias), low, high, histogram


def merged_bias(
    histograms: Int[Array, "M E bins"],
    low: Float[Array, " M"],
    high: Float[Array, " M"],
    bias: Float[Array, " E"],
    *,
    top_k: int,
) -> Float[Array, " E"]:
    """The balancing bias of M microbatches as if they were one batch, up to the width of a bin.

    Each histogram has a range of its own; what is looked for is where the sum of their distribution functions, linear
    within a bin, crosses the target rank: by bisection, as they share no bins. Counts stay integers.
    """
    num_experts = histograms.shape[1]
    running = jnp.cumsum(histograms, axis=-1)
    num_tokens = jnp.sum(histograms[:, 0])
    whole, fraction = _target_rank(num_tokens, num_experts, top_k)
    width = (high - low) / NUM_BINS

    def is_past(at: Float[Array, " E"]) -> Bool[Array, " E"]:
        place = (at - low[:, None]) / jnp.where(width > 0, width, 1)[:, None]
        place = jnp.where(width[:, None] > 0, place, jnp.where(at > low[:, None], NUM_BINS, 0))
        place = jnp.clip(place, 0, NUM_BINS)
        bins = jnp.minimum(place.astype(jnp.int32), NUM_BINS - 1)[..., None]
        count = jnp.take_along_axis(histograms, bins, axis=-1)[..., 0]
        before = jnp.take_along_axis(running, bins, axis=-1)[..., 0] - count
        part = count * (place - bins[..., 0])
        return (jnp.sum(before, axis=0) - whole) + (jnp.sum(part, axis=0) - fraction) >= 0

    def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        lowest, highest = ends
        middle = (lowest + highest) / 2
        past = is_past(middle)
        return jnp.where(past, lowest, middle), jnp.where(past, middle, highest)

    ends = jnp.broadcast_to(jnp.min(low), (num_experts,)), jnp.broadcast_to(jnp.max(high), (num_experts,))
    beta = jax.lax.fori_loop(0, _HALVINGS, halve, ends)[1]
    return jnp.where(num_tokens > 0, -beta + jnp.mean(beta), bias)


def _target_rank(num_tokens: Int[Array, ""], num_experts: int, top_k: int) -> tuple[Int[Array, ""], Float[Array, ""]]:
    """num_tokens * (1 - K/E) as a whole part and a fraction: as one fp32 it would be off by tokens in a large batch."""
    rest = num_experts - top_k
    whole = num_tokens // num_experts * rest + num_tokens % num_experts * rest // num_experts
    return whole, (num_tokens % num_experts * rest % num_experts).astype(jnp.float32) / num_experts


def _quantile(histogram: Int[Array, "E bins"], num_tokens: Int[Array, ""], top_k: int) -> Float[Array, " E"]:
    """The place, in bins, below which lie num_tokens * (1 - K/E) of each row's entries.

    The crossing bin is looked for among 100 sums of 100 bins, then among 100 bins: the same as one running sum, at a
    fraction of it.
    """
    num_experts = histogram.shape[0]
    whole, fraction = _target_rank(num_tokens, num_experts, top_k)
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
