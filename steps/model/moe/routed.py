"""Tokens to the experts that were chosen for them, and the weighted sums of what those made of them.

Runs on one device inside `shard_map`. Invariant: which assignments are worked on is decided by `steps.model.moe.plan`
alone; a transport only moves them.

Letters: T tokens of this device, K experts per token, E experts, EL experts of this device, l width that experts work
at, I expert width.
"""

import jax
from jaxtyping import Array, Bool, Float, Int

from steps.model.moe.dispatch.all_to_all import PaddedAllToAll
from steps.model.moe.dispatch.groups import sort_by_expert
from steps.model.moe.dispatch.local import Local
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
    num_rows = limits.device_rows + tile
    with jax.named_scope("plan"):
        order = sort_by_expert(experts, valid, limits.num_experts)
        if limits.num_devices == 1:
            plan = make_plan(order.counts[None], limits)
            transport = Local.of(order, plan, experts, num_rows)
        else:
            plan = make_plan(jax.lax.all_gather(order.counts, EXPERT_AXIS), limits)
            transport = PaddedAllToAll.of(order, plan, experts, limits, num_rows, EXPERT_AXIS)
    rows = transport.to_experts(tokens)
    rows = swiglu_experts(rows, transport.group_sizes, w_gate_up, w_down, tile=tile)
    return transport.to_tokens(rows, weights), plan, order.counts
