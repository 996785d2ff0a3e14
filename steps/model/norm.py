"""Normalisation: RMSNorm with a learned gain and a low-rank gate behind it, and the bare one for queries and keys.

Letters: D width, R rank of the gate.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

UNIT_EPS = 1e-6
"""What the bare norm adds to the mean square; the learned norms take theirs from the config."""


class GatedNorm(eqx.Module):
    """Weights of one norm. Both gate matrices are None where the gate is switched off."""

    gain: Float[Array, "*L D"]
    gate_down: Float[Array, "*L D R"] | None
    gate_up: Float[Array, "*L R D"] | None


def rms_norm(x: Float[Array, "*T D"], gain: Float[Array, " D"], eps: float) -> Float[Array, "*T D"]:
    """x / sqrt(mean(x^2) + eps) * gain, in fp32 whatever the type of x."""
    x32 = x.astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.mean(jnp.square(x32), axis=-1, keepdims=True) + eps)
    return (x32 * scale * gain.astype(jnp.float32)).astype(x.dtype)


def unit_rms(x: Float[Array, "*T D"]) -> Float[Array, "*T D"]:
    """x / sqrt(mean(x^2) + 1e-6): no parameters, so a query's length is sqrt(D) and only its direction counts."""
    x32 = x.astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.mean(jnp.square(x32), axis=-1, keepdims=True) + UNIT_EPS)
    return (x32 * scale).astype(x.dtype)


@jax.named_scope("gated_norm")
def gated_norm(x: Float[Array, "*T D"], weights: GatedNorm, eps: float) -> Float[Array, "*T D"]:
    """n * sigmoid(silu(n Wdown) Wup) with n = rms_norm(x) (arXiv 2601.22966; docs/hero.md, section 1)."""
    normed = rms_norm(x, weights.gain, eps)
    if weights.gate_down is None or weights.gate_up is None:
        return normed
    return normed * jax.nn.sigmoid(jax.nn.silu(normed @ weights.gate_down) @ weights.gate_up)
