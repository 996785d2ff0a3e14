"""The transformer: embedding, a scan over stacked layers, final norm; a pure function of parameters and tokens.

    params, state = init(config, key), init_router_state(config)
    hidden, router = forward(params, state, tokens, segment_ids, config, mesh)

Every layer is attention, then a mixture of experts, each behind a gated norm and before a short convolution, each
added to the residual stream. Layers are stacked on a leading axis and scanned, so that only one layer is compiled and
only one layer's expert buffers are alive at a time.

Invariant: what a position holds depends on no later position and on no other document of its sequence.

Letters: B sequences, S positions, T = B*S tokens, D hidden, V vocabulary, L layers, E experts.
"""

import hashlib

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from steps.model.attention import ATTENDED, AttentionWeights, Packing, attention, chunk_length, visible
from steps.model.config import ModelConfig
from steps.model.conv import short_conv, tap_masks
from steps.model.moe.layer import MoEStats, MoEWeights, moe
from steps.model.norm import GatedNorm, gated_norm

BATCH_AXES = ("data", "expert")
"""Mesh axes that sequences are spread over; experts are spread over the last, everything else is on every device."""

PADDING_SEGMENT = -1
"""Segment id of positions that hold no token: they are in no document, reach no expert and count nowhere."""


class Layer(eqx.Module):
    """Weights of one layer, or of all layers with a leading axis L."""

    attention_norm: GatedNorm
    attention: AttentionWeights
    attention_conv: Float[Array, "*L W D"] | None
    moe_norm: GatedNorm
    moe: MoEWeights
    moe_conv: Float[Array, "*L W D"] | None


class Params(eqx.Module):
    """Everything that is trained. The layers' arrays are stacked: `params.layers.attention.query` is [L, D, H*HD]."""

    embedding: Float[Array, "V D"]
    embedding_norm: GatedNorm
    layers: Layer
    final_norm: GatedNorm
    lm_head: Float[Array, "D V"]


class RouterState(eqx.Module):
    """What the router carries from step to step beside its weights: no gradient, no optimizer, fp32."""

    bias: Float[Array, "L E"]


RouterStats = MoEStats
"""Statistics of every layer's router and exchange: the fields of `MoEStats` with a leading axis L."""


def init_router_state(config: ModelConfig) -> RouterState:
    """No expert is favoured."""
    return RouterState(bias=jnp.zeros((config.num_layers, config.num_experts), jnp.float32))


def init(config: ModelConfig, key: PRNGKeyArray) -> Params:
    """Fresh fp32 parameters (docs/hero.md, section 1).

    Matrices come from a normal of standard deviation 0.5/sqrt(D), truncated at three of it; gains are one; head gates
    are zero, so every gate stands at one; short convolutions are the identity. Each array has a key of its own,
    derived from its name, so switching a part off leaves the other parts' draws alone.
    """
    d, layers, latent = config.hidden, config.num_layers, config.latent
    inner, experts, width = config.expert_input, config.num_experts, config.expert_width
    query_width, key_width = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    shared, kernel = config.num_shared_experts * config.shared_width, config.conv_kernel

    def matrix(name: str, *shape: int) -> Array:
        draw = jax.random.truncated_normal(_named_key(key, name), -3.0, 3.0, shape, jnp.float32)
        return config.initializer_std * draw

    def norm(name: str, *stack: int) -> GatedNorm:
        rank = config.gated_norm_rank
        return GatedNorm(
            gain=jnp.ones((*stack, d)),
            gate_down=matrix(f"{name}.gate_down", *stack, d, rank) if config.gated_norm else None,
            gate_up=matrix(f"{name}.gate_up", *stack, rank, d) if config.gated_norm else None,
        )

    def identity_conv(channels: int) -> Array | None:
        return jnp.zeros((layers, kernel, channels)).at[:, 0].set(1.0) if kernel else None

    return Params(
        embedding=matrix("embedding", config.vocab_size, d),
        embedding_norm=norm("embedding_norm"),
        layers=Layer(
            attention_norm=norm("attention_norm", layers),
            attention=AttentionWeights(
                query=matrix("query", layers, d, query_width),
                key=matrix("key", layers, d, key_width),
                value=matrix("value", layers, d, key_width),
                output=matrix("output", layers, query_width, d),
                head_gate=jnp.zeros((layers, d, config.num_heads)) if config.head_gate else None,
                key_conv=identity_conv(key_width),
            ),
            attention_conv=identity_conv(d),
            moe_norm=norm("moe_norm", layers),
            moe=MoEWeights(
                router=matrix("router", layers, d, experts),
                latent_down=matrix("latent_down", layers, d, latent) if latent is not None else None,
                latent_norm=jnp.ones((layers, latent)) if latent is not None else None,
                latent_up=matrix("latent_up", layers, latent, d) if latent is not None else None,
                w_gate_up=matrix("w_gate_up", layers, experts, inner, 2 * width),
                w_down=matrix("w_down", layers, experts, width, inner),
                shared_gate_up=matrix("shared_gate_up", layers, d, 2 * shared),
                shared_down=matrix("shared_down", layers, shared, d),
            ),
            moe_conv=identity_conv(d),
        ),
        final_norm=norm("final_norm"),
        lm_head=matrix("lm_head", d, config.vocab_size),
    )


def forward(
    params: Params,
    router_state: RouterState,
    tokens: Int[Array, "B S"],
    segment_ids: Int[Array, "B S"],
    config: ModelConfig,
    mesh: Mesh,
    *,
    keep_histogram: bool = False,
) -> tuple[Float[Array, "B S D"], RouterStats]:
    """Final hidden states, normed and ready for the head, and every layer's router statistics.

    `segment_ids` numbers the documents packed into a sequence; a negative id is padding. `mesh` has the axes
    ("data", "expert"); B must be divisible by their product. The router bias is read, never changed: the one to use
    next stands in the statistics.
    """
    spread = NamedSharding(mesh, PartitionSpec(BATCH_AXES))
    length = tokens.shape[1]
    dtype = jnp.dtype(config.compute_dtype)
    valid = (segment_ids >= 0).reshape(-1)
    packing = Packing(
        taps=tap_masks(segment_ids, config.conv_kernel),
        visible_window=visible(segment_ids, config.window, chunk_length(length, config.window)),
        visible_global=visible(segment_ids, length, length),
    )
    with jax.named_scope("embed"):
        x = jax.lax.with_sharding_constraint(params.embedding[tokens].astype(dtype), spread)
        x = gated_norm(x, _cast(params.embedding_norm, dtype), config.norm_eps)

    def attention_branch(x: Array, weights: Layer, is_global: Array) -> Array:
        normed = gated_norm(x, weights.attention_norm, config.norm_eps)
        out = attention(normed, weights.attention, is_global, packing, config)
        return short_conv(out, weights.attention_conv, packing.taps)

    def moe_norm(x: Array, weights: GatedNorm) -> Array:
        return gated_norm(x, weights, config.norm_eps).reshape(-1, config.hidden)

    def moe_conv(out: Array, kernel: Array | None) -> Array:
        return short_conv(out.reshape(x.shape), kernel, packing.taps)

    if config.remat == "experts":
        # Writing down what these need for the backward pass costs more than computing it again.
        keep = jax.checkpoint_policies.save_only_these_names(ATTENDED)
        attention_branch = jax.checkpoint(attention_branch, policy=keep)
        moe_norm, moe_conv = jax.checkpoint(moe_norm), jax.checkpoint(moe_conv)

    def layer(
        x: Float[Array, "B S D"], scanned: tuple[Layer, Float[Array, " E"], Bool[Array, ""]]
    ) -> tuple[Float[Array, "B S D"], MoEStats]:
        weights, bias, is_global = scanned
        weights = _cast(weights, dtype)
        x = x + attention_branch(x, weights, is_global)
        with jax.named_scope("moe"):
            out, stats = moe(
                moe_norm(x, weights.moe_norm), valid, weights.moe, bias, config, mesh, keep_histogram=keep_histogram
            )
        x = x + moe_conv(out, weights.moe_conv)
        return jax.lax.with_sharding_constraint(x, spread), stats

    body = jax.checkpoint(layer) if config.remat == "layer" else layer
    kinds = jnp.array(config.global_layers)
    x, stats = jax.lax.scan(body, x, (params.layers, jax.lax.stop_gradient(router_state.bias), kinds))
    return gated_norm(x, _cast(params.final_norm, dtype), config.norm_eps), stats


def _cast(weights, dtype: jnp.dtype):
    """The same weights in the type that is computed with."""
    return jax.tree.map(lambda leaf: leaf.astype(dtype), weights)


def _named_key(key: PRNGKeyArray, name: str) -> PRNGKeyArray:
    """A key that depends on the name alone, not on what else is drawn."""
    return jax.random.fold_in(key, int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big"))
