"""Padded all-to-alls in waves: in each a cell of fixed size for every pair of devices.

The accepted rows of one sender for one device, in order of their expert, are a list; a wave carries the next cellful
of every such list there and its results back. The receiver knows from the plan which rows those are, so no header and
no second collective travels with them.

    pair's list   0 . . . . . . . . . . . 13            first cell 10, further cells 3
    waves         [ 0 ..            9 ] [10 12] [13 ]

The first wave has room for nearly all rows, and what it computes is kept for the backward pass. The others are as many
as the fullest pair needs: none on an even load, and never more than `Cells.most`. Their number is read from the plan,
the same on every device, while the program runs; they are computed again in the backward pass. A limit on pairs that
fits the first cell leaves the loop out of the program.

Invariant: every accepted row is in exactly one wave.

Letters: T tokens of this device, K experts per token, S devices the experts are spread over, E experts, EL experts of
this device, P places in a cell, N rows, l width, I expert width.
"""

import dataclasses
import functools
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from steps.model.moe.dispatch.assigned import Assigned
from steps.model.moe.dispatch.groups import locate, starts
from steps.model.moe.dispatch.movement import combine, move, spread
from steps.model.moe.experts import swiglu_experts
from steps.model.moe.plan import Limits

_FIRST, _FURTHER = 1.25, 0.25
"""Cells relative to an even load: the first holds most pairs, the further ones are small, as few rows are left."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cells:
    """Places of one pair in the first wave and in each further one, and what a list can hold at most."""

    first: int
    further: int
    longest: int

    @property
    def most(self) -> int:
        """Waves after the first at most: all that a sender has goes to one device."""
        return math.ceil(max(0, self.longest - self.first) / self.further)

    @classmethod
    def of(cls, assignments: int, limits: Limits) -> "Cells":
        """Cells for A assignments a device; a pair limit that is not much above the first cell becomes its size."""
        even = assignments / limits.num_devices
        first = min(math.ceil(_FIRST * even), limits.pair_rows)
        further = max(1, math.ceil(_FURTHER * even))
        if limits.pair_rows <= first + further:
            first = limits.pair_rows
        return cls(first=first, further=further, longest=limits.pair_rows)


def through_waves(
    assigned: Assigned,
    tokens: Float[Array, "T l"],
    weights: Float[Array, "T K"],
    w_gate_up: Float[Array, "EL l 2I"],
    w_down: Float[Array, "EL I l"],
) -> Float[Array, "T l"]:
    """The weighted sum of each token's accepted experts, fp32."""
    cells = Cells.of(assigned.experts.size, assigned.limits)
    out = _one_wave(assigned, 0, cells.first, tokens, weights, w_gate_up, w_down)
    if not cells.most:
        return out
    further: Any = _further_waves(cells, assigned, tokens, weights, w_gate_up, w_down)
    return out + further


def _one_wave(
    assigned: Assigned,
    first: int | Int[Array, ""],
    places: int,
    tokens: Float[Array, "T l"],
    weights: Float[Array, "T K"],
    w_gate_up: Float[Array, "EL l 2I"],
    w_down: Float[Array, "EL I l"],
) -> Float[Array, "T l"]:
    """What the rows at places [first, first + places) of every pair's list add to the tokens' sums."""
    with jax.named_scope("maps"):
        wave = Wave.of(assigned, first, places)
    rows = wave.to_experts(tokens)
    rows = swiglu_experts(rows, wave.group_sizes, w_gate_up, w_down, tile=assigned.tile)
    return wave.to_tokens(rows, weights)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _further_waves(cells, assigned, tokens, weights, w_gate_up, w_down):
    def body(number, total):
        first = cells.first + number * cells.further
        return total + _one_wave(assigned, first, cells.further, tokens, weights, w_gate_up, w_down)

    with jax.named_scope("further_waves"):
        return jax.lax.fori_loop(0, _num_further(cells, assigned), body, jnp.zeros_like(tokens, jnp.float32))


def _further_forward(cells, assigned, *inputs):
    return _further_waves(cells, assigned, *inputs), (assigned, inputs)


def _further_backward(cells, residuals, cotangent):
    assigned, inputs = residuals

    def body(number, totals):
        first = cells.first + number * cells.further
        _, pull_back = jax.vjp(lambda *given: _one_wave(assigned, first, cells.further, *given), *inputs)
        return tuple(total + one for total, one in zip(totals, pull_back(cotangent), strict=True))

    with jax.named_scope("further_waves"):
        zeros = tuple(jnp.zeros_like(one, jnp.float32) for one in inputs)
        totals = jax.lax.fori_loop(0, _num_further(cells, assigned), body, zeros)
    return None, *(total.astype(one.dtype) for total, one in zip(totals, inputs, strict=True))


_further_waves.defvjp(_further_forward, _further_backward)


def _num_further(cells: Cells, assigned: Assigned) -> Int[Array, ""]:
    """Waves after the first that the fullest pair needs."""
    return -(-jnp.maximum(jnp.max(assigned.pairs) - cells.first, 0) // cells.further)


class Wave(eqx.Module):
    """The maps of one wave; places of all its cells are numbered through, cell * P + place.

    Attributes:
        group_sizes: rows that each expert of this device has; they lie one behind the other from row 0.
        assignment: the assignment (t*K + j) sent in a place, T*K where there is none.
        place: the place token t's j-th assignment is sent in, S*P where it is in another wave or was dropped.
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
    def of(cls, assigned: Assigned, first: int | Int[Array, ""], places: int) -> "Wave":
        """The wave of the places [first, first + places) of every pair's list."""
        order, experts, limits = assigned.order, assigned.experts, assigned.limits
        devices, local = limits.num_devices, limits.experts_per_device
        num_places = devices * places
        num_rows = min(num_places, limits.device_rows) + assigned.tile

        sent, skipped = _in_wave(assigned.sent, first, places)
        expert, offset, used = _cell_contents(sent, places)
        expert = expert + jnp.arange(devices)[:, None] * local
        rank = offset + skipped.reshape(-1)[expert]
        assignment = jnp.where(used, order.assignment[order.start[expert] + rank], experts.size).reshape(-1)
        position = starts(assigned.sent).reshape(-1)[experts] + order.rank - first
        here = assigned.kept & (position >= 0) & (position < places)
        place = jnp.where(here, experts // local * places + position, num_places)

        received, _ = _in_wave(assigned.received, first, places)
        received_start = starts(received)
        group_sizes = jnp.sum(received, axis=0)
        by_expert = received.T.reshape(-1)
        group, offset_in_group, filled = locate(by_expert, num_rows)
        expert_of_row, sender = group // devices, group % devices
        arrival = jnp.where(
            filled, sender * places + received_start[sender, expert_of_row] + offset_in_group, num_places
        )
        row_start = starts(by_expert).reshape(local, devices)
        expert, offset, used = _cell_contents(received, places)
        row = jnp.where(used, row_start[expert, jnp.arange(devices)[:, None]] + offset, num_rows).reshape(-1)
        return cls(
            group_sizes=group_sizes, assignment=assignment, place=place, arrival=arrival, row=row, axis=assigned.axis
        )

    def to_experts(self, tokens: Float[Array, "T l"]) -> Float[Array, "N l"]:
        """Rows of this device's experts in order of expert, then sender."""
        with jax.named_scope("dispatch"):
            sent = spread(tokens, self.assignment // self.place.shape[1], self.place)
            return move(self._exchange(sent), self.arrival, self.row)

    def to_tokens(self, rows: Float[Array, "N l"], weights: Float[Array, "T K"]) -> Float[Array, "T l"]:
        """The weighted sum of each token's rows, fetched back from wherever they were worked on; fp32."""
        with jax.named_scope("combine"):
            returned = self._exchange(move(rows, self.row, self.arrival))
            return combine(returned, weights, self.place, self.assignment)

    def _exchange(self, places: Float[Array, "S*P l"]) -> Float[Array, "S*P l"]:
        return jax.lax.all_to_all(places, self.axis, split_axis=0, concat_axis=0, tiled=True)


def _in_wave(
    sizes: Int[Array, "S EL"], first: int | Int[Array, ""], places: int
) -> tuple[Int[Array, "S EL"], Int[Array, "S EL"]]:
    """Of the groups that make up each list: how many rows lie in the wave, and how many of each come before it."""
    start = starts(sizes)
    begin = jnp.clip(first - start, 0, sizes)
    end = jnp.clip(first + places - start, 0, sizes)
    return end - begin, begin


def _cell_contents(
    sizes: Int[Array, "S EL"], places: int
) -> tuple[Int[Array, "S P"], Int[Array, "S P"], Bool[Array, "S P"]]:
    """For each place of each cell: the local expert, the offset in its group there, and whether it is used."""
    return jax.vmap(lambda cell: locate(cell, places))(sizes)
