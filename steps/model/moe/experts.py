"""SwiGLU experts on rows that lie grouped by expert, one group behind the other.

    rows [N, l], group_sizes [EL]  ->  [N, l]:   (silu(r Wg) * (r Wu)) Wd with the weights of the row's group

Loops over tiles of rows with trip counts that follow the groups, so that room that is not filled costs memory and no
arithmetic, whatever the distribution. A group is cut into large tiles, of what is left into a middle one, and the rest
into small ones; only the last of these may reach beyond its group:

    group of 300 rows      [   128   ][   128   ][32][32]        44 rows are left for tiles of 32: 20 rows of waste

The small tiles are visited first, in order, and the larger ones after them, so what a small tile writes into other
groups is written over by their own tiles. What it reads there is masked before it is summed into a weight gradient: an
empty expert's gradient is zero exactly, and rows past all groups may hold NaN.

Weight gradients and the sums over widths accumulate in fp32 whatever the type of the rows.

Letters: N rows, EL experts of this device, l width that experts work at, I expert width, B rows of a tile, M tiles.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from steps.model.moe.dispatch import movement
from steps.model.moe.dispatch.groups import locate, starts

_SMALLEST = 16
"""Rows of a tile at least."""


def tile_rows(num_rows: int, num_experts: int) -> int:
    """Rows of the largest tile: about half a mean group, a power of two from 16 to 256.

    Every tile reads the weights and reads and writes their gradients, so large ones are cheap; half a small tile a
    group is wasted on average.
    """
    half = max(1, num_rows // (2 * num_experts))
    return min(256, max(16, 1 << (half.bit_length() - 1)))


def swiglu_experts(
    rows: Float[Array, "N l"],
    group_sizes: Int[Array, " EL"],
    w_gate_up: Float[Array, "EL l 2I"],
    w_down: Float[Array, "EL I l"],
    *,
    tile: int,
) -> Float[Array, "N l"]:
    """The experts' outputs, row by row. Rows past the sum of `group_sizes` come back undefined.

    `tile` is the rows of the largest tile; as many must lie past the groups, or the last one might not fit.
    """
    with jax.named_scope("experts"):
        return _experts(tile, rows, group_sizes, w_gate_up, w_down)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _experts(tile, rows, group_sizes, w_gate_up, w_down):
    return _forward(tile, rows, group_sizes, w_gate_up, w_down)[0]


def _forward(tile, rows, group_sizes, w_gate_up, w_down):
    def work(tiles, step, carry):
        out, hidden = carry
        expert, first = tiles.expert[step], tiles.first[step]
        gate_up = _dot(_rows(rows, first, tiles.rows), w_gate_up[expert]).astype(rows.dtype)
        result = _dot(_swiglu(gate_up), w_down[expert]).astype(rows.dtype)
        return _write(out, result, first), _write(hidden, gate_up, first)

    buffers = (_buffer(rows, rows.shape[1]), _buffer(rows, w_gate_up.shape[-1]))
    out, hidden = _visit(tile, group_sizes, rows.shape[0], work, buffers)
    return out, (rows, group_sizes, w_gate_up, w_down, hidden)


def _backward(tile, residuals, cotangent):
    rows, group_sizes, w_gate_up, w_down, hidden = residuals

    def work(tiles, step, carry):
        d_rows, d_gate_up_weights, d_down_weights = carry
        expert, first = tiles.expert[step], tiles.first[step]
        row, d_out, gate_up = (tiles.own(_rows(one, first, tiles.rows), step) for one in (rows, cotangent, hidden))
        activation, pull_back = jax.vjp(_swiglu, gate_up)
        (d_gate_up,) = pull_back(_dot(d_out, w_down[expert].T).astype(gate_up.dtype))
        d_row = _dot(d_gate_up, w_gate_up[expert].T).astype(rows.dtype)
        return (
            _write(d_rows, d_row, first),
            d_gate_up_weights.at[expert].add(_dot(row.T, d_gate_up)),
            d_down_weights.at[expert].add(_dot(activation.T, d_out)),
        )

    sums = tuple(jnp.zeros_like(weights, jnp.float32) for weights in (w_gate_up, w_down))
    d_rows, *d_weights = _visit(tile, group_sizes, rows.shape[0], work, (_buffer(rows, rows.shape[1]), *sums))
    return d_rows, None, d_weights[0].astype(w_gate_up.dtype), d_weights[1].astype(w_down.dtype)


_experts.defvjp(_forward, _backward)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Tiles:
    """All tiles of one size, M of them at most.

    Attributes:
        rows: of each tile.
        expert, first: whose they are and where they start.
        used: how many of a tile's rows are its expert's; None where all are.
        count: tiles there are.
    """

    rows: int
    expert: Int[Array, " M"]
    first: Int[Array, " M"]
    used: Int[Array, " M"] | None
    count: Int[Array, ""]

    @classmethod
    def of(cls, rows: int, begin: Int[Array, " EL"], left: Int[Array, " EL"], num_rows: int, *, whole: bool):
        """Tiles for the `left` rows from `begin` on of every group: those that are filled, or all that it takes."""
        per_group = left // rows if whole else -(-left // rows)
        expert, nth, _ = locate(per_group, num_rows // rows + (0 if whole else left.shape[0]))
        used = None if whole else jnp.minimum(left[expert] - nth * rows, rows)
        return cls(rows=rows, expert=expert, first=begin[expert] + nth * rows, used=used, count=jnp.sum(per_group))

    def own(self, read: Float[Array, "B l"], step: Int[Array, ""]) -> Float[Array, "B l"]:
        """Zero in place of the rows that are not the tile's expert's."""
        if self.used is None:
            return read
        return jnp.where((jnp.arange(self.rows) < self.used[step])[:, None], read, 0)


def _visit(tile: int, group_sizes: Int[Array, " EL"], num_rows: int, work: Callable, carry: Any) -> Any:
    """`work(tiles, step, carry)` for every tile: the small ones in order, then the larger ones."""
    sizes = [rows for rows in (tile, tile // 2, tile // 4) if rows >= _SMALLEST] or [tile]
    begin, left, all_tiles = starts(group_sizes), group_sizes, []
    for rows in sizes[:-1]:
        all_tiles.append(_Tiles.of(rows, begin, left, num_rows, whole=True))
        begin, left = begin + left // rows * rows, left % rows
    all_tiles.append(_Tiles.of(sizes[-1], begin, left, num_rows, whole=False))
    for tiles in reversed(all_tiles):
        carry = jax.lax.fori_loop(0, tiles.count, functools.partial(work, tiles), carry)
    return carry


def _swiglu(gate_up: Float[Array, "B 2I"]) -> Float[Array, "B I"]:
    gate, up = jnp.split(gate_up, 2, axis=-1)
    return jax.nn.silu(gate) * up


def _dot(a: Array, b: Array) -> Array:
    return jnp.dot(a, b, preferred_element_type=jnp.float32)


def _rows(buffer: Float[Array, "N l"], first: Int[Array, ""], tile: int) -> Float[Array, "B l"]:
    return jax.lax.dynamic_slice_in_dim(buffer, first, tile)


def _write(buffer: Float[Array, "N l"], rows: Float[Array, "B l"], first: Int[Array, ""]) -> Float[Array, "N l"]:
    return jax.lax.dynamic_update_slice_in_dim(buffer, rows, first, axis=0)


def _buffer(like: Float[Array, "N l"], width: int) -> Float[Array, "N width"]:
    """A buffer beside `like` (on the same devices), with nothing in it."""
    return jnp.full_like(like, movement.UNUSED, shape=(like.shape[0], width))
