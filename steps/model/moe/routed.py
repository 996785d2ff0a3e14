"""Tokens to the experts that were chosen for them, and the weighted sums of what those made of them.

Runs on one device inside `shard_map`. Invariant: which assignments are worked on is decided by `steps.model.moe.plan`
alone; a transport only moves them.

Letters: T tokens of this device, K experts per token, E experts, EL experts of this device, l width that experts work
at, I expert width.
"""

import jax
from jaxtyping import Array, Bool, Float, Int

from steps.model.moe.dispatch.groups import sort_by_expert
from steps.model.moe.dispatch.local import Local
from steps.model.moe.dispatch.waves import through_waves
from steps.model.moe.experts import swiglu_experts, tile_rows
from steps.model.moe.plan import Limits, Plan, make_plan

EXPERT_AXIS = "expert"


def routed_experts(
    tokens: Float[Array, "T l"],
    valid: Bool[Array, " T"],
    experts: Int[Array, "T K"],
    weights: Float[Array, "T K"],
    w_gate_up: Float[Array, "EL l 2I"],
    w_down: Float[Array, "EL I l"],
    limits: Limits,
) -> tuple[Float[Array, "T l"], Plan, Int[Array, " E"]]:
    """The weighted sum of each token's routed experts, the plan, and how often each expert was chosen here."""
    tile = tile_rows(experts.size, limits.experts_per_device)
    with jax.named_scope("plan"):
        order = sort_by_expert(experts, valid, limits.num_experts)
        counts = order.counts[None]
        if limits.num_devices > 1:
            counts = jax.lax.all_gather(order.counts, EXPERT_AXIS)
        plan = make_plan(counts, limits)
    if limits.num_devices == 1:
        local = Local.of(order, plan, experts, limits.device_rows + tile)
        rows = swiglu_experts(local.to_experts(tokens), local.group_sizes, w_gate_up, w_down, tile=tile)
        out = local.to_tokens(rows, weights)
    else:
        out = through_waves(
            tokens,
            weights,
            w_gate_up,
            w_down,
            order=order,
            plan=plan,
            experts=experts,
            limits=limits,
            tile=tile,
            axis=EXPERT_AXIS,
        )
    return out.astype(tokens.dtype), plan, order.counts
