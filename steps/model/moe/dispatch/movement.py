"""Moving rows: every move is a gather, and so is its backward.

A move has two maps that invert each other: for each place where its row comes from, and for each row where it went.
Forward gathers through the one, backward through the other; autodiff would make a scatter of it. An index equal to
the number of rows on the other side stands for "nothing".

Places that hold no row contain `UNUSED`. Nothing may depend on what that is: the tests set it to NaN. So whatever
sums over rows masks by `where`, never by multiplication with zero, in forward and in backward.

Letters: T tokens of this device, K experts per token, l width, M and N places of a buffer.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

UNUSED = 0.0


def gather_rows(rows: Float[Array, "N l"], index: Int[Array, " M"]) -> Float[Array, "M l"]:
    """rows[index], `UNUSED` where index is N."""
    taken = jnp.take(rows, index, axis=0, mode="clip")
    return jnp.where((index < rows.shape[0])[:, None], taken, jnp.asarray(UNUSED, rows.dtype))


@jax.custom_vjp
def spread(tokens: Float[Array, "T l"], token: Int[Array, " M"], place: Int[Array, "T K"]) -> Float[Array, "M l"]:
    """A copy of its token in each place. `token` is T for an unused place, `place` is M for a lost assignment."""
    return gather_rows(tokens, token)


def _spread_forward(tokens, token, place):
    return gather_rows(tokens, token), place


def _spread_backward(place, cotangent):
    return sum_rows(cotangent, place).astype(cotangent.dtype), None, None


spread.defvjp(_spread_forward, _spread_backward)


@jax.custom_vjp
def move(rows: Float[Array, "N l"], source: Int[Array, " M"], target: Int[Array, " N"]) -> Float[Array, "M l"]:
    """Each row to at most one place. `source` is N for an unused place, `target` is M for a row that stays behind."""
    return gather_rows(rows, source)


def _move_forward(rows, source, target):
    return gather_rows(rows, source), target


def _move_backward(target, cotangent):
    return gather_rows(cotangent, target), None, None


move.defvjp(_move_forward, _move_backward)


@jax.custom_vjp
def combine(
    rows: Float[Array, "M l"], weights: Float[Array, "T K"], place: Int[Array, "T K"], assignment: Int[Array, " M"]
) -> Float[Array, "T l"]:
    """sum over j of weights[t, j] * rows[place[t, j]], fp32; a lost assignment adds nothing.

    `assignment` is the inverse of `place`: t*K + j, or T*K for an unused place.
    """
    return sum_rows(rows, place, weights)


def _combine_forward(rows, weights, place, assignment):
    return combine(rows, weights, place, assignment), (rows, weights, place, assignment)


def _combine_backward(residuals, cotangent):
    rows, weights, place, assignment = residuals
    num_tokens, top_k = weights.shape
    token = jnp.where(assignment < num_tokens * top_k, assignment // top_k, num_tokens)
    weight = jnp.take(weights.reshape(-1), assignment, mode="clip")
    back = gather_rows(cotangent, token).astype(jnp.float32)
    d_rows = (back * weight[:, None]).astype(rows.dtype)
    # Every place has its token's cotangent beside its row: the products are summed there and numbers are fetched.
    products = jnp.sum(back * rows.astype(jnp.float32), axis=-1)
    d_weights = jnp.where(place < rows.shape[0], jnp.take(products, place, mode="clip"), 0)
    return d_rows, d_weights.astype(weights.dtype), None, None


combine.defvjp(_combine_forward, _combine_backward)


def sum_rows(
    rows: Float[Array, "M l"], place: Int[Array, "T K"], weights: Float[Array, "T K"] | None = None
) -> Float[Array, "T l"]:
    """For each token the (weighted) sum of its rows, in fp32, those that are lost left out."""
    total = jnp.zeros((), jnp.float32)
    for j in range(place.shape[1]):
        row = jnp.take(rows, place[:, j], axis=0, mode="clip").astype(jnp.float32)
        if weights is not None:
            row = row * weights[:, j, None].astype(jnp.float32)
        total = total + jnp.where((place[:, j] < rows.shape[0])[:, None], row, 0)
    return total
