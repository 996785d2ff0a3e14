"""The balancing bias against quantiles by sorting, the sign rule, and the auxiliary loss."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from steps.model.moe.balancing import NUM_BINS, _quantile, auxiliary_loss, balancing_bias, sign_bias
from steps.model.moe.router import route

HIDDEN, EXPERTS, TOP_K = 16, 12, 3


def draw(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


@pytest.mark.parametrize("num_tokens", [1, 7, 1000])
def test_bias_is_minus_the_quantile_of_counted_margins(num_tokens):
    """numpy's quantile to within a bin, mean zero, padding left out whatever it holds."""
    margins = draw(num_tokens + 5, EXPERTS, seed=3) * jnp.linspace(0.1, 4, EXPERTS) - 1
    counted = jnp.arange(num_tokens + 5) < num_tokens
    margins = jnp.where(counted[:, None], margins, jnp.nan)
    bias, low, high, _ = balancing_bias(margins, counted, jnp.zeros(EXPERTS), top_k=TOP_K)

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
    bias, low, high, _ = balancing_bias(jnp.full((4, EXPERTS), jnp.nan), jnp.zeros(4, bool), old, top_k=TOP_K)
    np.testing.assert_array_equal(bias, old)
    assert float(low) == float(high) == 0


def test_equal_margins_have_a_quantile():
    bias, *_ = balancing_bias(jnp.full((4, EXPERTS), 0.5), jnp.ones(4, bool), jnp.ones(EXPERTS), top_k=TOP_K)
    np.testing.assert_array_equal(bias, np.zeros(EXPERTS))


def test_the_sign_rule_takes_one_step_towards_an_even_load():
    """DeepSeek-V3: less for who has more than the mean, more for who has less, nothing for who has it; mean zero."""
    bias = sign_bias(jnp.asarray([10, 4, 6, 4]), jnp.asarray([0.5, 0.5, 0.0, -1.0]), rate=0.1)
    moved = np.array([0.4, 0.6, 0.0, -0.9])
    np.testing.assert_allclose(bias, moved - moved.mean(), atol=1e-7)
    even = sign_bias(jnp.asarray([4, 4, 4, 4]), jnp.asarray([0.5, -0.5, 0.0, 0.0]), rate=0.1)
    np.testing.assert_allclose(even, [0.5, -0.5, 0, 0], atol=1e-7)
    np.testing.assert_array_equal(sign_bias(jnp.zeros(4, jnp.int32), jnp.ones(4), rate=0.1), np.ones(4))


def test_the_sign_rule_counts_in_integers():
    """2^24 + 1 against a mean of 2^24: equal in fp32, and one more all the same. The remainder of a mean counts too."""
    load = jnp.asarray([2**24 + 1, 2**24 - 1])
    np.testing.assert_allclose(sign_bias(load, jnp.zeros(2), rate=1.0), [-1, 1])
    np.testing.assert_allclose(sign_bias(jnp.asarray([2, 2, 1]), jnp.zeros(3), rate=3.0), [-2, -2, 4])


def test_the_auxiliary_loss_is_one_when_even_and_pushes_towards_it():
    logits, counted = draw(40, EXPERTS), jnp.arange(40) < 32
    even = jnp.full(EXPERTS, 32 * TOP_K // EXPERTS)
    flat = auxiliary_loss(jnp.zeros((40, EXPERTS)), counted, even, jnp.int32(32), top_k=TOP_K)
    np.testing.assert_allclose(flat, 1.0, rtol=1e-6)

    load = jnp.zeros(EXPERTS, jnp.int32).at[:TOP_K].set(32)
    scores = 1 / (1 + np.exp(-np.asarray(logits, np.float64)[:32]))
    scores /= scores.sum(axis=1, keepdims=True)
    wanted = EXPERTS * np.sum(np.asarray(load) / (32 * TOP_K) * scores.mean(axis=0))

    def value(logits):
        return auxiliary_loss(logits, counted, load, jnp.int32(32), top_k=TOP_K)

    np.testing.assert_allclose(value(logits), wanted, rtol=1e-6)
    gradient = np.asarray(jax.grad(value)(logits))
    assert (gradient[:32, :TOP_K] > 0).all() and (gradient[:32, TOP_K:] < 0).all()
    assert (gradient[32:] == 0).all(), "padding is not trained on"
