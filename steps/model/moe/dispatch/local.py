"""No exchange: all experts are on this device, so tokens are copied straight to their expert's rows and back.

Letters: T tokens, K experts per token, E experts, l width, N rows.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from steps.model.moe.dispatch.groups import Sorted, locate, starts
from steps.model.moe.dispatch.movement import combine, spread
from steps.model.moe.plan import Plan


class Local(eqx.Module):
    """The maps of one layer's dispatch on a single device.

    Attributes:
        group_sizes: rows each expert has; they lie one behind the other from row 0.
        assignment: the assignment (t*K + j) of a row, T*K where there is none.
        row: the row of token t's j-th assignment, N where it was dropped.
    """

    group_sizes: Int[Array, " E"]
    assignment: Int[Array, " N"]
    row: Int[Array, "T K"]

    @classmethod
    def of(cls, order: Sorted, plan: Plan, experts: Int[Array, "T K"], num_rows: int) -> "Local":
        accepted = plan.accepted[0]
        expert, offset, used = locate(accepted, num_rows)
        assignment = jnp.where(used, order.assignment[order.start[expert] + offset], experts.size)
        kept = order.rank < accepted[experts]
        row = jnp.where(kept, starts(accepted)[experts] + order.rank, num_rows)
        return cls(group_sizes=accepted, assignment=assignment, row=row)

    def to_experts(self, tokens: Float[Array, "T l"]) -> Float[Array, "N l"]:
        """Tokens as rows in order of their expert."""
        with jax.named_scope("dispatch"):
            return spread(tokens, self.assignment // self.row.shape[1], self.row)

    def to_tokens(self, rows: Float[Array, "N l"], weights: Float[Array, "T K"]) -> Float[Array, "T l"]:
        """The weighted sum of each token's rows."""
        with jax.named_scope("combine"):
            return combine(rows, weights, self.row, self.assignment)
