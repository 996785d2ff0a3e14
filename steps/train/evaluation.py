"""Validation during training: nats per token of each domain on a fixed set of packed sequences.

The router bias is read and left as it is; nothing of the training state changes.
"""

import dataclasses
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from steps.model.config import ModelConfig
from steps.model.loss import Batch, token_losses
from steps.model.transformer import BATCH_AXES, Params, RouterState, forward
from steps.train.data import ValidationSet
from steps.train.history import Evaluation
from steps.train.processes import fetched


@cache
def compile_evaluation(model: ModelConfig, mesh: Mesh) -> Any:
    """The jitted (params, router, batch) -> nats at every position times its weight, [B, S].

    Nothing is dropped: a loss that depended on who else is in the batch would measure the batch too.
    """
    model = dataclasses.replace(model, capacity_factor=None, pair_capacity_factor=None)

    def nats(params: Params, router: RouterState, batch: Batch) -> jax.Array:
        hidden, _ = forward(params, router, batch.tokens, batch.segment_ids, model, mesh)
        labels = jnp.roll(batch.tokens, -1, axis=1)
        losses, _ = token_losses(hidden, params.lm_head.astype(hidden.dtype), labels, mesh)
        return losses * batch.loss_mask.astype(jnp.float32).at[:, -1].set(0.0)

    return jax.jit(nats)


def sequence_nats(
    params: Params, router: RouterState, batches: tuple[Batch, ...], model: ModelConfig, mesh: Mesh
) -> np.ndarray:
    """Summed nats of every sequence of every batch, float64 [N]."""
    evaluate = compile_evaluation(model, mesh)
    spread = NamedSharding(mesh, PartitionSpec(BATCH_AXES))
    sums = []
    for batch in batches:
        # Fetched before the next is dispatched: on virtual CPU devices, programs in flight together wait for each
        # other's collectives until XLA gives up and ends the process.
        nats = fetched(evaluate(params, router, jax.device_put(batch, spread)))
        sums.append(nats.astype(np.float64).sum(axis=1))
    return np.concatenate(sums)


def total_nats(
    params: Params, router: RouterState, batches: tuple[Batch, ...], model: ModelConfig, mesh: Mesh
) -> tuple[float, float]:
    """Summed nats and summed weight over all batches, added up in float64."""
    nats = sequence_nats(params, router, batches, model, mesh)
    weight = sum(float(np.sum(np.asarray(batch.loss_mask, np.float64)[:, :-1])) for batch in batches)
    return float(np.sum(nats)), weight


def evaluate(
    params: Params,
    router: RouterState,
    sets: dict[str, ValidationSet],
    model: ModelConfig,
    mesh: Mesh,
    *,
    step: int,
    progress: float,
    tokens: int,
) -> Evaluation:
    """Loss of every domain, their mean, and the same in bits per byte."""
    losses = {}
    for domain, validation in sets.items():
        nats, weight = total_nats(params, router, validation.batches, model, mesh)
        losses[domain] = nats / weight
    return Evaluation(
        step=step,
        progress=progress,
        tokens=tokens,
        macro_loss=sum(losses.values()) / len(losses),
        losses=losses,
        bits_per_byte={domain: sets[domain].bits_per_byte(nats) for domain, nats in losses.items()},
    )
