"""Every expert works on every token of the expert axis, and what was not accepted counts nothing: slow and plain.

The transport to hold the others against on one plan. Letters: T tokens of this device, K experts per token, S devices
the experts are spread over, EL experts of this device, l width, I expert width.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from steps.model.moe.dispatch.assigned import Assigned


def through_dense(
    assigned: Assigned,
    tokens: Float[Array, "T l"],
    weights: Float[Array, "T K"],
    w_gate_up: Float[Array, "EL l 2I"],
    w_down: Float[Array, "EL I l"],
) -> Float[Array, "T l"]:
    """The weighted sum of each token's accepted experts, fp32."""
    local, axis = assigned.limits.experts_per_device, assigned.axis
    chosen = jax.nn.one_hot(assigned.experts, assigned.limits.num_experts, dtype=jnp.float32)
    gates = jnp.einsum("tk,tke->te", jnp.where(assigned.kept, weights.astype(jnp.float32), 0), chosen)
    if assigned.limits.num_devices > 1:
        tokens, gates = (jax.lax.all_gather(one, axis, tiled=True) for one in (tokens, gates))
        gates = jax.lax.dynamic_slice_in_dim(gates, assigned.me * local, local, axis=1)
    gate, up = jnp.split(jnp.einsum("tl,elf->etf", tokens, w_gate_up), 2, axis=-1)
    worked = jnp.einsum("eti,eil->etl", jax.nn.silu(gate) * up, w_down)
    sums = jnp.einsum("te,etl->tl", gates, worked, preferred_element_type=jnp.float32)
    if assigned.limits.num_devices > 1:
        sums = jax.lax.psum_scatter(sums, axis, scatter_dimension=0, tiled=True)
    return sums
