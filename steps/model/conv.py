"""The short convolution (SConv): every channel mixes with its own last few values, never across documents.

Letters: B sequences, S positions, C channels, W taps.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


def tap_masks(segment_ids: Int[Array, "B S"], taps: int) -> Bool[Array, "W B S"] | None:
    """For each lag, whether a position and the one `lag` before it are in the same document; None without taps.

    The masks depend on the packing alone, so one call serves every convolution of a forward pass.
    """
    if taps == 0:
        return None
    return jnp.stack([_delayed(segment_ids, lag, fill=-2) == segment_ids for lag in range(taps)])


@jax.named_scope("short_conv")
def short_conv(
    x: Float[Array, "B S C"], kernel: Float[Array, "W C"] | None, masks: Bool[Array, "W B S"] | None
) -> Float[Array, "B S C"]:
    """sum over lags of kernel[lag] * x[t - lag], over the lags that stay inside the document of t.

    A kernel of (1, 0, 0, ...) is the identity, which is what it starts from. Without a kernel x comes back.
    """
    if kernel is None or masks is None:
        return x
    out = x * kernel[0]
    for lag in range(1, kernel.shape[0]):
        out = out + jnp.where(masks[lag][..., None], _delayed(x, lag, fill=0), 0) * kernel[lag]
    return out


def _delayed(x: Array, lag: int, fill: int) -> Array:
    """x moved `lag` places along axis 1, later in time; what has no past is `fill`."""
    pads = [(0, 0)] * x.ndim
    pads[1] = (lag, 0)
    return jnp.pad(x, pads, constant_values=fill)[:, : x.shape[1]]
