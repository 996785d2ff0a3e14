"""Every parameter has the rule the hero gives it, and the matrices of MuonH and AdamH keep their norms."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from steps.model.config import ModelConfig
from steps.model.transformer import init
from steps.train.config import MomentsConfig
from steps.train.optimizer import (
    ADAM,
    ADAMH,
    MUONH,
    build_optimizer,
    parameter_paths,
    rule_of,
    with_learning_rates,
)

SHAPE = ModelConfig.of_family(
    hidden=32, num_layers=2, vocab_size=64, head_dim=8, num_experts=4, top_k=2, window=8, sequence_length=16,
    gated_norm_rank=4,
)  # fmt: skip


@pytest.fixture(scope="module")
def params():
    """Every array drawn at random: gates and convolutions start at constants, which would hide a wrong rule."""
    draw = np.random.default_rng(1)
    shapes = jax.eval_shape(lambda: init(SHAPE, jax.random.key(0)))
    return jax.tree.map(lambda leaf: jnp.asarray(draw.normal(size=leaf.shape), leaf.dtype), shapes)


@pytest.fixture(scope="module")
def after_one_step(params):
    transform = build_optimizer(MomentsConfig())
    gradients = jax.tree.map(lambda leaf: jnp.sin(7 * leaf), params)

    @jax.jit
    def one_step(params, gradients):
        state = with_learning_rates(transform.init(params), jnp.float32(0.02), jnp.float32(0.01))
        updates, _ = transform.update(gradients, state, params)
        return optax.apply_updates(params, updates)

    return gradients, one_step(params, gradients)


def test_every_parameter_has_its_rule(params):
    rules = {path: rule_of(path) for path in parameter_paths(params)}
    adam = {
        "embedding", "embedding_norm.gain", "final_norm.gain", "layers.attention_norm.gain", "layers.moe_norm.gain",
        "layers.attention.head_gate", "layers.attention.key_conv", "layers.attention_conv", "layers.moe_conv",
        "layers.moe.router", "layers.moe.latent_norm",
    }  # fmt: skip
    assert {path for path, rule in rules.items() if rule == ADAM} == adam
    assert {path for path, rule in rules.items() if rule == ADAMH} == {"lm_head"}
    assert {path for path, rule in rules.items() if rule == MUONH} == set(rules) - adam - {"lm_head"}


def test_an_unknown_parameter_is_refused():
    with pytest.raises(ValueError, match=r"layers\.attention\.sink"):
        rule_of("layers.attention.sink")


def matrix_norms(array):
    return np.linalg.norm(np.asarray(array, np.float64), axis=(-2, -1))


def test_hyperball_norms_stay_put_matrix_by_matrix(params, after_one_step):
    _, updated = after_one_step
    before, after = parameter_paths(params), parameter_paths(updated)
    for path in before:
        if rule_of(path) != ADAM:
            assert not np.allclose(before[path], after[path]), path
            np.testing.assert_allclose(matrix_norms(after[path]), matrix_norms(before[path]), rtol=1e-5, err_msg=path)


def test_muonh_is_an_orthogonalised_step_on_the_sphere(params, after_one_step):
    """Independent formula: with exact singular vectors, whose values Newton-Schulz brings near one, and relative
    step size lr. Five quintic steps leave singular values between about 0.7 and 1.2, hence the tolerance."""
    gradients, updated = after_one_step
    weight = np.asarray(params.layers.moe.w_down[1, 2], np.float64)
    left, _, right = np.linalg.svd(np.asarray(gradients.layers.moe.w_down[1, 2], np.float64), full_matrices=False)
    direction = left @ right
    moved = weight - 0.02 * direction * np.linalg.norm(weight) / np.linalg.norm(direction)
    expected = moved * np.linalg.norm(weight) / np.linalg.norm(moved)
    actual = np.asarray(updated.layers.moe.w_down[1, 2], np.float64) - weight
    cosine = np.sum(actual * (expected - weight)) / np.linalg.norm(actual) / np.linalg.norm(expected - weight)
    assert cosine > 0.95
    assert np.linalg.norm(actual) == pytest.approx(np.linalg.norm(expected - weight), rel=0.02)


def test_adam_moves_by_its_own_rate(params, after_one_step):
    gradients, updated = after_one_step
    moved = np.asarray(updated.layers.moe.router - params.layers.moe.router)
    np.testing.assert_allclose(moved, -0.01 * np.sign(gradients.layers.moe.router), rtol=1e-3)
