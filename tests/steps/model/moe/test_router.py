"""The router's choice and weights, and the balancing bias against quantiles by sorting."""

import jax
import jax.numpy as jnp
import numpy as np

from steps.model.moe.router import route

TOKENS, HIDDEN, EXPERTS, TOP_K = 64, 16, 12, 3


def draw(*shape, seed=0, dtype=jnp.float32):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), dtype)


def routed(x=None, router=None, bias=None):
    x = draw(TOKENS, HIDDEN) if x is None else x
    router = draw(HIDDEN, EXPERTS, seed=1) if router is None else router
    bias = draw(EXPERTS, seed=2) if bias is None else bias
    return route(x, router, bias, top_k=TOP_K, combine_scale=2.5)


def test_bias_moves_the_choice_and_not_the_weights():
    """Chosen by logits + bias, weighted by the sigmoid of the plain logits, summing to 2.5."""
    x, router, bias = draw(TOKENS, HIDDEN), draw(HIDDEN, EXPERTS, seed=1), draw(EXPERTS, seed=2)
    logits = np.asarray(x, np.float64) @ np.asarray(router, np.float64)
    order = np.argsort(-(logits + np.asarray(bias)), axis=-1)
    gates = 1 / (1 + np.exp(-np.take_along_axis(logits, order[:, :TOP_K], -1)))
    threshold = np.take_along_axis(logits + np.asarray(bias), order[:, TOP_K : TOP_K + 1], -1)

    routing = routed(x, router, bias)
    np.testing.assert_array_equal(routing.experts, order[:, :TOP_K])
    np.testing.assert_allclose(routing.weights, 2.5 * gates / gates.sum(-1, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(routing.weights.sum(-1), 2.5, rtol=1e-6)
    np.testing.assert_allclose(routing.margins, logits - threshold, atol=1e-5)


def test_no_gradient_reaches_the_bias_or_flows_from_margins():
    router = draw(HIDDEN, EXPERTS, seed=1)
    by_bias = jax.grad(lambda bias: jnp.sum(routed(bias=bias).weights[:, 0]))(draw(EXPERTS, seed=2))
    by_router = jax.grad(lambda router: jnp.sum(routed(router=router).margins))(router)
    assert (np.asarray(by_bias) == 0).all() and (np.asarray(by_router) == 0).all()


def test_bf16_operands_are_summed_in_fp32():
    """A bf16 result would be a multiple of 2^-8 of its size; the fp32 sum of the same bf16 operands is not."""
    x, router = draw(TOKENS, HIDDEN, dtype=jnp.bfloat16), draw(HIDDEN, EXPERTS, seed=1, dtype=jnp.bfloat16)
    routing = routed(x, router)
    assert routing.logits.dtype == routing.weights.dtype == routing.margins.dtype == jnp.float32
    exact = np.asarray(x, np.float64) @ np.asarray(router, np.float64)
    np.testing.assert_allclose(routing.logits, exact, atol=1e-5)


def test_ties_go_to_the_lowest_index():
    """All logits equal, then two equal ones at the edge of the choice; the same when jitted."""
    for route_tied in (routed, jax.jit(routed)):
        routing = route_tied(jnp.zeros((4, HIDDEN)), bias=jnp.zeros(EXPERTS))
        np.testing.assert_array_equal(routing.experts, [[0, 1, 2]] * 4)
        edge = jnp.zeros(EXPERTS).at[jnp.array([7, 9])].set(2.0).at[jnp.array([4, 5, 11])].set(1.0)
        np.testing.assert_array_equal(route_tied(jnp.zeros((1, HIDDEN)), bias=edge).experts, [[7, 9, 4]])
