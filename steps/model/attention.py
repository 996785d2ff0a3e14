"""Attention: windowed layers with half-rotary positions, global layers without any, and what surrounds both.

One layer, in order: projections; short convolution of the keys; bare RMSNorm of queries and keys; rotation of the
first half of every head (windowed layers only); queries times `qk_mult`; softmax over the visible positions; the part
of the result along the position's own value removed (XSA); one gate per head; output projection.

A position sees itself and earlier positions of its document, in a windowed layer the last `window` of them. The
windowed layers stay linear in sequence length: queries are cut into chunks as long as the window, and each chunk
meets its own keys and those of the chunk before.

Letters: B sequences, S positions, D hidden, H query heads, KV stored key/value heads, G query heads per key/value
head in use, HD head dimension, N chunks, C positions in a chunk, M keys a chunk meets.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Bool, Float, Int

from steps.model.config import ModelConfig
from steps.model.conv import short_conv
from steps.model.norm import unit_rms

XSA_EPS = 1e-6

ATTENDED = "attended"
"""Name under which a checkpointing policy may keep what attention found, so that no score is computed thrice."""


class AttentionWeights(eqx.Module):
    """Weights of one layer, or of all layers with a leading axis L."""

    query: Float[Array, "*L D H*HD"]
    key: Float[Array, "*L D KV*HD"]
    value: Float[Array, "*L D KV*HD"]
    output: Float[Array, "*L H*HD D"]
    head_gate: Float[Array, "*L D H"] | None
    key_conv: Float[Array, "*L W KV*HD"] | None


class Packing(eqx.Module):
    """What follows from where documents begin, the same for every layer.

    Attributes:
        taps: per lag of the short convolution, whether it stays inside the document.
        visible_window: for windowed layers, which of the M keys each of C queries of a chunk sees.
        visible_global: for global layers, which of S keys each of S queries sees.
    """

    taps: Bool[Array, "W B S"] | None
    visible_window: Bool[Array, "B N C M"]
    visible_global: Bool[Array, "B 1 S S"]


def chunk_length(sequence_length: int, window: int) -> int:
    """Positions in a chunk of a windowed layer: the window where it cuts the sequence evenly, else the sequence."""
    return window if window < sequence_length and sequence_length % window == 0 else sequence_length


def visible(segment_ids: Int[Array, "B S"], window: int, chunk: int) -> Bool[Array, "B N C M"]:
    """Which keys a query sees: its own document's, not later than itself, fewer than `window` positions back.

    M is S when there is one chunk, else two chunks: the one before and the query's own.
    """
    batch, length = segment_ids.shape
    num_chunks = length // chunk
    positions = jnp.broadcast_to(jnp.arange(length), (batch, length))
    query_at, key_at = positions.reshape(batch, num_chunks, chunk), _met(positions, num_chunks, fill=-length)
    query_of, key_of = segment_ids.reshape(batch, num_chunks, chunk), _met(segment_ids, num_chunks, fill=-2)
    distance = query_at[..., :, None] - key_at[..., None, :]
    return (distance >= 0) & (distance < window) & (query_of[..., :, None] == key_of[..., None, :])


def rotary(length: int, head_dim: int, theta: float) -> tuple[Float[Array, "S HD/4"], Float[Array, "S HD/4"]]:
    """Cosine and sine of position * theta^(-2i/(HD/2)) for the pairs i of the rotated half of a head."""
    pairs = head_dim // 4
    frequency = theta ** (-jnp.arange(pairs, dtype=jnp.float32) / pairs)
    angle = jnp.arange(length, dtype=jnp.float32)[:, None] * frequency
    return jnp.cos(angle), jnp.sin(angle)


def rotate(
    x: Float[Array, "B S H HD"], cosine: Float[Array, "S HD/4"], sine: Float[Array, "S HD/4"]
) -> Float[Array, "B S H HD"]:
    """Turn the first half of each head; channel i pairs with channel i + HD/4. The second half stays."""
    quarter = x.shape[-1] // 4
    cos, sin = cosine[:, None, :].astype(x.dtype), sine[:, None, :].astype(x.dtype)
    first, second, rest = x[..., :quarter], x[..., quarter : 2 * quarter], x[..., 2 * quarter :]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin, rest], axis=-1)


def remove_own_value(y: Float[Array, "*T HD"], value: Float[Array, "*T HD"]) -> Float[Array, "*T HD"]:
    """Exclusive self-attention: y - (y.v / (|v|^2 + 1e-6)) v, so a head only reports what its own token lacks."""
    along = jnp.sum(y * value, axis=-1, keepdims=True) / (jnp.sum(value * value, axis=-1, keepdims=True) + XSA_EPS)
    return y - along * value


@jax.named_scope("attention")
def attention(
    x: Float[Array, "B S D"],
    weights: AttentionWeights,
    is_global: Bool[Array, ""],
    packing: Packing,
    config: ModelConfig,
) -> Float[Array, "B S D"]:
    """One layer's attention branch, its output convolution aside; `is_global` chooses the kind at run time."""
    batch, length, _ = x.shape
    head_dim = config.head_dim
    query = (x @ weights.query).reshape(batch, length, config.num_heads, head_dim)
    key = short_conv(x @ weights.key, weights.key_conv, packing.taps).reshape(batch, length, -1, head_dim)
    value = (x @ weights.value).reshape(batch, length, -1, head_dim)
    if config.qk_norm:
        query, key = unit_rms(query), unit_rms(key)
    if config.rope:
        cosine, sine = rotary(length, head_dim, config.rope_theta)
        cosine, sine = jnp.where(is_global, 1.0, cosine), jnp.where(is_global, 0.0, sine)
        query, key = rotate(query, cosine, sine), rotate(key, cosine, sine)
    query = query * (config.qk_mult / math.sqrt(head_dim))

    def branch(heads: int, mask: Bool[Array, "B N C M"]):
        def run(q: Array, k: Array, v: Array) -> Array:
            k, v = k[:, :, :heads], v[:, :, :heads]
            y = attend(q, k, v, mask, bounded=config.qk_norm)
            if config.xsa:
                grouped = y.reshape(batch, length, heads, -1, head_dim)
                y = remove_own_value(grouped, v[:, :, :, None]).reshape(y.shape)
            return y

        return jax.checkpoint(run)

    y = jax.lax.cond(
        is_global,
        branch(config.num_global_kv_heads, packing.visible_global),
        branch(config.num_kv_heads, packing.visible_window),
        query,
        key,
        value,
    )
    y = checkpoint_name(y, ATTENDED)
    if weights.head_gate is not None:
        y = y * (2 * jax.nn.sigmoid(x @ weights.head_gate))[..., None]
    return y.reshape(batch, length, -1) @ weights.output


def attend(
    query: Float[Array, "B S H HD"],
    key: Float[Array, "B S KV HD"],
    value: Float[Array, "B S KV HD"],
    mask: Bool[Array, "B N C M"],
    *,
    bounded: bool,
) -> Float[Array, "B S H HD"]:
    """softmax(query.key over what `mask` shows) value, in chunks; queries come scaled. KV divides H.

    The G query heads that share a key head are folded into the rows of one matrix product. A column of ones beside
    the values makes the same product yield the softmax's denominator. `bounded` says that queries and keys have
    passed the bare norm: scores then stay within qk_mult * sqrt(HD), and the exponential needs no maximum taken off.
    """
    batch, length, num_heads, head_dim = query.shape
    kv_heads, num_chunks, chunk = key.shape[2], mask.shape[1], mask.shape[2]
    group = num_heads // kv_heads
    rows = query.reshape(batch, num_chunks, chunk, kv_heads, group, head_dim).transpose(0, 3, 1, 2, 4, 5)
    rows = rows.reshape(batch, kv_heads, num_chunks, chunk * group, head_dim)
    keys = _met(key, num_chunks, fill=0).transpose(0, 3, 1, 2, 4)
    values = _met(value, num_chunks, fill=0).transpose(0, 3, 1, 2, 4)
    values = jnp.concatenate([values, jnp.ones((*values.shape[:-1], 1), values.dtype)], axis=-1)
    scores = jnp.einsum("bknrd,bknmd->bknrm", rows, keys, preferred_element_type=jnp.float32)
    scores = scores.reshape(batch, kv_heads, num_chunks, chunk, group, -1)
    seen = mask[:, None, :, :, None, :]
    if not bounded:
        scores = jnp.where(seen, scores, -jnp.inf)
        scores = scores - jax.lax.stop_gradient(jnp.max(scores, axis=-1, keepdims=True))
    share = jnp.where(seen, jnp.exp(scores), 0.0)
    share = share.reshape(batch, kv_heads, num_chunks, chunk * group, -1).astype(value.dtype)
    out = jnp.einsum("bknrm,bknmd->bknrd", share, values, preferred_element_type=jnp.float32)
    out = (out[..., :-1] / out[..., -1:]).astype(query.dtype)
    out = out.reshape(batch, kv_heads, num_chunks, chunk, group, head_dim).transpose(0, 2, 3, 1, 4, 5)
    return out.reshape(batch, length, num_heads, head_dim)


def _met(x: Array, num_chunks: int, fill: int) -> Array:
    """[B, S, ...] -> [B, N, M, ...]: what each chunk meets, its own positions last; before the start stands `fill`."""
    batch, length, *rest = x.shape
    chunks = x.reshape(batch, num_chunks, length // num_chunks, *rest)
    if num_chunks == 1:
        return chunks
    before = jnp.concatenate([jnp.full_like(chunks[:, :1], fill), chunks[:, :-1]], axis=1)
    return jnp.concatenate([before, chunks], axis=2)
