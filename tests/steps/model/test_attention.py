"""Attention against its formula written out in NumPy, one query at a time; windows, documents and heads included."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from steps.model.attention import (
    AttentionWeights,
    Packing,
    attend,
    attention,
    chunk_length,
    remove_own_value,
    rotary,
    rotate,
    visible,
)
from steps.model.config import ModelConfig
from steps.model.conv import tap_masks

BATCH, LENGTH, HIDDEN = 2, 24, 20
CONFIG = ModelConfig(
    vocab_size=32, hidden=HIDDEN, num_layers=2, num_heads=8, head_dim=8, num_kv_heads=4, num_global_kv_heads=2,
    window=6, sequence_length=LENGTH, num_experts=4, top_k=2, expert_width=8, latent=8, shared_width=8, qk_mult=1.7,
)  # fmt: skip
SEGMENTS = np.repeat([[0, 1, 2, -1], [0, 0, 1, 1]], [9, 4, 8, 3], axis=1)


def weights_of(config: ModelConfig, seed: int = 0) -> AttentionWeights:
    rng = np.random.default_rng(seed)

    def draw(*shape: int) -> jax.Array:
        return jnp.asarray(rng.standard_normal(shape) / np.sqrt(shape[0]), jnp.float32)

    query_width, key_width = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    arrays = AttentionWeights(
        query=draw(HIDDEN, query_width),
        key=draw(HIDDEN, key_width),
        value=draw(HIDDEN, key_width),
        output=draw(query_width, HIDDEN),
        head_gate=draw(HIDDEN, config.num_heads),
        key_conv=draw(4, key_width),
    )
    return dataclasses.replace(
        arrays,
        head_gate=arrays.head_gate if config.head_gate else None,
        key_conv=arrays.key_conv if config.conv_kernel else None,
    )


@functools.lru_cache
def compiled(config: ModelConfig):
    return jax.jit(functools.partial(attention, config=config))


def ours(x: np.ndarray, weights: AttentionWeights, is_global: bool, config: ModelConfig) -> np.ndarray:
    segments = jnp.asarray(SEGMENTS)
    packing = Packing(
        taps=tap_masks(segments, config.conv_kernel),
        visible_window=visible(segments, config.window, chunk_length(LENGTH, config.window)),
        visible_global=visible(segments, LENGTH, LENGTH),
    )
    return np.asarray(compiled(config)(x, weights, jnp.asarray(is_global), packing))


def by_hand(x: np.ndarray, weights: AttentionWeights, is_global: bool, config: ModelConfig) -> np.ndarray:
    """The same in fp64 from the words of docs/hero.md, section 1, with a loop over sequences, heads and queries."""
    w = {f.name: np.asarray(getattr(weights, f.name), np.float64) for f in dataclasses.fields(weights)}
    size = config.head_dim
    out = np.zeros((BATCH, LENGTH, config.num_heads * size))
    for b in range(BATCH):
        q, flat, v = x[b] @ w["query"], x[b] @ w["key"], x[b] @ w["value"]
        k = np.zeros_like(flat)
        for t in range(LENGTH):
            for lag in range(min(t, 3) + 1):
                if SEGMENTS[b, t] == SEGMENTS[b, t - lag]:
                    k[t] += flat[t - lag] * w["key_conv"][lag]
        heads = config.num_global_kv_heads if is_global else config.num_kv_heads
        for h in range(config.num_heads):
            own = h // (config.num_heads // heads)
            qh, kh, vh = (a[:, i * size : (i + 1) * size] for a, i in ((q, h), (k, own), (v, own)))
            qh, kh = (a / np.sqrt((a**2).mean(-1, keepdims=True) + 1e-6) for a in (qh, kh))
            if not is_global:
                qh, kh = turned(qh, config.rope_theta), turned(kh, config.rope_theta)
            gate = 2 / (1 + np.exp(-x[b] @ w["head_gate"][:, h]))
            for t in range(LENGTH):
                start = 0 if is_global else max(0, t - config.window + 1)
                seen = [s for s in range(start, t + 1) if SEGMENTS[b, s] == SEGMENTS[b, t]]
                score = np.exp(config.qk_mult * (kh[seen] @ qh[t]) / np.sqrt(size))
                y = (score / score.sum()) @ vh[seen]
                y = y - (y @ vh[t]) / (vh[t] @ vh[t] + 1e-6) * vh[t]
                out[b, t, h * size : (h + 1) * size] = gate[t] * y
    return out @ w["output"]


def turned(x: np.ndarray, theta: float) -> np.ndarray:
    """Rotate channel pairs (i, i + HD/4) of the first half as complex numbers."""
    quarter = x.shape[-1] // 4
    turn = np.exp(1j * np.arange(len(x))[:, None] * theta ** (-2.0 * np.arange(quarter) / (2 * quarter)))
    pair = (x[:, :quarter] + 1j * x[:, quarter : 2 * quarter]) * turn
    return np.concatenate([pair.real, pair.imag, x[:, 2 * quarter :]], axis=-1)


@pytest.fixture(scope="module")
def x() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((BATCH, LENGTH, HIDDEN)).astype(np.float32)


@pytest.mark.parametrize("window", [6, 7, 24, 100], ids=["chunks", "uneven", "whole", "longer"])
def test_windowed_layer(x: np.ndarray, window: int):
    config = dataclasses.replace(CONFIG, window=window)
    weights = weights_of(config)
    np.testing.assert_allclose(ours(x, weights, False, config), by_hand(x, weights, False, config), atol=2e-5)


def test_global_layer(x: np.ndarray):
    weights = weights_of(CONFIG)
    np.testing.assert_allclose(ours(x, weights, True, CONFIG), by_hand(x, weights, True, CONFIG), atol=2e-5)


@pytest.mark.parametrize("is_global", [False, True])
@pytest.mark.parametrize(
    "change",
    [{"xsa": False}, {"head_gate": False}, {"conv_kernel": 0}, {"qk_norm": False}, {"qk_mult": 1.0}, {"rope": False}],
    ids=str,
)
def test_switching_a_part_off_changes_the_output(x: np.ndarray, change: dict, is_global: bool):
    config = dataclasses.replace(CONFIG, **change)
    difference = np.abs(ours(x, weights_of(config), is_global, config) - ours(x, weights_of(CONFIG), is_global, CONFIG))
    if change == {"rope": False} and is_global:
        assert difference.max() < 1e-6, "global layers know no positions"
    else:
        assert difference.max() > 1e-2


def test_global_layer_uses_the_first_of_the_stored_heads(x: np.ndarray):
    weights = weights_of(CONFIG)
    unused = CONFIG.num_global_kv_heads * CONFIG.head_dim
    other = dataclasses.replace(
        weights, key=weights.key.at[:, unused:].set(7.0), value=weights.value.at[:, unused:].set(7.0)
    )
    np.testing.assert_array_equal(ours(x, weights, True, CONFIG), ours(x, other, True, CONFIG))
    assert np.abs(ours(x, weights, False, CONFIG) - ours(x, other, False, CONFIG)).max() > 1e-2


def test_chunks_see_what_one_mask_over_the_sequence_sees():
    rng = np.random.default_rng(2)
    query, key, value = (jnp.asarray(rng.standard_normal((BATCH, LENGTH, heads, 8))) for heads in (8, 4, 4))
    segments = jnp.asarray(SEGMENTS)
    chunked = attend(query, key, value, visible(segments, 6, 6), bounded=True)
    whole = attend(query, key, value, visible(segments, 6, LENGTH), bounded=True)
    np.testing.assert_allclose(chunked, whole, atol=1e-6)


def test_unbounded_scores_do_not_overflow():
    """Without the bare norm scores can be of any size, hidden ones too; values and gradients stay finite."""
    rng = np.random.default_rng(3)
    query, key, value = (jnp.asarray(300 * rng.standard_normal((BATCH, LENGTH, heads, 8))) for heads in (8, 4, 4))
    mask = visible(jnp.asarray(SEGMENTS), 6, 6)
    out, back = jax.vjp(lambda *args: attend(*args, mask, bounded=False), query, key, value)
    assert np.isfinite(out).all()
    assert all(np.isfinite(grad).all() for grad in back(jnp.ones_like(out)))


def test_bounded_scores_fit_the_exponential_at_the_hero_shape():
    """The promise behind leaving the maximum out: at most qk_mult * sqrt(HD), even with the planned longer contexts."""
    assert np.exp(np.float32(1.3 * (0.1 * np.log(262144 / 4096) + 1) * np.sqrt(128))) * 262144 < 1e15


def test_rotation_depends_on_distance_alone():
    cosine, sine = rotary(16, 8, 1e4)
    rng = np.random.default_rng(4)
    a, b = (np.broadcast_to(rng.standard_normal(8).astype(np.float32), (1, 16, 1, 8)) for _ in range(2))
    score = np.einsum("bqhd,bkhd->qk", rotate(a, cosine, sine), rotate(b, cosine, sine))
    for distance in range(1, 8):
        diagonal = np.diagonal(score, -distance)
        np.testing.assert_allclose(diagonal, diagonal[0], rtol=1e-4, atol=1e-4)
    assert np.ptp(score[:, 0]) > 0.1
    np.testing.assert_array_equal(rotate(a, cosine, sine)[..., 4:], a[..., 4:])


def test_exclusive_attention_leaves_nothing_along_the_value():
    rng = np.random.default_rng(5)
    y, value = rng.standard_normal((2, 6, 8)).astype(np.float32)
    left = np.asarray(remove_own_value(y, value))
    np.testing.assert_allclose(np.sum(left * value, -1), 0, atol=1e-5)
    np.testing.assert_array_equal(remove_own_value(y, np.zeros_like(value)), y)
