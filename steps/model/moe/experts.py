"""SwiGLU experts on rows that lie grouped by expert, one group behind the other.

    rows [N, l], group_sizes [EL]  ->  [N, l]:   (silu(r Wg) * (r Wu)) Wd with the weights of the row's group

A loop over tiles of rows with a trip count that follows the groups, so that room that is not filled costs memory and
no arithmetic, whatever the distribution. A tile starts where its group's rows do and may reach into the next group;
tiles are visited in order, so what it writes there is written over by that group's own tiles. What a tile reads beyond
its group is masked before it is summed into a weight gradient: an empty expert's gradient is zero exactly, and rows
past all groups may hold NaN.

Weight gradients and the sums over widths accumulate in fp32 whatever the type of the rows.

Letters: N rows, EL experts of this device, l width that experts work at, I expert width, B rows of a tile.
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from steps.model.moe.dispatch import movement
from steps.model.moe.dispatch.groups import locate, starts


def tile_rows(num_rows: int, num_experts: int) -> int:
    """Rows of a tile: about a quarter of a mean group, a power of two from 16 to 256.

    Half a tile a group is wasted on average, and every tile costs a few loop steps: measured at 256 rows a group,
    tiles of 64 are as good as 128 and better than 32 and 256.
    """
    quarter = max(1, num_rows // (4 * num_experts))
    return min(256, max(16, 1 << (quarter.bit_length() - 1)))


def swiglu_experts(
    rows: Float[Array, "N l"],
    group_sizes: Int[Array, " EL"],
    w_gate_up: Float[Array, "EL l 2I"],
    w_down: Float[Array, "EL I l"],
    *,
    tile: int,
) -> Float[Array, "N l"]:
    """The experts' outputs, row by row. Rows past the sum of `group_sizes` come back undefined.

    At least `tile` rows must lie past the groups, or the last tile would not fit.
    """
    with jax.named_scope("experts"):
        return _experts(tile, rows, group_sizes, w_gate_up, w_down)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _experts(tile, rows, group_sizes, w_gate_up, w_down):
    return _forward(tile, rows, group_sizes, w_gate_up, w_down)[0]


def _forward(tile, rows, group_sizes, w_gate_up, w_down):
    tiles = _Tiles(tile, group_sizes, rows.shape[0])

    def body(step, carry):
        out, hidden = carry
        expert, first, _ = tiles.at(step)
        gate_up = _dot(_rows(rows, first, tile), w_gate_up[expert]).astype(rows.dtype)
        result = _dot(_swiglu(gate_up), w_down[expert]).astype(rows.dtype)
        return _write(out, result, first), _write(hidden, gate_up, first)

    buffers = (_buffer(rows, rows.shape[1]), _buffer(rows, w_gate_up.shape[-1]))
    out, hidden = jax.lax.fori_loop(0, tiles.count, body, buffers)
    return out, (rows, group_sizes, w_gate_up, w_down, hidden)


def _backward(tile, residuals, cotangent):
    rows, group_sizes, w_gate_up, w_down, hidden = residuals
    tiles = _Tiles(tile, group_sizes, rows.shape[0])

    def body(step, carry):
        d_rows, d_gate_up_weights, d_down_weights = carry
        expert, first, used = tiles.at(step)
        row = jnp.where(used, _rows(rows, first, tile), 0)
        d_out = jnp.where(used, _rows(cotangent, first, tile), 0)
        gate_up = jnp.where(used, _rows(hidden, first, tile), 0)
        activation, pull_back = jax.vjp(_swiglu, gate_up)
        (d_gate_up,) = pull_back(_dot(d_out, w_down[expert].T).astype(gate_up.dtype))
        d_row = _dot(d_gate_up, w_gate_up[expert].T).astype(rows.dtype)
        return (
            _write(d_rows, d_row, first),
            d_gate_up_weights.at[expert].add(_dot(row.T, d_gate_up)),
            d_down_weights.at[expert].add(_dot(activation.T, d_out)),
        )

    sums = tuple(jnp.zeros_like(weights, jnp.float32) for weights in (w_gate_up, w_down))
    d_rows, *d_weights = jax.lax.fori_loop(0, tiles.count, body, (_buffer(rows, rows.shape[1]), *sums))
    return d_rows, None, d_weights[0].astype(w_gate_up.dtype), d_weights[1].astype(w_down.dtype)


_experts.defvjp(_forward, _backward)


class _Tiles:
    """Which rows the loop visits at each step, laid out before it starts."""

    def __init__(self, tile: int, group_sizes: Int[Array, " EL"], num_rows: int) -> None:
        per_group = -(-group_sizes // tile)
        most = num_rows // tile + group_sizes.shape[0]
        self._tile = tile
        self._expert, nth, _ = locate(per_group, most)
        self._first = starts(group_sizes)[self._expert] + nth * tile
        self._used = jnp.minimum(group_sizes[self._expert] - nth * tile, tile)
        self.count = jnp.sum(per_group)

    def at(self, step: Int[Array, ""]) -> tuple[Int[Array, ""], Int[Array, ""], Bool[Array, "B 1"]]:
        """The step's expert, the first row of its tile, and which rows of the tile are that expert's."""
        used = jnp.arange(self._tile) < self._used[step]
        return self._expert[step], self._first[step], used[:, None]


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
