"""One padded all-to-all each way: a cell of fixed size for every pair of devices.

A cell holds the accepted rows of one sender for one device, in order of their expert, then nothing. The receiver knows
from the plan which rows those are, so no header and no second collective travels with them.

Letters: T tokens of this device, K experts per token, S devices the experts are spread over, E experts, EL experts of
this device, P places in a cell, N rows, l width.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from steps.model.moe.dispatch.groups import Sorted, locate, starts
from steps.model.moe.dispatch.movement import combine, move, spread
from steps.model.moe.plan import Limits, Plan


class PaddedAllToAll(eqx.Module):
    """The maps of one layer's dispatch; places of all cells are numbered through, cell * P + place.

    Attributes:
        group_sizes: rows that each expert of this device has; they lie one behind the other from row 0.
        assignment: the assignment (t*K + j) sent in a place, T*K where there is none.
        place: the place token t's j-th assignment is sent in, S*P where it was dropped.
        arrival: the place of the received cells that a row comes from, S*P where there is none.
        row: the row that a received place becomes, N where it is unused.
        axis: mesh axis that the experts are spread over.
    """

    group_sizes: Int[Array, " EL"]
    assignment: Int[Array, " S*P"]
    place: Int[Array, "T K"]
    arrival: Int[Array, " N"]
    row: Int[Array, " S*P"]
    axis: str = eqx.field(static=True)

    @classmethod
    def of(
        cls, order: Sorted, plan: Plan, experts: Int[Array, "T K"], limits: Limits, num_rows: int, axis: str
    ) -> "PaddedAllToAll":
        devices, local, pair_rows = limits.num_devices, limits.experts_per_device, limits.pair_rows
        me = jax.lax.axis_index(axis)
        num_places = devices * pair_rows

        sent = plan.accepted[me]
        sent_start = starts(sent.reshape(devices, local)).reshape(-1)
        expert, offset, used = _cell_contents(sent.reshape(devices, local), pair_rows)
        expert = expert + jnp.arange(devices)[:, None] * local
        assignment = jnp.where(used, order.assignment[order.start[expert] + offset], experts.size).reshape(-1)
        kept = order.rank < sent[experts]
        place = jnp.where(kept, experts // local * pair_rows + sent_start[experts] + order.rank, num_places)

        received = jax.lax.dynamic_slice_in_dim(plan.accepted, me * local, local, axis=1)
        received_start = starts(received)
        group_sizes = jnp.sum(received, axis=0)
        by_expert = received.T.reshape(-1)
        group, offset_in_group, filled = locate(by_expert, num_rows)
        expert_of_row, sender = group // devices, group % devices
        arrival = jnp.where(
            filled, sender * pair_rows + received_start[sender, expert_of_row] + offset_in_group, num_places
        )
        row_start = starts(by_expert).reshape(local, devices)
        expert, offset, used = _cell_contents(received, pair_rows)
        row = jnp.where(used, row_start[expert, jnp.arange(devices)[:, None]] + offset, num_rows).reshape(-1)
        return cls(group_sizes=group_sizes, assignment=assignment, place=place, arrival=arrival, row=row, axis=axis)

    def to_experts(self, tokens: Float[Array, "T l"]) -> Float[Array, "N l"]:
        """Rows of this device's experts in order of expert, then sender."""
        with jax.named_scope("dispatch"):
            sent = spread(tokens, self.assignment // self.place.shape[1], self.place)
            return move(self._exchange(sent), self.arrival, self.row)

    def to_tokens(self, rows: Float[Array, "N l"], weights: Float[Array, "T K"]) -> Float[Array, "T l"]:
        """The weighted sum of each token's rows, fetched back from wherever they were worked on."""
        with jax.named_scope("combine"):
            returned = self._exchange(move(rows, self.row, self.arrival))
            return combine(returned, weights, self.place, self.assignment)

    def _exchange(self, places: Float[Array, "S*P l"]) -> Float[Array, "S*P l"]:
        return jax.lax.all_to_all(places, self.axis, split_axis=0, concat_axis=0, tiled=True)


def _cell_contents(
    sizes: Int[Array, "S EL"], pair_rows: int
) -> tuple[Int[Array, "S P"], Int[Array, "S P"], Bool[Array, "S P"]]:
    """For each place of each cell: the local expert, the offset in its group there, and whether it is used."""
    return jax.vmap(lambda cell: locate(cell, pair_rows))(sizes)
