"""Tokens dealt out over the expert axis, so that no device sends what one document's tokens all want.

Tokens of one document lean towards the same experts, and a device holds few documents: its rows for one other device
can be many times the mean. Dealt out like cards, token t of every device to device t % S, each device has an equal
part of everybody's documents. One more all-to-all there and one back: 1/K more bytes on the wire.

Letters: T tokens of this device, S devices of the axis, n = T/S.
"""

import jax
from jaxtyping import Array, Shaped


def deal_out(items: Shaped[Array, "T ..."], axis: str) -> Shaped[Array, "T ..."]:
    """Items of the tokens this device has after dealing: the n of each device that fell to it, by device."""
    size = jax.lax.axis_size(axis)
    hands = items.reshape(-1, size, *items.shape[1:]).swapaxes(0, 1)
    return jax.lax.all_to_all(hands, axis, split_axis=0, concat_axis=0, tiled=True).reshape(items.shape)


def collect(items: Shaped[Array, "T ..."], axis: str) -> Shaped[Array, "T ..."]:
    """The inverse: every token's item back on its own device, in its own place."""
    size = jax.lax.axis_size(axis)
    hands = items.reshape(size, -1, *items.shape[1:])
    returned = jax.lax.all_to_all(hands, axis, split_axis=0, concat_axis=0, tiled=True)
    return returned.swapaxes(0, 1).reshape(items.shape)
