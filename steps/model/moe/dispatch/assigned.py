"""What every transport starts from: the assignments of this device in order, and the plan all devices share.

Invariant: all transports move exactly the assignments that `kept` says, so the choice of one never changes a result
beyond rounding.

Letters: T tokens of this device, K experts per token, S devices the experts are spread over, E experts.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from steps.model.moe.dispatch.groups import Sorted, starts
from steps.model.moe.plan import Limits, Plan


class Assigned(eqx.Module):
    """One layer's assignments.

    Attributes:
        order: this device's assignments sorted by expert.
        plan: how many of every (sender, expert) group are accepted.
        experts: chosen experts of each token of this device.
        limits: rows there is room for.
        tile: rows the experts work on at once; buffers of rows have that many to spare.
        axis: mesh axis that the experts are spread over.
    """

    order: Sorted
    plan: Plan
    experts: Int[Array, "T K"]
    limits: Limits = eqx.field(static=True)
    tile: int = eqx.field(static=True)
    axis: str = eqx.field(static=True)

    @property
    def me(self) -> int | Int[Array, ""]:
        """Which of the S devices this one is."""
        return jax.lax.axis_index(self.axis) if self.limits.num_devices > 1 else 0

    @property
    def kept(self) -> Bool[Array, "T K"]:
        """Which assignments are accepted: of each group the first."""
        return self.order.rank < self.plan.accepted[self.me][self.experts]

    @property
    def sent(self) -> Int[Array, "S EL"]:
        """Accepted rows of this device for every expert, by the device of that expert."""
        return self.plan.accepted[self.me].reshape(self.limits.num_devices, -1)

    @property
    def received(self) -> Int[Array, "S EL"]:
        """Accepted rows of every sender for each expert of this device."""
        local = self.limits.experts_per_device
        return jax.lax.dynamic_slice_in_dim(self.plan.accepted, self.me * local, local, axis=1)

    @property
    def pairs(self) -> Int[Array, "S S"]:
        """Accepted rows of every sender (first axis) for every device."""
        devices = self.limits.num_devices
        return jnp.sum(self.plan.accepted.reshape(devices, devices, -1), axis=-1)

    @property
    def row(self) -> Int[Array, "T K"]:
        """The row each kept assignment becomes on the device of its expert: experts in order, senders in order.

        Says nothing of assignments that are not kept.
        """
        devices, local = self.limits.num_devices, self.limits.experts_per_device
        by_expert = jnp.transpose(self.plan.accepted.reshape(devices, devices, local), (1, 2, 0))
        start = starts(by_expert.reshape(devices, local * devices)).reshape(devices * local, devices)
        return start[:, self.me][self.experts] + self.order.rank
