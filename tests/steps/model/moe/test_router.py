"""The router's choice and weights, and the balancing bias against quantiles by sorting."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from steps.model.moe.router import NUM_BINS, balancing_bias, route

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


def quantiles(margins: np.ndarray, top_k: int) -> np.ndarray:
    """For each expert the margin that the share K/E of the tokens lies above, by sorting."""
    return np.quantile(margins.astype(np.float64), 1 - top_k / margins.shape[1], axis=0, method="interpolated_inverted_cdf")


@pytest.mark.parametrize("num_tokens", [1, 7, 1000])
def test_bias_is_minus_the_quantile_of_counted_margins(num_tokens):
    """To a bin's width, mean zero, padding left out whatever it holds."""
    margins = draw(num_tokens + 5, EXPERTS, seed=3) * jnp.linspace(0.1, 4, EXPERTS) - 1
    counted = jnp.arange(num_tokens + 5) < num_tokens
    margins = jnp.where(counted[:, None], margins, 1e9)
    bias, low, high = balancing_bias(margins, counted, jnp.zeros(EXPERTS), top_k=TOP_K)
    real = np.asarray(margins)[:num_tokens]
    assert (float(low), float(high)) == (real.min(), real.max())
    assert bias.dtype == jnp.float32 and abs(float(bias.mean())) < 1e-6

    ranks = np.sort(real.astype(np.float64), axis=0)
    target = num_tokens * (1 - TOP_K / EXPERTS)
    beta = quantile_of_bin(real, target, float(low), float(high))
    np.testing.assert_allclose(bias, beta.mean() - beta, atol=1e-5 * (high - low))
    if num_tokens == 1000:
        width = float(high - low) / NUM_BINS
        near = ranks[int(np.ceil(target)) - 1]
        np.testing.assert_allclose(bias, near.mean() - near, atol=2.1 * width)


def quantile_of_bin(margins: np.ndarray, target: float, low: float, high: float) -> np.ndarray:
    """The interpolated quantile from numpy's own histogram of the same bins, expert by expert."""
    found = []
    for column in margins.astype(np.float64).T:
        counts, edges = np.histogram(column, bins=NUM_BINS, range=(low, high) if high > low else (low, low + 1))
        found.append(np.interp(target, *_strictly_rising(np.concatenate([[0], np.cumsum(counts)]), edges)))
    return np.array(found)


def _strictly_rising(running: np.ndarray, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Running counts with their edges: of equal counts the last edge counts for what comes after, the first before."""
    first = np.concatenate([[True], running[1:] > running[:-1]])
    last = np.concatenate([running[1:] > running[:-1], [False]])
    keep = first | last
    return running[keep] + np.where(first & ~last, 0, 0), edges[keep]


def test_routing_with_it_balances_the_load():
    """What the bias is for: the same tokens, routed again, give every expert its share, to within a token or so."""
    x, router = draw(3000, HIDDEN), draw(HIDDEN, EXPERTS, seed=1) * jnp.linspace(0.2, 2, EXPERTS)
    bias = jnp.zeros(EXPERTS)
    spread = []
    for _ in range(8):
        routing = route(x, router, bias, top_k=TOP_K, combine_scale=2.5)
        load = np.bincount(np.asarray(routing.experts).ravel(), minlength=EXPERTS)
        spread.append(load.max() / load.mean())
        bias, *_ = balancing_bias(routing.margins, jnp.ones(3000, bool), bias, top_k=TOP_K)
    assert spread[0] > 1.3 and spread[-1] < 1.05


def test_without_tokens_the_bias_stays():
    old = draw(EXPERTS)
    bias, low, high = balancing_bias(jnp.full((4, EXPERTS), jnp.nan), jnp.zeros(4, bool), old, top_k=TOP_K)
    np.testing.assert_array_equal(bias, old)
    assert float(low) == float(high) == 0


def test_equal_margins_have_a_quantile():
    bias, *_ = balancing_bias(jnp.full((4, EXPERTS), 0.5), jnp.ones(4, bool), jnp.ones(EXPERTS), top_k=TOP_K)
    np.testing.assert_array_equal(bias, np.zeros(EXPERTS))
