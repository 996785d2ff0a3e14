"""The state of a run: parameters, optimizer state and router bias, and where each lives on the mesh.

The step counter and the data position are one number, kept beside the state; the router bias is state and not a
parameter, so that no optimizer, weight decay or norm ever sees it.
"""

import dataclasses
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from steps.model.config import ModelConfig
from steps.model.transformer import Params, RouterState, init, init_router_state
from steps.train.optimizer import Optimizer

_EXPERT_ARRAYS = ("w_gate_up", "w_down")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainState:
    """Everything a checkpoint holds.

    Attributes:
        params: model parameters, float32.
        optimizer: optimizer state.
        router: quantile-balancing bias of every layer and expert.
    """

    params: Params
    optimizer: Any
    router: RouterState


def make_mesh(config: ModelConfig) -> Mesh:
    """Mesh of axes (data, expert) over as many devices as fit the expert degree.

    Raises:
        ValueError: fewer devices than the expert degree.
    """
    devices = jax.devices()
    expert = config.expert_parallel
    if len(devices) < expert:
        raise ValueError(
            f"expert_parallel({expert}) needs at least {expert} devices, found {len(devices)}; give the step "
            f"more devices (on CPU: XLA_FLAGS=--xla_force_host_platform_device_count={expert})"
        )
    data = len(devices) // expert
    grid = np.asarray(devices[: data * expert]).reshape(data, expert)
    return Mesh(grid, ("data", "expert"), axis_types=(AxisType.Auto, AxisType.Auto))


def state_shapes(config: ModelConfig, optimizer: Optimizer, mesh: Mesh) -> TrainState:
    """Shapes, types and shardings of a state, without its values: what a checkpoint is restored into."""
    return _with_shardings(jax.eval_shape(partial(_new_state, config, optimizer, 0)), mesh)


def init_state(config: ModelConfig, optimizer: Optimizer, seed: int, mesh: Mesh) -> TrainState:
    """A new state, laid out over the mesh."""
    shardings = jax.tree.map(lambda shape: shape.sharding, state_shapes(config, optimizer, mesh))
    return jax.jit(partial(_new_state, config, optimizer, seed), out_shardings=shardings)()


def with_weights(params: Params, router: RouterState, optimizer: Optimizer, shapes: TrainState) -> TrainState:
    """A state that begins with these weights and a new optimizer state."""
    shardings = jax.tree.map(lambda shape: shape.sharding, shapes.optimizer)
    moments = jax.jit(optimizer.init, out_shardings=shardings)(params)
    return TrainState(params=params, optimizer=moments, router=router)


def _new_state(config: ModelConfig, optimizer: Optimizer, seed: int) -> TrainState:
    params = init(config, jax.random.key(seed))
    return TrainState(params=params, optimizer=optimizer.init(params), router=init_router_state(config))


def _with_shardings(shapes: Any, mesh: Mesh) -> Any:
    return jax.tree.map(
        lambda shape, sharding: jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=sharding),
        shapes,
        state_shardings(shapes, mesh),
    )


def weight_shapes(config: ModelConfig, mesh: Mesh) -> tuple[Params, RouterState]:
    """Shapes, types and shardings of parameters and router bias."""
    shapes = jax.eval_shape(lambda: (init(config, jax.random.key(0)), init_router_state(config)))
    return _with_shardings(shapes, mesh)


def state_shardings(state: Any, mesh: Mesh) -> Any:
    """Sharding of every array: experts over the expert axis wherever an array has them, the rest replicated.

    Optimizer moments carry the paths of the parameters they belong to, so one rule serves both.
    """

    def sharding(path: Any, leaf: Any) -> NamedSharding:
        name = jax.tree_util.keystr(path, simple=True, separator=".").rsplit(".", 1)[-1]
        is_stack_of_experts = name in _EXPERT_ARRAYS and leaf.ndim == 4
        return NamedSharding(mesh, PartitionSpec(None, "expert") if is_stack_of_experts else PartitionSpec())

    return jax.tree_util.tree_map_with_path(sharding, state)
