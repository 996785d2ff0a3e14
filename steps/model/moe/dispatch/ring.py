"""Every device sees all tokens of the expert axis and sums what its own experts make of them.

Tokens are all-gathered, each device works on the rows of its experts, and the weighted sums, fp32, are added up and
scattered back to the tokens' devices. A token travels once to each device however many experts it has there: good for
few devices, bad for many.

Letters: T tokens of this device, K experts per token, S devices the experts are spread over, EL experts of this device,
N rows, l width, I expert width.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from steps.model.moe.dispatch.assigned import Assigned
from steps.model.moe.dispatch.movement import combine, spread
from steps.model.moe.experts import swiglu_experts


def through_ring(
    assigned: Assigned,
    tokens: Float[Array, "T l"],
    weights: Float[Array, "T K"],
    w_gate_up: Float[Array, "EL l 2I"],
    w_down: Float[Array, "EL I l"],
) -> Float[Array, "T l"]:
    """The weighted sum of each token's accepted experts, fp32."""
    limits, axis = assigned.limits, assigned.axis
    num_rows = limits.device_rows + assigned.tile
    top_k = weights.shape[1]
    with jax.named_scope("maps"):
        # Senders know the row; one number says device and row, S*N says that nobody is to work on it.
        device = assigned.experts // limits.experts_per_device
        place = jnp.where(assigned.kept, device * num_rows + assigned.row, limits.num_devices * num_rows)
        place = jax.lax.all_gather(place, axis, tiled=True) - assigned.me * num_rows
        row = jnp.where((place >= 0) & (place < num_rows), place, num_rows)
        assignments = jnp.arange(row.size, dtype=row.dtype)
        assignment = jnp.full_like(row, row.size, shape=(num_rows,)).at[row.reshape(-1)].set(assignments, mode="drop")
    with jax.named_scope("dispatch"):
        everyone = jax.lax.all_gather(tokens, axis, tiled=True)
        rows = spread(everyone, assignment // top_k, row)
    rows = swiglu_experts(rows, jnp.sum(assigned.received, axis=0), w_gate_up, w_down, tile=assigned.tile)
    with jax.named_scope("combine"):
        sums = combine(rows, jax.lax.all_gather(weights, axis, tiled=True), row, assignment)
        return jax.lax.psum_scatter(sums, axis, scatter_dimension=0, tiled=True)
