"""Which experts a token goes to, how much each counts, and the bias that would have balanced it.

A token's logits are read at full width. The bias moves the choice and nothing else: the K experts with the highest
biased logits are chosen, the (K+1)-th biased logit is the token's threshold, and the chosen experts are weighted by
the sigmoid of their own unbiased logits, scaled to a fixed sum.

What the bias should be is decided in steps.model.moe.balancing.

Letters: T tokens of this device, D hidden, E experts, K experts per token.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


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
