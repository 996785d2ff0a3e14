"""The router's choice and weights, and the balancing bias against quantiles by sorting."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from steps.model.moe.router import NUM_BINS, _quantile, balancing_bias, route

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


@pytest.mark.parametrize("num_tokens", [1, 7, 1000])
def test_bias_is_minus_the_quantile_of_counted_margins(num_tokens):
    """numpy's quantile to within a bin, mean zero, padding left out whatever it holds."""
    margins = draw(num_tokens + 5, EXPERTS, seed=3) * jnp.linspace(0.1, 4, EXPERTS) - 1
    counted = jnp.arange(num_tokens + 5) < num_tokens
    margins = jnp.where(counted[:, None], margins, jnp.nan)
    bias, low, high = balancing_bias(margins, counted, jnp.zeros(EXPERTS), top_k=TOP_K)

    real = np.asarray(margins, np.float64)[:num_tokens]
    assert (float(low), float(high)) == (real.min(), real.max())
    beta = np.quantile(real, 1 - TOP_K / EXPERTS, axis=0, method="inverted_cdf")
    bin_width = (real.max() - real.min()) / NUM_BINS
    np.testing.assert_allclose(bias, beta.mean() - beta, atol=2 * bin_width + 1e-6)
    assert bias.dtype == jnp.float32 and abs(float(bias.mean())) < 1e-6


def test_quantile_is_interpolated_within_its_bin():
    """Bins of width 1 from 0 to 10,000. Of 10 tokens, 10 * (1 - 1/2) = 5 lie below the quantile of either expert:
    all 10 of the first lie in bin 5000, so it is 5000 + 5/10; the second has 3 below bin 70 and 4 in it: 70 + 2/4."""
    first = np.full(10, 5000.25)
    second = np.array([0, 1.5, 2.5, 70.1, 70.2, 70.3, 70.4, 900.5, 901.5, NUM_BINS])
    margins = jnp.asarray(np.stack([first, second], axis=1), jnp.float32)
    bias, *_ = balancing_bias(margins, jnp.ones(10, bool), jnp.zeros(2), top_k=1)
    np.testing.assert_allclose(bias[1] - bias[0], 5000.5 - 70.5, rtol=1e-6)


def test_rank_is_exact_in_a_large_batch():
    """46,137,344 tokens, 8 of 384 experts: the rank 45,176,149.333 has no fp32 form; a step of 4 would stand for it."""
    num_tokens, num_experts, top_k = 46_137_344, 384, 8
    whole = num_tokens * (num_experts - top_k) // num_experts
    histogram = jnp.zeros((num_experts, NUM_BINS), jnp.int32).at[:, 3].set(whole).at[:, 4].set(1)
    histogram = histogram.at[:, 9000].set(num_tokens - whole - 1)
    np.testing.assert_allclose(_quantile(histogram, jnp.int32(num_tokens), top_k), 4 + 1 / 3, rtol=1e-6)


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
