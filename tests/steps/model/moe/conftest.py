"""A small layer, meshes for it, and numbers to put through it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from steps.model.config import ModelConfig
from steps.model.moe.dispatch import movement
from steps.model.moe.weights import MoEWeights

HIDDEN, LATENT, EXPERT_WIDTH, SHARED_WIDTH = 16, 10, 12, 7


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One layer with its input. `cotangent` is what the loss multiplies the output with before it sums."""

    config: ModelConfig
    x: jax.Array
    valid: jax.Array
    weights: MoEWeights
    bias: jax.Array
    cotangent: jax.Array


@pytest.fixture(scope="session")
def make_mesh():
    def make(data: int, expert: int) -> jax.sharding.Mesh:
        axis_types = (jax.sharding.AxisType.Auto,) * 2
        return jax.make_mesh((data, expert), ("data", "expert"), axis_types=axis_types)

    return make


@pytest.fixture(scope="session")
def make_case():
    def make(num_tokens: int = 40, seed: int = 0, dtype: str = "float32", **fields) -> Case:
        settings = {
            "num_experts": 8, "top_k": 3, "latent": LATENT, "capacity_factor": None, "pair_capacity_factor": None,
            "expert_parallel": 1, "num_shared_experts": 2, **fields,
        }  # fmt: skip
        config = ModelConfig(
            vocab_size=8, hidden=HIDDEN, num_layers=1, num_heads=1, head_dim=16, num_kv_heads=1, num_global_kv_heads=1,
            window=4, sequence_length=4, expert_width=EXPERT_WIDTH, shared_width=SHARED_WIDTH, **settings,
        )  # fmt: skip
        generator = np.random.default_rng(seed)

        def draw(*shape: int, scale: float = 0.3) -> jax.Array:
            return jnp.asarray(scale * generator.normal(size=shape), dtype)

        inner, shared, latent = config.expert_input, config.num_shared_experts * SHARED_WIDTH, config.latent
        weights = MoEWeights(
            router=draw(HIDDEN, config.num_experts),
            latent_down=draw(HIDDEN, latent) if latent else None,
            latent_norm=1 + draw(latent) if latent else None,
            latent_up=draw(latent, HIDDEN) if latent else None,
            w_gate_up=draw(config.num_experts, inner, 2 * EXPERT_WIDTH),
            w_down=draw(config.num_experts, EXPERT_WIDTH, inner),
            shared_gate_up=draw(HIDDEN, 2 * shared),
            shared_down=draw(shared, HIDDEN),
        )
        return Case(
            config=config,
            x=draw(num_tokens, HIDDEN, scale=1.0),
            valid=jnp.asarray(generator.random(num_tokens) > 0.2),
            weights=weights,
            bias=jnp.asarray(0.3 * generator.normal(size=config.num_experts), jnp.float32),
            cotangent=draw(num_tokens, HIDDEN, scale=1.0),
        )

    return make


@pytest.fixture
def poisoned(monkeypatch):
    """Places of buffers that hold no row contain NaN for this test."""
    monkeypatch.setattr(movement, "UNUSED", float("nan"))
