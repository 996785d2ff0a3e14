"""Tokens to the experts that were chosen for them, and the weighted sums of what those made of them.

Runs on one device inside `shard_map`. Invariant: which assignments are worked on is decided by `steps.model.moe.plan`
alone; a transport only moves them.

Letters: T tokens of this device, K experts per token, E experts, EL experts of this device, l width that experts work
at, I expert width.
"""

import jax
from jaxtyping import Array, Bool, Float, Int

from steps.model.config import Transport
from steps.model.moe.dispatch.assigned import Assigned
from steps.model.moe.dispatch.dense import through_dense
from steps.model.moe.dispatch.groups import sort_by_expert
from steps.model.moe.dispatch.local import through_local
from steps.model.moe.dispatch.ragged import through_ragged
from steps.model.moe.dispatch.ring import through_ring
from steps.model.moe.dispatch.waves import through_waves
from steps.model.moe.experts import tile_rows
from steps.model.moe.plan import Limits, Plan, make_plan

EXPERT_AXIS = "expert"

_THROUGH = {
    "local": through_local,
    "waves": through_waves,
    "ragged": through_ragged,
    "ring": through_ring,
    "dense": through_dense,
}


def routed_experts(
    tokens: Float[Array, "T l"],
    valid: Bool[Array, " T"],
    experts: Int[Array, "T K"],
    weights: Float[Array, "T K"],
    w_gate_up: Float[Array, "EL l 2I"],
    w_down: Float[Array, "EL I l"],
    *,
    limits: Limits,
    transport: Transport,
) -> tuple[Float[Array, "T l"], Plan, Int[Array, " E"]]:
    """The weighted sum of each token's routed experts, the plan, and how often each expert was chosen here."""
    with jax.named_scope("plan"):
        order = sort_by_expert(experts, valid, limits.num_experts)
        counts = order.counts[None]
        if limits.num_devices > 1:
            counts = jax.lax.all_gather(order.counts, EXPERT_AXIS)
        assigned = Assigned(
            order=order,
            plan=make_plan(counts, limits),
            experts=experts,
            limits=limits,
            tile=tile_rows(experts.size, limits.experts_per_device),
            axis=EXPERT_AXIS,
        )
    out = _THROUGH[transport](assigned, tokens, weights, w_gate_up, w_down)
    return out.astype(tokens.dtype), assigned.plan, order.counts
