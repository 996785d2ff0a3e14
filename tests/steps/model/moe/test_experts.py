"""The grouped SwiGLU against one dense matmul per expert, with NaN wherever no row is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from steps.model.moe.experts import swiglu_experts, tile_rows

WIDTH, EXPERT_WIDTH = 10, 12


def one_by_one(rows, sizes, w_gate_up, w_down):
    """Each expert's rows through its own weights."""
    out, start = [], 0
    for expert, size in enumerate(sizes):
        gate, up = jnp.split(rows[start : start + size] @ w_gate_up[expert], 2, axis=-1)
        out.append((jax.nn.silu(gate) * up) @ w_down[expert])
        start += size
    return jnp.concatenate(out)


@pytest.mark.parametrize(
    ("tile", "sizes"),
    [
        (16, (5, 0, 17, 1)),
        (64, (70, 3, 49, 0, 128, 2, 5)),
        *(
            pytest.param(tile, sizes, marks=pytest.mark.slow)
            for tile in (16, 32, 64)
            for sizes in ((0, 0, 0, 0), (16, 32, 48, 1), (0, 0, 0, 97), (31, 33, 15, 18), (7,), (1, 1, 1, 200, 1, 64))
        ),
    ],
)
def test_equal_to_one_matmul_per_expert(tile, sizes, poisoned):
    """Faults 1 to 3: odd groups, empty experts, NaN past the groups in rows and in the gradient that comes in."""
    generator = np.random.default_rng(0)
    num_used, num_experts = sum(sizes), len(sizes)
    num_rows = max(num_used, 97) + tile

    def draw(*shape):
        return jnp.asarray(generator.normal(size=shape), jnp.float32)

    past = (jnp.arange(num_rows) >= num_used)[:, None]
    rows, cotangent = draw(num_rows, WIDTH), draw(num_rows, WIDTH)
    weights = draw(num_experts, WIDTH, 2 * EXPERT_WIDTH), draw(num_experts, EXPERT_WIDTH, WIDTH)

    @jax.jit
    def ours(rows, sizes, *weights):
        out, pull_back = jax.vjp(lambda r, *w: swiglu_experts(r, sizes, *w, tile=tile), rows, *weights)
        return out, pull_back(jnp.where(past, jnp.nan, cotangent))

    out, gradients = ours(jnp.where(past, jnp.nan, rows), jnp.array(sizes, jnp.int32), *weights)
    expected, pull_back = jax.vjp(lambda r, *w: one_by_one(r, sizes, *w), rows[:num_used], *weights)
    expected_gradients = pull_back(cotangent[:num_used])
    pairs = zip((out[:num_used], gradients[0][:num_used], *gradients[1:]), (expected, *expected_gradients), strict=True)
    for array, reference in pairs:
        assert np.isfinite(array).all()
        peak = max(float(jnp.max(jnp.abs(reference), initial=0)), 1e-30)
        assert float(jnp.max(jnp.abs(array - reference), initial=0)) <= 3e-6 * peak
    for expert in np.flatnonzero(np.array(sizes) == 0):
        assert all((np.asarray(gradient)[expert] == 0).all() for gradient in gradients[1:])


def test_weight_gradients_add_up_in_fp32():
    """4,096 rows that each add 1 to a gradient that bf16 cannot count beyond 256."""
    rows = jnp.ones((4096 + 256, 1), jnp.bfloat16)
    w_gate_up = jnp.full((1, 1, 2), 8.0, jnp.bfloat16)
    w_down = jnp.full((1, 1, 1), 1 / 64, jnp.bfloat16)

    def total(w_down):
        out = swiglu_experts(rows, jnp.array([4096]), w_gate_up, w_down, tile=256)
        return jnp.sum(out[:4096].astype(jnp.float32)) / 64

    np.testing.assert_allclose(float(jax.grad(total)(w_down)[0, 0, 0]), 4096, rtol=0.01)


@pytest.mark.parametrize(("rows", "experts", "expected"), [(2048, 8, 128), (524_288, 6, 256), (15, 3, 16), (1, 1, 16)])
def test_tiles_follow_the_mean_group(rows, experts, expected):
    assert tile_rows(rows, experts) == expected
