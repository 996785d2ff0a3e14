"""No exchange: all experts are on this device, so tokens are copied straight to their expert's rows and back.

Letters: T tokens, K experts per token, EL experts, l width, I expert width.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from steps.model.moe.dispatch.assigned import Assigned
from steps.model.moe.dispatch.groups import locate
from steps.model.moe.dispatch.movement import combine, spread
from steps.model.moe.experts import swiglu_experts


def through_local(
    assigned: Assigned,
    tokens: Float[Array, "T l"],
    weights: Float[Array, "T K"],
    w_gate_up: Float[Array, "EL l 2I"],
    w_down: Float[Array, "EL I l"],
) -> Float[Array, "T l"]:
    """The weighted sum of each token's accepted experts, fp32."""
    num_rows = assigned.limits.device_rows + assigned.tile
    accepted, experts = assigned.plan.accepted[0], assigned.experts
    with jax.named_scope("maps"):
        expert, offset, used = locate(accepted, num_rows)
        order = assigned.order
        assignment = jnp.where(used, order.assignment[order.start[expert] + offset], experts.size)
        row = jnp.where(assigned.kept, assigned.row, num_rows)
    with jax.named_scope("dispatch"):
        rows = spread(tokens, assignment // experts.shape[1], row)
    rows = swiglu_experts(rows, accepted, w_gate_up, w_down, tile=assigned.tile)
    with jax.named_scope("combine"):
        return combine(rows, weights, row, assignment)
