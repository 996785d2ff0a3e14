"""Which assignments reach their expert: decided once, from integer counts, alike on every device.

Each device counts its assignments per expert; the gathered matrix C[S, E] is all that is needed to say how many rows
of every (sender, expert) group are accepted, so nobody sends a row that the receiver would throw away and no transport
decides anything. Two senders with 3 and 1 rows for a device with room for 2:

    >>> fair_share(jnp.array([3, 1]), 2)
    [1, 1]

Whoever must give something up gives it round-robin: no group loses a second row more than another that still has
rows, whatever its place in the order (prefix order starves the last: marin #8347). Of a group the first rows stay.

Invariant: accepted <= counts; accepted + sender_dropped + receiver_dropped = counts, summed over a sender's experts.

Letters: T tokens of this device, K experts per token, S devices that the experts are spread over, E experts, EL = E/S
experts of one device. Row s, column e of a matrix [S, E] concerns sender s and expert e of device e // EL.
"""

import dataclasses
import math

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Int

from steps.model.config import ModelConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """Rows there is room for; static, so they are also the shapes of the buffers.

    Attributes:
        num_devices: S.
        num_experts: E.
        pair_rows: rows one sender may have for one device, pooled over the experts of that device.
        device_rows: rows one device takes in, pooled over its experts and all senders.
    """

    num_devices: int
    num_experts: int
    pair_rows: int
    device_rows: int

    @property
    def experts_per_device(self) -> int:
        return self.num_experts // self.num_devices

    @classmethod
    def of(cls, config: ModelConfig, tokens_per_device: int) -> "Limits":
        """The limits of a model's layer."""
        return cls.relative(
            assignments=tokens_per_device * config.top_k,
            num_devices=config.expert_parallel,
            num_experts=config.num_experts,
            capacity=config.capacity_factor,
            pair_capacity=config.pair_capacity_factor,
        )

    @classmethod
    def relative(
        cls,
        *,
        assignments: int,
        num_devices: int,
        num_experts: int,
        capacity: float | None,
        pair_capacity: float | None,
    ) -> "Limits":
        """Both limits relative to an even load: A assignments a device, A/S rows a pair. None is no limit at all."""
        device_rows = num_devices * assignments
        if capacity is not None:
            device_rows = min(device_rows, math.ceil(capacity * assignments))
        pair_rows = min(assignments, device_rows)
        if pair_capacity is not None:
            pair_rows = min(pair_rows, math.ceil(pair_capacity * assignments / num_devices))
        return cls(num_devices=num_devices, num_experts=num_experts, pair_rows=pair_rows, device_rows=device_rows)


class Plan(eqx.Module):
    """How much of what everybody wants to send is accepted.

    Attributes:
        wanted: rows that sender s has for expert e.
        accepted: rows of sender s that expert e takes: the first so many of that group.
        sender_dropped: rows of sender s lost to `pair_rows`.
        receiver_dropped: rows of sender s lost to `device_rows`.
    """

    wanted: Int[Array, "S E"]
    accepted: Int[Array, "S E"]
    sender_dropped: Int[Array, " S"]
    receiver_dropped: Int[Array, " S"]


def make_plan(counts: Int[Array, "S E"], limits: Limits) -> Plan:
    """The plan for these counts: pairs are limited first, then what is left of them on each device."""
    devices, local = limits.num_devices, limits.experts_per_device
    sent = fair_share(counts.reshape(devices, devices, local), limits.pair_rows)
    by_device = jnp.transpose(sent, (1, 2, 0)).reshape(devices, local * devices)
    taken = fair_share(by_device, limits.device_rows).reshape(devices, local, devices)
    accepted = jnp.transpose(taken, (2, 0, 1)).reshape(devices, limits.num_experts)
    num_sent = jnp.sum(sent, axis=(1, 2))
    return Plan(
        wanted=counts,
        accepted=accepted,
        sender_dropped=jnp.sum(counts, axis=1) - num_sent,
        receiver_dropped=num_sent - jnp.sum(accepted, axis=1),
    )


def fair_share(wanted: Int[Array, "*B G"], room: int) -> Int[Array, "*B G"]:
    """What each of G groups gets of `room` rows when they take turns, one row a turn, until the room or they run out.

    Everybody gets min(wanted, level) for the highest whole level that fits; what remains, fewer rows than there are
    groups still waiting, goes to the first of those.
    """
    num_groups = wanted.shape[-1]
    ascending = jnp.sort(wanted, axis=-1)
    below = jnp.cumsum(ascending, axis=-1) - ascending
    waiting = num_groups - jnp.arange(num_groups)
    num_satisfied = jnp.sum(below + ascending * waiting <= room, axis=-1, keepdims=True)
    all_satisfied = num_satisfied == num_groups
    first_unsatisfied = jnp.minimum(num_satisfied, num_groups - 1)
    spent = jnp.take_along_axis(below, first_unsatisfied, axis=-1)
    level = (room - spent) // (num_groups - first_unsatisfied)
    got = jnp.where(all_satisfied, wanted, jnp.minimum(wanted, level))
    unsatisfied = wanted > got
    remaining = room - jnp.sum(got, axis=-1, keepdims=True)
    turn = jnp.cumsum(unsatisfied, axis=-1)
    return got + (unsatisfied & (turn <= remaining)).astype(got.dtype)
