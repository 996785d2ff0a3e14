"""What one pass through the layer measured, over the tokens of all devices.

Counts are exact int32 sums of one layer and one pass (the real run has 3.7e8 assignments a layer and step, below
2^31); whoever adds layers up does it on the host in int64. Padding is in `padding` and in nothing else.

Invariant: accepted + sender_dropped + receiver_dropped = assignments, and assignments + padding = T * K.

Letters: T tokens of all devices, K experts per token, E experts. Stacked over layers every field has a leading L.
"""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from steps.model.config import ModelConfig
from steps.model.moe.balancing import merged_bias, sign_bias


class MoEStats(eqx.Module):
    """Statistics of one layer, equal on every device.

    Attributes:
        next_bias: what to route the next step with, mean zero, by ModelConfig.balancing. Evaluation ignores it and
            keeps the old one.
        load: valid assignments per expert as the router chose them, before any were dropped.
        assignments: valid tokens times K.
        accepted: assignments that reached their expert, counted from the plan.
        sender_dropped: lost to the limit on one sender's rows for one device.
        receiver_dropped: lost to the room on the device of their expert.
        padding: K times the positions without a token.
        nonfinite: valid tokens with a logit that is not finite; their output is NaN on purpose.
        entropy: of the load over experts, in nats; ln(E) is even.
        z_loss: mean over valid tokens of logsumexp(logits)^2; logged, not trained on.
        balance_loss: E * sum of (share of assignments) * (mean share of scores), 1 when even; the one field that a
            gradient flows through, and only where ModelConfig.auxiliary_loss is not 0.
        largest_pair: rows that a sender wants to send to one device, the most of all pairs, over the mean.
        largest_device: rows that all senders want to send to one device, the most of all, over the mean.
        margin_min, margin_max: range of (logit - token's threshold) that the bias was read from.
        histogram: of those margins, in even bins over their range; only where asked for.
    """

    next_bias: Float[Array, "*L E"]
    load: Int[Array, "*L E"]
    assignments: Int[Array, "*L"]
    accepted: Int[Array, "*L"]
    sender_dropped: Int[Array, "*L"]
    receiver_dropped: Int[Array, "*L"]
    padding: Int[Array, "*L"]
    nonfinite: Int[Array, "*L"]
    entropy: Float[Array, "*L"]
    z_loss: Float[Array, "*L"]
    balance_loss: Float[Array, "*L"]
    largest_pair: Float[Array, "*L"]
    largest_device: Float[Array, "*L"]
    margin_min: Float[Array, "*L"]
    margin_max: Float[Array, "*L"]
    histogram: Int[Array, "*L E bins"] | None = None


def entropy_of(load: Int[Array, " E"]) -> Float[Array, ""]:
    """Entropy of a load over experts, in nats."""
    share = load / jnp.maximum(jnp.sum(load), 1)
    return -jnp.sum(jax.scipy.special.xlogy(share, share))


def merge(stats: MoEStats, bias: Float[Array, "L E"], config: ModelConfig) -> MoEStats:
    """What microbatches measured, as one batch: every field of `stats` leads with [M, L].

    The next bias comes from all of them together, whatever order they ran in; what a single one would have had it be
    counts for nothing.
    """
    summed = {
        name: jnp.sum(getattr(stats, name), axis=0)
        for name in ("load", "assignments", "accepted", "sender_dropped", "receiver_dropped", "padding", "nonfinite")
    }
    tokens = stats.assignments // config.top_k - stats.nonfinite
    next_bias = bias
    if config.balancing == "quantile":
        assert stats.histogram is not None
        merged = jax.vmap(partial(merged_bias, top_k=config.top_k), in_axes=(1, 1, 1, 0))
        next_bias = merged(stats.histogram, stats.margin_min, stats.margin_max, bias)
    elif config.balancing == "sign":
        next_bias = jax.vmap(partial(sign_bias, rate=config.bias_rate))(summed["load"], bias)
    return MoEStats(
        next_bias=next_bias,
        **summed,
        entropy=jax.vmap(entropy_of)(summed["load"]),
        z_loss=_mean(stats.z_loss, tokens),
        balance_loss=_mean(stats.balance_loss, tokens),
        largest_pair=jnp.max(stats.largest_pair, axis=0),
        largest_device=jnp.max(stats.largest_device, axis=0),
        margin_min=jnp.min(stats.margin_min, axis=0),
        margin_max=jnp.max(stats.margin_max, axis=0),
    )


def _mean(values: Float[Array, "M L"], tokens: Int[Array, "M L"]) -> Float[Array, " L"]:
    return jnp.sum(values * tokens, axis=0) / jnp.maximum(jnp.sum(tokens, axis=0), 1)
