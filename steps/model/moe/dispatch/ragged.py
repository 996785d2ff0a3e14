"""One ragged all-to-all each way: exactly the accepted rows travel, no padding.

Everybody's send and receive sizes and offsets follow from the plan. XLA implements the collective on GPUs; on CPUs it
lowers and then fails, so `steps.model.moe.dispatch.choice` refuses it there.

Letters: T tokens of this device, K experts per token, S devices the experts are spread over, EL experts of this device,
A = T*K assignments, N rows, l width, I expert width.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from steps.model.moe.dispatch.assigned import Assigned
from steps.model.moe.dispatch.groups import locate, starts
from steps.model.moe.dispatch.movement import combine, move, spread
from steps.model.moe.experts import swiglu_experts


class Route(eqx.Module):
    """One direction: for each of the S peers where its rows lie here, how many, and where they go there.

    Attributes:
        num_rows: rows of the buffer that receives.
    """

    input_offsets: Int[Array, " S"]
    send_sizes: Int[Array, " S"]
    output_offsets: Int[Array, " S"]
    recv_sizes: Int[Array, " S"]
    num_rows: int = eqx.field(static=True)


def through_ragged(
    assigned: Assigned,
    tokens: Float[Array, "T l"],
    weights: Float[Array, "T K"],
    w_gate_up: Float[Array, "EL l 2I"],
    w_down: Float[Array, "EL I l"],
) -> Float[Array, "T l"]:
    """The weighted sum of each token's accepted experts, fp32."""
    order, experts = assigned.order, assigned.experts
    num_sent, num_received = experts.size, assigned.limits.device_rows
    num_rows = num_received + assigned.tile
    with jax.named_scope("maps"):
        there, back = routes(assigned.pairs, assigned.me, num_sent, num_received)
        accepted = assigned.sent.reshape(-1)
        expert, offset, used = locate(accepted, num_sent)
        assignment = jnp.where(used, order.assignment[order.start[expert] + offset], num_sent)
        place = jnp.where(assigned.kept, starts(accepted)[experts] + order.rank, num_sent)
        # What arrives lies by sender, then expert; rows lie by expert, then sender.
        received = assigned.received
        arrived_start = starts(received.reshape(-1)).reshape(received.shape)
        group, offset, filled = locate(received.T.reshape(-1), num_rows)
        local_expert, sender = group // received.shape[0], group % received.shape[0]
        arrival = jnp.where(filled, arrived_start[sender, local_expert] + offset, num_received)
        row_start = starts(received.T.reshape(-1)).reshape(received.T.shape).T
        group, offset, filled = locate(received.reshape(-1), num_received)
        row = jnp.where(filled, row_start.reshape(-1)[group] + offset, num_rows)
    with jax.named_scope("dispatch"):
        sent = spread(tokens, assignment // experts.shape[1], place)
        rows = move(_exchange(assigned.axis, sent, there, back), arrival, row)
    rows = swiglu_experts(rows, jnp.sum(received, axis=0), w_gate_up, w_down, tile=assigned.tile)
    with jax.named_scope("combine"):
        returned = _exchange(assigned.axis, move(rows, row, arrival), back, there)
        return combine(returned, weights, place, assignment)


def routes(pairs: Int[Array, "S S"], me: int | Int[Array, ""], num_sent: int, num_received: int) -> tuple[Route, Route]:
    """There and back, from the rows that every sender (first axis) has for every device."""
    send, receive = pairs[me], pairs[:, me]
    before_at_peer = starts(pairs.T)[:, me]
    before_back = starts(pairs)[:, me]
    there = Route(
        input_offsets=starts(send),
        send_sizes=send,
        output_offsets=before_at_peer,
        recv_sizes=receive,
        num_rows=num_received,
    )
    back = Route(
        input_offsets=starts(receive),
        send_sizes=receive,
        output_offsets=before_back,
        recv_sizes=send,
        num_rows=num_sent,
    )
    return there, back


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _exchange(axis: str, rows: Float[Array, "M l"], there: Route, back: Route) -> Float[Array, "N l"]:
    buffer = jnp.zeros_like(rows, shape=(there.num_rows, rows.shape[1]))
    return jax.lax.ragged_all_to_all(
        rows,
        buffer,
        there.input_offsets,
        there.send_sizes,
        there.output_offsets,
        there.recv_sizes,
        axis_name=axis,
    )


def _exchange_forward(axis, rows, there, back):
    return _exchange(axis, rows, there, back), (there, back)


def _exchange_backward(axis, routes, cotangent):
    there, back = routes
    return _exchange(axis, cotangent, back, there), None, None


_exchange.defvjp(_exchange_forward, _exchange_backward)
