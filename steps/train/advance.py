"""One optimizer step, compiled: gradients over a batch or its microbatches, the update, what was measured.

Letters: B sequences of a batch, S positions, M microbatches.
"""

from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from steps.model.config import ModelConfig
from steps.model.loss import Batch, LossAux, loss, weights_of
from steps.model.moe.stats import merge
from steps.model.transformer import BATCH_AXES, Params, RouterState
from steps.train.config import MomentsConfig, TrainConfig
from steps.train.optimizer import build_optimizer, decayed, with_learning_rates
from steps.train.state import TrainState


def learning_rates(config: TrainConfig, step: int) -> dict[str, np.float32]:
    """Rates of MuonH (and AdamH) and of Adam for training step `step`, counted from 1, and the weight decay, which is
    multiplied with Adam's rate."""
    optimizer, horizon = config.optimizer, config.schedule.horizon_steps
    factor = config.schedule.factor(step - 1, optimizer.learning_rate)
    decay = optimizer.weight_decay
    return {
        "learning_rate": np.float32(optimizer.learning_rate * factor),
        "adam_learning_rate": np.float32(optimizer.adam_learning_rate * factor),
        "weight_decay": np.float32(decay.coefficient(step - 1, horizon) if decay else 0.0),
    }


@cache
def compile_step(
    model: ModelConfig, moments: MomentsConfig, decays: tuple[str, ...], microbatches: int, mesh: Mesh
) -> Any:
    """The jitted optimizer step: (state, batch, `learning_rates`) -> (state, measurements).

    `decays` are the names of parameters under weight decay. Kept for the life of the process, so that a worker that
    trains the same shape again, another phase of the same run for one, does not compile again.
    """
    transform = build_optimizer(moments)

    def advance(state: TrainState, batch: Batch, rates: dict[str, Any]) -> tuple[TrainState, dict[str, Any]]:
        if microbatches == 1:
            aux, gradients = _gradients(state, batch, model, mesh)
        else:
            aux, gradients = _accumulated(state, batch, model, mesh, microbatches)
        rated = with_learning_rates(state.optimizer, rates["learning_rate"], rates["adam_learning_rate"])
        updates, following = transform.update(gradients, rated, state.params)
        params: Any = optax.apply_updates(state.params, updates)  # pyright: ignore[reportArgumentType]
        if decays:
            params = decayed(params, state.params, decays, rates["weight_decay"] * rates["adam_learning_rate"])
        measured = {
            "aux": aux,
            "gradient_norm": optax.global_norm(gradients),
            "parameter_norms": {
                name: optax.global_norm(part)
                for name, part in (
                    ("embedding", params.embedding),
                    ("layers", params.layers),
                    ("lm_head", params.lm_head),
                )
            },
            **rates,
        }
        router = RouterState(bias=aux.router.next_bias)
        return TrainState(params=params, optimizer=following, router=router), measured

    return jax.jit(advance, donate_argnums=0)


def _gradients(state: TrainState, batch: Batch, model: ModelConfig, mesh: Mesh, **part: Any) -> tuple[LossAux, Params]:
    def objective(params: Params) -> tuple[Any, LossAux]:
        return loss(params, state.router, batch, model, mesh, **part)

    (_, aux), gradients = jax.value_and_grad(objective, has_aux=True)(state.params)
    return aux, gradients


def _accumulated(
    state: TrainState, batch: Batch, model: ModelConfig, mesh: Mesh, microbatches: int
) -> tuple[LossAux, Params]:
    """Gradients and measurements of the whole batch, one microbatch at a time; the router bias is read, not moved,
    until all have passed."""
    total = jnp.sum(weights_of(batch))
    parts = jax.tree.map(lambda array: _split(array, microbatches, mesh), batch)

    def one(gradients: Params, part: Batch) -> tuple[Params, LossAux]:
        aux, its = _gradients(state, part, model, mesh, total_weight=total, keep_histogram=True)
        return jax.tree.map(jnp.add, gradients, its), aux

    nothing: Any = jax.tree.map(jnp.zeros_like, state.params)
    gradients, each = jax.lax.scan(one, nothing, parts)
    summed: LossAux = jax.tree.map(lambda values: jnp.sum(values, axis=0), eqx.tree_at(lambda a: a.router, each, None))
    aux = LossAux(
        cross_entropy=summed.cross_entropy,
        z_loss=summed.z_loss,
        balance_loss=summed.balance_loss,
        weight=total,
        router=merge(each.router, state.router.bias, model),
    )
    return aux, gradients


def _split(array: jax.Array, microbatches: int, mesh: Mesh) -> jax.Array:
    """[B, S] as [M, B / M, S], each device's own sequences dealt over its microbatches, so that nothing moves."""
    rows = array.shape[0] // (mesh.size * microbatches)
    dealt = array.reshape(mesh.size, microbatches, rows, *array.shape[1:]).swapaxes(0, 1)
    dealt = dealt.reshape(microbatches, -1, *array.shape[1:])
    return jax.lax.with_sharding_constraint(dealt, NamedSharding(mesh, PartitionSpec(None, BATCH_AXES)))
