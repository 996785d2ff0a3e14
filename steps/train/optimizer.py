"""MuonH, AdamH and Adam by parameter group, composed from Levanter's parts.

Every matrix inside the blocks trains by MuonH (an orthogonalised momentum step that leaves the norm of the matrix
where it was), the output head by AdamH (Adam with the same projection), all the rest by plain Adam. Levanter's
ready-made `muonH` recognises only haliax `Linear` modules and would train our arrays by Adam, so the labels are ours.

Invariant: every parameter has a rule by name, and the norm of each MuonH or AdamH matrix never changes.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float
from levanter.optim.adamh import scale_by_adamh
from levanter.optim.util import norm_preserving_update, zeropower_via_newtonschulz5

from steps.train.config import MomentsConfig

ADAM = "adam"
ADAMH = "adamh"
MUONH = "muonh"

# The last part of a parameter's path decides. Gains, head gates and convolutions are stacks of vectors, not matrices
# that act on the stream; embeddings and router are tables that Adam serves better.
_RULES = {
    "embedding": ADAM,
    "gain": ADAM,
    "head_gate": ADAM,
    "key_conv": ADAM,
    "attention_conv": ADAM,
    "moe_conv": ADAM,
    "router": ADAM,
    "latent_norm": ADAM,
    "lm_head": ADAMH,
    "query": MUONH,
    "key": MUONH,
    "value": MUONH,
    "output": MUONH,
    "gate_down": MUONH,
    "gate_up": MUONH,
    "latent_down": MUONH,
    "latent_up": MUONH,
    "w_gate_up": MUONH,
    "w_down": MUONH,
    "shared_gate_up": MUONH,
    "shared_down": MUONH,
}


def parameter_paths(params: Any) -> dict[str, Array]:
    """Dotted path -> array, for every array of the model."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def rule_of(path: str) -> str:
    """The update rule of the parameter at a dotted path.

    Raises:
        ValueError: a parameter no rule knows; it must be named here before it can be trained.
    """
    name = path.rsplit(".", 1)[-1]
    if name not in _RULES:
        raise ValueError(
            f"no update rule for parameter {path!r}; name it in steps/train/optimizer.py (known: {sorted(_RULES)})"
        )
    return _RULES[name]


def label(params: Any) -> Any:
    """A tree like `params` with the name of each parameter's rule."""
    return jax.tree_util.tree_map_with_path(
        lambda path, _: rule_of(jax.tree_util.keystr(path, simple=True, separator=".")), params
    )


Optimizer = Any
"""An `optax.GradientTransformation` over `Params`; optax's own types admit no equinox modules."""


class MuonHState(NamedTuple):
    momentum: Any


def scale_by_muonh(
    learning_rate: Array | float, *, momentum: float, newton_schulz_steps: int, epsilon: float
) -> Optimizer:
    """MuonH over arrays whose last two axes are a matrix and whose leading axes are stacks of such.

    u = orthogonalise(Nesterov momentum of the gradient); W' = W - lr * u * |W| / |u|, rescaled to |W|, with Frobenius
    norms per matrix.
    """

    def one_matrix(weight: Float[Array, "m n"], update: Float[Array, "m n"]) -> Float[Array, "m n"]:
        orthogonal = zeropower_via_newtonschulz5(
            update, steps=newton_schulz_steps, eps=epsilon, coefficient_type="quintic"
        )
        moved: Any = norm_preserving_update(weight, orthogonal, learning_rate)
        return moved

    def init(params: Any) -> MuonHState:
        return MuonHState(momentum=jax.tree.map(jnp.zeros_like, params))

    def update(updates: Any, state: MuonHState, params: Any = None) -> tuple[Any, MuonHState]:
        buffer = jax.tree.map(lambda m, g: momentum * m + g, state.momentum, updates)
        nesterov = jax.tree.map(lambda m, g: momentum * m + g, buffer, updates)
        return jax.tree.map(_over_stack(one_matrix), params, nesterov), MuonHState(momentum=buffer)

    return optax.GradientTransformation(init, update)  # pyright: ignore[reportArgumentType]


def _over_stack(rule: Any) -> Any:
    def apply(weight: Array, update: Array) -> Array:
        mapped = rule
        for _ in range(weight.ndim - 2):
            mapped = jax.vmap(mapped)
        return mapped(weight, update)

    return apply


def build_optimizer(config: MomentsConfig) -> Optimizer:
    """The hero's optimizer; `learning_rate` and `adam_learning_rate` are hyperparameters set before every update."""

    def make(learning_rate: Any, adam_learning_rate: Any) -> Optimizer:
        rules: dict[Any, Optimizer] = {
            MUONH: scale_by_muonh(
                learning_rate,
                momentum=config.muon_momentum,
                newton_schulz_steps=config.newton_schulz_steps,
                epsilon=config.muon_epsilon,
            ),
            ADAMH: scale_by_adamh(config.beta1, config.beta2, config.epsilon, learning_rate),
            ADAM: optax.chain(
                optax.scale_by_adam(config.beta1, config.beta2, config.epsilon),
                optax.scale_by_learning_rate(adam_learning_rate),
            ),
        }
        return optax.multi_transform(rules, label)

    return optax.inject_hyperparams(make)(learning_rate=0.0, adam_learning_rate=0.0)


def with_learning_rates(state: Any, learning_rate: Array, adam_learning_rate: Array) -> Any:
    """The optimizer state with this step's learning rates in place."""
    rates = {"learning_rate": learning_rate, "adam_learning_rate": adam_learning_rate}
    return state._replace(hyperparams={**state.hyperparams, **rates})


def decayed(params: Any, before: Any, names: tuple[str, ...], rate: Array) -> Any:
    """Decoupled weight decay (arXiv 1711.05101) of the parameters with these names: rate * value before the step is
    taken off them."""

    def one(path: Any, value: Array, old: Array) -> Array:
        name = jax.tree_util.keystr(path, simple=True, separator=".").rsplit(".", 1)[-1]
        return value - rate * old if name in names else value

    return jax.tree_util.tree_map_with_path(one, params, before)
