"""What one pass through the layer measured, over the tokens of all devices.

Counts are exact int32 sums of one layer and one pass (the real run has 3.7e8 assignments a layer and step, below
2^31); whoever adds layers up does it on the host in int64. Padding is in `padding` and in nothing else.

Invariant: accepted + sender_dropped + receiver_dropped = assignments, and assignments + padding = T * K.

Letters: T tokens of all devices, K experts per token, E experts. Stacked over layers every field has a leading L.
"""

import equinox as eqx
from jaxtyping import Array, Float, Int


class MoEStats(eqx.Module):
    """Statistics of one layer, equal on every device.

    Attributes:
        next_bias: what to route the next step with, mean zero, by ModelConfig.balancing. Evaluation ignores it and
            keeps the old one.
        load: valid assignments per expert as the router chose them, before any were dropped.
        assignments: valid tokens times K.
        accepted: assignments that reached their expert, counted from the plan.
        sender_dropped: lost to the limit on one sender's rows for one device.
        receiver_dropped: lost to the room on the device of their expert.
        padding: K times the positions without a token.
        nonfinite: valid tokens with a logit that is not finite; their output is NaN on purpose.
        entropy: of the load over experts, in nats; ln(E) is even.
        z_loss: mean over valid tokens of logsumexp(logits)^2; logged, not trained on.
        balance_loss: E * sum of (share of assignments) * (mean share of scores), 1 when even; the one field that a
            gradient flows through, and only where ModelConfig.auxiliary_loss is not 0.
        largest_pair: rows that a sender wants to send to one device, the most of all pairs, over the mean.
        largest_device: rows that all senders want to send to one device, the most of all, over the mean.
        margin_min, margin_max: range of (logit - token's threshold) that the bias was read from.
    """

    next_bias: Float[Array, "*L E"]
    load: Int[Array, "*L E"]
    assignments: Int[Array, "*L"]
    accepted: Int[Array, "*L"]
    sender_dropped: Int[Array, "*L"]
    receiver_dropped: Int[Array, "*L"]
    padding: Int[Array, "*L"]
    nonfinite: Int[Array, "*L"]
    entropy: Float[Array, "*L"]
    z_loss: Float[Array, "*L"]
    balance_loss: Float[Array, "*L"]
    largest_pair: Float[Array, "*L"]
    largest_device: Float[Array, "*L"]
    margin_min: Float[Array, "*L"]
    margin_max: Float[Array, "*L"]
