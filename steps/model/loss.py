"""What training minimises: next-token cross entropy plus a small pull of the logits' normaliser towards one.

Letters: B sequences, S positions, T tokens, D hidden, V vocabulary, L layers, E experts.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float, Int
from levanter.kernels.pallas.fused_cross_entropy_loss import IMPLEMENTATIONS, BlockSizes

from steps.model.config import ModelConfig
from steps.model.transformer import BATCH_AXES, Params, RouterState, RouterStats, forward

LOGITS_BYTES_IN_FULL = 64 * 2**20
"""Up to this size a device holds its logits at once, which is fastest; past it they pass by in blocks."""

VOCAB_BLOCK = 4096


class Batch(eqx.Module):
    """Packed sequences.

    Attributes:
        tokens: token ids.
        loss_mask: weight of predicting `tokens[t + 1]` at position t; the last position's is never used.
        segment_ids: which document a position belongs to; negative for padding.
    """

    tokens: Int[Array, "B S"]
    loss_mask: Float[Array, "B S"]
    segment_ids: Int[Array, "B S"]


class LossAux(eqx.Module):
    """What a training step reports besides the loss.

    Attributes:
        cross_entropy: nats per predicted token, without the logit penalty.
        z_loss: the penalty's share of the loss.
        balance_loss: the share of the experts' balancing loss, 0 where the config leaves it out.
        weight: what was divided by: the sum of the loss mask over predicted tokens of the batch.
        router: statistics of every layer, the next router bias among them.
    """

    cross_entropy: Float[Array, ""]
    z_loss: Float[Array, ""]
    balance_loss: Float[Array, ""]
    weight: Float[Array, ""]
    router: RouterStats


def loss(
    params: Params,
    router_state: RouterState,
    batch: Batch,
    config: ModelConfig,
    mesh: Mesh,
    *,
    total_weight: Float[Array, ""] | None = None,
    keep_histogram: bool = False,
) -> tuple[Float[Array, ""], LossAux]:
    """Weighted mean over predicted tokens of cross entropy + z_loss * logsumexp(logits)^2, plus the balancing loss.

    The mean is over the global batch: weights are summed over every device before the division, so unevenly masked
    shards count by their tokens. A batch without any weight has loss zero. A microbatch is divided by the
    `total_weight` of the batch it is part of, so that the sum over its microbatches is the loss of the batch, and
    counts so much of its balancing loss.
    """
    hidden, router = forward(
        params, router_state, batch.tokens, batch.segment_ids, config, mesh, keep_histogram=keep_histogram
    )
    labels = jnp.roll(batch.tokens, -1, axis=1)
    weight = weights_of(batch)
    with jax.named_scope("loss"):
        nats, squares = token_losses(hidden, params.lm_head.astype(hidden.dtype), labels, mesh)
        total = jnp.sum(weight) if total_weight is None else total_weight
        scale = jnp.where(total > 0, 1 / jnp.where(total > 0, total, 1.0), 0.0)
        cross_entropy = jnp.sum(nats * weight) * scale
        z_loss = config.z_loss * jnp.sum(squares * weight) * scale
        balance_loss = config.auxiliary_loss * jnp.sum(router.balance_loss) if config.auxiliary_loss else jnp.zeros(())
        if total_weight is not None:
            balance_loss = balance_loss * jnp.sum(weight) * scale
    aux = LossAux(cross_entropy=cross_entropy, z_loss=z_loss, balance_loss=balance_loss, weight=total, router=router)
    return cross_entropy + z_loss + balance_loss, aux


def weights_of(batch: Batch) -> Float[Array, "B S"]:
    """What each position counts; the last one of a sequence predicts nothing."""
    return batch.loss_mask.astype(jnp.float32).at[:, -1].set(0.0)


def token_losses(
    hidden: Float[Array, "B S D"], lm_head: Float[Array, "D V"], labels: Int[Array, "B S"], mesh: Mesh
) -> tuple[Float[Array, "B S"], Float[Array, "B S"]]:
    """For every position, the cross entropy of its label in nats and the squared logsumexp of its logits.

    Levanter's kernels do the work, each device on its own sequences with the whole head.
    """

    def on_device(hidden: Array, lm_head: Array, labels: Array) -> tuple[Array, Array]:
        rows = hidden.reshape(-1, hidden.shape[-1])
        fits = 4 * rows.shape[0] * lm_head.shape[1] <= LOGITS_BYTES_IN_FULL
        nats, normaliser = IMPLEMENTATIONS["reference" if fits else "xla"](
            rows,
            labels.reshape(-1).astype(jnp.int32),
            lm_head,
            block_sizes=None if fits else BlockSizes(v_block_size=VOCAB_BLOCK),
            dtype=jnp.float32,
            logit_soft_cap=None,
            precision=None,
        )[:2]
        return nats.reshape(labels.shape), jnp.square(normaliser).reshape(labels.shape)

    rows = PartitionSpec(BATCH_AXES)
    return jax.shard_map(
        on_device, mesh=mesh, in_specs=(rows, PartitionSpec(), rows), out_specs=(rows, rows), check_vma=False
    )(hidden, lm_head, labels)
