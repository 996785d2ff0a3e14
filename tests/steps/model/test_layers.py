"""Norms, short convolution and the loss, each against its formula in NumPy (fp64, one position at a time)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

from steps.model.conv import short_conv, tap_masks
from steps.model.loss import token_losses
from steps.model.norm import GatedNorm, gated_norm, rms_norm, unit_rms

RNG = np.random.default_rng(0)


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def numpy_rms_norm(x: np.ndarray, gain: np.ndarray | float, eps: float) -> np.ndarray:
    x = x.astype(np.float64)
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * gain


def test_rms_norm():
    x, gain = draw(3, 7, 12), draw(12)
    np.testing.assert_allclose(rms_norm(x, gain, 0.1), numpy_rms_norm(x, gain, 0.1), rtol=2e-6, atol=1e-6)


def test_unit_rms_has_length_sqrt_d_whatever_the_scale():
    x = draw(5, 16)
    np.testing.assert_allclose(unit_rms(x), numpy_rms_norm(x, 1.0, 1e-6), rtol=2e-6, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(unit_rms(1000 * x), axis=-1), 4.0, rtol=1e-5)


def test_gated_norm():
    x, weights = draw(3, 5, 12), GatedNorm(gain=draw(12), gate_down=draw(12, 4), gate_up=draw(4, 12))
    normed = numpy_rms_norm(x, np.asarray(weights.gain), 1e-5)
    inner = normed @ np.asarray(weights.gate_down)
    expected = normed * sigmoid((inner * sigmoid(inner)) @ np.asarray(weights.gate_up))
    np.testing.assert_allclose(gated_norm(x, weights, 1e-5), expected, rtol=1e-5, atol=1e-5)
    ungated = GatedNorm(gain=weights.gain, gate_down=None, gate_up=None)
    np.testing.assert_allclose(gated_norm(x, ungated, 1e-5), normed, rtol=1e-5, atol=1e-5)


def test_norm_computes_in_fp32():
    x = (300 * draw(4, 64)).astype(jnp.bfloat16)
    out = rms_norm(x, jnp.ones(64), 1e-5)
    assert out.dtype == jnp.bfloat16
    expected = numpy_rms_norm(np.asarray(x, np.float32), 1.0, 1e-5)
    np.testing.assert_allclose(np.asarray(out, np.float32), expected, rtol=2**-8)


def test_short_conv_stays_inside_documents():
    x, kernel = draw(2, 9, 3), draw(4, 3)
    segments = np.array([[0, 0, 0, 0, 0, 1, 1, 1, -1], [0, 1, 1, 2, 2, 2, 2, 2, 2]])
    expected = np.zeros(x.shape)
    for b in range(2):
        for t in range(9):
            for lag in range(min(t, 3) + 1):
                if segments[b, t] == segments[b, t - lag]:
                    expected[b, t] += kernel[lag] * x[b, t - lag]
    np.testing.assert_allclose(short_conv(x, kernel, tap_masks(segments, 4)), expected, rtol=1e-5, atol=1e-6)


def test_short_conv_does_not_leak_a_nan_over_a_border():
    segments = np.array([[0, 0, 1, 1]])
    x = draw(1, 4, 2)
    x[0, :2] = np.nan
    out = short_conv(x, draw(4, 2), tap_masks(segments, 4))
    assert np.isfinite(out[0, 2:]).all()


def test_short_conv_identity_and_absence():
    x = draw(2, 6, 3)
    identity = np.zeros((4, 3), np.float32)
    identity[0] = 1
    masks = tap_masks(np.zeros((2, 6), np.int32), 4)
    np.testing.assert_array_equal(short_conv(x, identity, masks), x)
    np.testing.assert_array_equal(short_conv(x, None, tap_masks(np.zeros((2, 6), np.int32), 0)), x)


@pytest.mark.parametrize("limit", [2**40, 0], ids=["logits in full", "logits in blocks"])
def test_token_losses(limit: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("steps.model.loss.LOGITS_BYTES_IN_FULL", limit)
    hidden, head, labels = draw(4, 6, 8), draw(8, 50), RNG.integers(0, 50, (4, 6))
    mesh = jax.make_mesh((2, 2), ("data", "expert"), axis_types=(AxisType.Auto,) * 2)
    logits = hidden.astype(np.float64) @ head
    normaliser = np.log(np.exp(logits).sum(-1))
    chosen = np.take_along_axis(logits, labels[..., None], -1)[..., 0]
    nats, squares = jax.jit(lambda h, w: token_losses(h, w, labels, mesh))(hidden, head)
    np.testing.assert_allclose(nats, normaliser - chosen, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(squares, normaliser**2, rtol=1e-5)

    probability = np.exp(logits - normaliser[..., None])
    onto_logits = probability * (1 + 2 * normaliser[..., None]) - np.eye(50)[labels]
    total = jax.jit(jax.grad(lambda h, w: sum(jnp.sum(part) for part in token_losses(h, w, labels, mesh)), (0, 1)))
    onto_hidden, onto_head = total(hidden, head)
    np.testing.assert_allclose(onto_hidden, onto_logits @ head.T, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(onto_head, np.einsum("bsd,bsv->dv", hidden, onto_logits), rtol=1e-4, atol=1e-4)
