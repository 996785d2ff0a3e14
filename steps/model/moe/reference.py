"""The layer's answer by the shortest way: every expert works on every token, on one device, under plain autodiff.

Shares no code with the layer beside the norm. What it costs, E/K times the layer's arithmetic, is of no interest.

Letters: T tokens, D hidden, E experts, K experts per token, l width that experts work at.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from steps.model.config import ModelConfig
from steps.model.moe.weights import MoEWeights
from steps.model.norm import rms_norm


def dense_moe(
    x: Float[Array, "T D"],
    valid: Bool[Array, " T"],
    weights: MoEWeights,
    bias: Float[Array, " E"],
    config: ModelConfig,
    kept: Bool[Array, "T E"] | None = None,
) -> Float[Array, "T D"]:
    """The output when nothing is dropped, or when just the (token, expert) pairs outside of `kept` are."""
    x = jnp.where(valid[:, None], x, 0)
    gates = combine_gates(x, weights, bias, config)
    if kept is not None:
        gates = jnp.where(kept, gates, 0)
    inner = x
    if weights.latent_down is not None and weights.latent_norm is not None:
        inner = rms_norm(x @ weights.latent_down, weights.latent_norm, config.norm_eps)
    gate, up = jnp.split(jnp.einsum("tl,elf->etf", inner, weights.w_gate_up), 2, axis=-1)
    worked = jnp.einsum("eti,eil->etl", jax.nn.silu(gate) * up, weights.w_down)
    routed = jnp.einsum("te,etl->tl", gates, worked, preferred_element_type=jnp.float32).astype(x.dtype)
    if weights.latent_up is not None:
        routed = routed @ weights.latent_up
    if not config.num_shared_experts:
        return routed
    gate, up = jnp.split(x @ weights.shared_gate_up, 2, axis=-1)
    return routed + (jax.nn.silu(gate) * up) @ weights.shared_down


def combine_gates(
    x: Float[Array, "T D"], weights: MoEWeights, bias: Float[Array, " E"], config: ModelConfig
) -> Float[Array, "T E"]:
    """How much each expert counts for each token: zero for those that were not chosen."""
    logits = jnp.dot(x, weights.router, preferred_element_type=jnp.float32)
    place = jnp.argsort(jnp.argsort(-(logits + bias), axis=-1, stable=True), axis=-1)
    gates = jnp.where(place < config.top_k, jax.nn.sigmoid(logits), 0)
    return config.combine_scale * gates / jnp.sum(gates, axis=-1, keepdims=True)
