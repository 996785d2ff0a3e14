"""The layer against the dense reference: outputs, every gradient, drops, and what it measures."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from steps.model.moe.balancing import auxiliary_loss
from steps.model.moe.dispatch import movement
from steps.model.moe.layer import moe
from steps.model.moe.plan import Limits, make_plan
from steps.model.moe.reference import combine_gates, dense_moe

TOLERANCE = 3e-6
"""Error relative to the largest element of the array (of the whole array: not of the element, which may be tiny)."""

QUICK_TO_COMPILE = {"xla_backend_optimization_level": 0}
"""These programs run once."""

slow = pytest.mark.slow


@functools.cache
def compiled(layer):
    """(x, weights, valid, bias, cotangent, ...) -> loss, gradients by x and all weights, output (and statistics)."""

    def loss(x, weights, valid, bias, cotangent, *more):
        out = layer(x, valid, weights, bias, *more)
        return jnp.sum((out[0] if isinstance(out, tuple) else out) * cotangent), out

    return jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True), compiler_options=QUICK_TO_COMPILE)


def value_and_gradients(layer, case, *more):
    (value, out), gradients = compiled(layer)(case.x, case.weights, case.valid, case.bias, case.cotangent, *more)
    return value, gradients, out


@functools.cache
def expert_parallel(config, mesh, unused):
    """The layer; `unused`, what unused places hold, is built into the program and so belongs to what is cached."""
    return lambda x, valid, weights, bias: moe(x, valid, weights, bias, config, mesh)


@functools.cache
def reference(config):
    return lambda x, valid, weights, bias, kept: dense_moe(x, valid, weights, bias, config, kept)


def ours(case, mesh):
    return value_and_gradients(expert_parallel(case.config, mesh, str(movement.UNUSED)), case)


def dense(case, kept=None):
    one_device = dataclasses.replace(case.config, expert_parallel=1, capacity_factor=None, pair_capacity_factor=None)
    return value_and_gradients(reference(one_device), case, kept)


def assert_equal_arrays(ours, theirs, tolerance=TOLERANCE):
    """Every array of two trees, by error over the peak of the reference."""
    pairs = zip(jax.tree_util.tree_leaves_with_path(ours), jax.tree.leaves(theirs), strict=True)
    for (path, ours_array), theirs_array in pairs:
        assert ours_array.shape == theirs_array.shape
        if ours_array.size == 0:
            continue
        ours_array, theirs_array = np.asarray(ours_array, np.float64), np.asarray(theirs_array, np.float64)
        assert np.isfinite(ours_array).all(), f"{path}: not finite"
        error = np.abs(ours_array - theirs_array).max() / max(np.abs(theirs_array).max(), 1e-30)
        assert error <= tolerance, f"{path}: error {error:.2e} of the peak"


def assert_matches_reference(case, mesh, kept=None, tolerance=TOLERANCE):
    _, gradients, (out, stats) = ours(case, mesh)
    _, dense_gradients, dense_out = dense(case, kept)
    assert_equal_arrays((out, gradients), (dense_out, dense_gradients), tolerance)
    return stats, gradients


def count(case) -> dict[str, int]:
    """Valid assignments and padding by plain counting."""
    num_valid = int(np.sum(case.valid))
    return {
        "assignments": num_valid * case.config.top_k,
        "padding": (case.valid.size - num_valid) * case.config.top_k,
    }


@pytest.mark.parametrize(
    ("data", "expert", "num_experts"),
    [
        (1, 1, 8),
        (1, 2, 6),
        (2, 4, 8),
        *(pytest.param(*p, marks=slow) for p in [(1, 4, 4), (1, 4, 12), (1, 8, 8), (1, 8, 24), (2, 2, 6), (8, 1, 8)]),
    ],
)
def test_equal_to_reference_when_nothing_drops(make_case, make_mesh, poisoned, data, expert, num_experts):
    """Output and all gradients, with padding, odd group sizes, several local experts, and NaN in unused places."""
    case = make_case(num_experts=num_experts, expert_parallel=expert)
    stats, _ = assert_matches_reference(case, make_mesh(data, expert))
    assert int(stats.accepted) == int(stats.assignments) == count(case)["assignments"]
    assert int(stats.padding) == count(case)["padding"]
    assert int(stats.sender_dropped) == int(stats.receiver_dropped) == 0


@pytest.mark.parametrize("expert", [2, pytest.param(1, marks=slow), pytest.param(4, marks=slow)])
def test_without_latent_and_shared_experts(make_case, make_mesh, poisoned, expert):
    case = make_case(latent=None, num_shared_experts=0, expert_parallel=expert)
    assert_matches_reference(case, make_mesh(1, expert))


@pytest.mark.parametrize("expert", [4, pytest.param(1, marks=slow), pytest.param(2, marks=slow)])
def test_an_empty_expert_has_a_gradient_of_exactly_zero(make_case, make_mesh, poisoned, expert):
    """Faults 1 and 3: with NaN in every unused place, the experts nobody chose get 0, the others the right thing."""
    case = make_case(expert_parallel=expert)
    empty = np.array([1, 2, 3])
    case = dataclasses.replace(case, bias=case.bias.at[empty].set(-100.0))
    stats, (_, d_weights) = assert_matches_reference(case, make_mesh(1, expert))
    assert (np.asarray(stats.load)[empty] == 0).all()
    assert (np.asarray(d_weights.w_gate_up)[empty] == 0).all()
    assert (np.asarray(d_weights.w_down)[empty] == 0).all()


@pytest.mark.parametrize("expert", [2, pytest.param(4, marks=slow)])
def test_everything_to_one_device(make_case, make_mesh, poisoned, expert):
    """Fault 5: the overflow is counted and nothing else is touched, in output or gradients."""
    case = make_case(num_tokens=48, expert_parallel=expert, capacity_factor=1.5, top_k=2, num_experts=8)
    case = dataclasses.replace(case, bias=case.bias.at[:2].set(100.0))
    mesh = make_mesh(1, expert)
    kept = kept_pairs(case, expert)
    stats, _ = assert_matches_reference(case, mesh, kept)
    room = 1.5 * 48 * 2 / expert
    assert int(stats.accepted) == room < int(stats.assignments)
    assert int(stats.receiver_dropped) == int(stats.assignments) - room
    assert int(stats.sender_dropped) == 0


@pytest.mark.parametrize(("capacity_factor", "pair_capacity_factor"), [(0.8, 1.1), pytest.param(None, 0.5, marks=slow)])
def test_drops_of_both_kinds(make_case, make_mesh, poisoned, capacity_factor, pair_capacity_factor):
    """What is kept is worked on as ever; what is dropped adds nothing and gets no gradient."""
    case = make_case(
        expert_parallel=4, capacity_factor=capacity_factor, pair_capacity_factor=pair_capacity_factor, num_tokens=64
    )
    kept = kept_pairs(case, 4)
    stats, _ = assert_matches_reference(case, make_mesh(1, 4), kept)
    assert int(stats.sender_dropped) > 0
    assert (int(stats.receiver_dropped) > 0) == (capacity_factor is not None)
    assert int(stats.accepted) == int(np.sum(kept))
    assert int(stats.accepted + stats.sender_dropped + stats.receiver_dropped) == int(stats.assignments)


def kept_pairs(case, devices: int) -> jax.Array:
    """[T, E]: which (token, expert) pairs the plan accepts: the first of each group of sender and expert."""
    gates = combine_gates(jnp.where(case.valid[:, None], case.x, 0), case.weights, case.bias, case.config)
    chosen = np.asarray((gates > 0) & case.valid[:, None]).reshape(devices, -1, case.config.num_experts)
    limits = Limits.of(case.config, chosen.shape[1])
    accepted = np.asarray(make_plan(jnp.asarray(chosen.sum(1)), limits).accepted)
    kept = chosen & (np.cumsum(chosen, axis=1) <= accepted[:, None])
    return jnp.asarray(kept.reshape(-1, case.config.num_experts))


@pytest.mark.parametrize("expert", [4, pytest.param(2, marks=slow)])
def test_a_device_without_tokens(make_case, make_mesh, poisoned, expert):
    """Fault 10: one device holds only padding; and with no token anywhere all is zero and the bias stays."""
    case = make_case(expert_parallel=expert)
    mesh = make_mesh(1, expert)
    here = 40 // expert
    case = dataclasses.replace(case, valid=case.valid.at[here : 2 * here].set(False))
    stats, _ = assert_matches_reference(case, mesh)
    assert int(stats.padding) == count(case)["padding"]

    case = dataclasses.replace(case, valid=jnp.zeros_like(case.valid))
    _, gradients, (out, stats) = ours(case, mesh)
    assert all((np.asarray(leaf) == 0).all() for leaf in jax.tree.leaves((out, gradients)))
    np.testing.assert_array_equal(stats.next_bias, case.bias)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(stats))


def test_nan_in_padding_stays_there(make_case, make_mesh):
    """Fault 3: positions without a token may hold anything."""
    case = make_case(expert_parallel=2)
    mesh = make_mesh(1, 2)
    clean = ours(case, mesh)
    dirty = ours(dataclasses.replace(case, x=jnp.where(case.valid[:, None], case.x, jnp.nan)), mesh)
    assert_equal_arrays(dirty, clean, tolerance=0)
    assert (np.asarray(dirty[2][0])[~np.asarray(case.valid)] == 0).all()


def test_equal_at_every_degree(make_case, make_mesh):
    """Fault 8: input, router, latent and shared gradients are sums over all devices; statistics agree exactly."""
    results = {}
    for data, expert in [(1, 1), (1, 4), (4, 1)]:
        results[data, expert] = ours(make_case(expert_parallel=expert), make_mesh(data, expert))
    base = results.pop((1, 1))
    for result in results.values():
        assert_equal_arrays(result[:2], base[:2])
        for name in ("load", "assignments", "accepted", "padding", "entropy", "margin_min", "margin_max", "next_bias"):
            np.testing.assert_allclose(
                getattr(result[2][1], name), getattr(base[2][1], name), rtol=1e-5, atol=1e-5, err_msg=name
            )


def test_bit_equal_on_repeat_and_under_remat(make_case, make_mesh):
    case, mesh = make_case(expert_parallel=2, capacity_factor=1.0), make_mesh(1, 2)

    layer = expert_parallel(case.config, mesh, str(movement.UNUSED))
    first, again = value_and_gradients(layer, case), value_and_gradients(layer, case)
    recomputed = value_and_gradients(jax.checkpoint(layer), case)
    assert_equal_arrays(again, first, tolerance=0)
    assert_equal_arrays(recomputed, first, tolerance=TOLERANCE)
    for name in ("assignments", "accepted", "receiver_dropped"):
        assert int(getattr(recomputed[2][1], name)) == int(getattr(first[2][1], name)), f"{name} counted twice"


@slow
def test_layers_scanned_over(make_case, make_mesh):
    """Two layers in a scan equal two calls, gradients too, and statistics come stacked."""
    case, mesh = make_case(expert_parallel=2), make_mesh(1, 2)
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, 0.5 * leaf]), case.weights)
    biases = jnp.stack([case.bias, -case.bias])

    def scanned(x, valid, weights, biases):
        return jax.lax.scan(lambda x, layer: moe(x, valid, *layer, case.config, mesh), x, (weights, biases))

    def called(x, valid, weights, biases):
        for layer in range(2):
            these = jax.tree.map(lambda leaf, layer=layer: leaf[layer], weights)
            x = dense_moe(x, valid, these, biases[layer], case.config)
        return x

    case = dataclasses.replace(case, weights=stacked, bias=biases)
    _, gradients, (out, stats) = value_and_gradients(scanned, case)
    _, dense_gradients, dense_out = value_and_gradients(called, case)
    assert_equal_arrays((out, gradients), (dense_out, dense_gradients), tolerance=2e-5)
    assert stats.load.shape == (2, case.config.num_experts)


@pytest.mark.parametrize(
    ("dtype", "expert", "local"),
    [
        ("bfloat16", 2, 4),
        *(pytest.param(d, e, n, marks=slow) for d in ("float32", "bfloat16") for e in (1, 2, 4, 8) for n in (1, 3, 6)),
    ],
)
def test_as_exact_as_the_dense_layer(make_case, make_mesh, poisoned, dtype, expert, local):
    """Against float64 on the same numbers: at most 4 times the error that the dense layer makes in this precision."""
    case = make_case(dtype=dtype, expert_parallel=expert, num_experts=max(4, expert * local))
    _, gradients, (out, _) = ours(case, make_mesh(1, expert))
    _, dense_gradients, dense_out = dense(case)
    exact_out, exact_gradients = in_float64(case)

    def errors(arrays):
        leaves = zip(jax.tree.leaves(arrays), jax.tree.leaves((exact_out, exact_gradients)), strict=True)
        return [
            np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)).max() / np.abs(b).max() for a, b in leaves
        ]

    floor = 2 * float(jnp.finfo(dtype).eps)
    for error, dense_error in zip(errors((out, gradients)), errors((dense_out, dense_gradients)), strict=True):
        assert error <= 4 * dense_error + floor
    assert out.dtype == jnp.dtype(dtype)


def in_float64(case):
    """Output and gradients of the dense layer in float64, with the experts chosen from the logits as the layer has
    them: rounded, they may choose another one."""
    with jax.enable_x64(True):
        wide = {
            name: jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf, np.float64)), getattr(case, name))
            for name in ("x", "weights", "bias", "cotangent")
        }
        _, gradients, out = dense(dataclasses.replace(case, **wide))
        return jax.tree.map(np.asarray, (out, gradients))


@slow
def test_tokens_dealt_out_come_back_to_their_places(make_case, make_mesh, poisoned):
    """Equal to the reference as ever."""
    case = make_case(num_tokens=64, expert_parallel=4, shuffle_tokens=True)
    assert_matches_reference(case, make_mesh(1, 4))


def test_tokens_dealt_out_overflow_no_pair(make_case, make_mesh, poisoned):
    """Documents that all want one device overflow no pair any more."""
    fields = {"num_tokens": 64, "expert_parallel": 4, "pair_capacity_factor": 1.5, "top_k": 2, "num_experts": 8}
    dropped = {}
    for shuffled in (False, True):
        case = make_case(shuffle_tokens=shuffled, **fields)
        document = jnp.arange(64) // 16  # each device's tokens want the two experts of one device
        case = dataclasses.replace(
            case,
            x=jnp.zeros_like(case.x).at[jnp.arange(64), document].set(1.0),
            valid=jnp.ones_like(case.valid),
            bias=jnp.zeros_like(case.bias),
            weights=dataclasses.replace(
                case.weights, router=jnp.zeros_like(case.weights.router).at[jnp.arange(8) // 2, jnp.arange(8)].set(9.0)
            ),
        )
        _, _, (_, stats) = ours(case, make_mesh(1, 4))
        dropped[shuffled] = int(stats.sender_dropped)
        assert float(stats.largest_pair) == pytest.approx(1.0 if shuffled else 4.0)
        assert float(stats.largest_device) == 1.0
    assert dropped == {False: 4 * (32 - 12), True: 0}


@slow
@pytest.mark.parametrize("balancing", ["sign", "none"])
def test_other_ways_to_balance(make_case, make_mesh, balancing):
    """`sign` moves by its rate, `none` keeps the bias; the auxiliary loss reaches the router through its statistics."""
    case = make_case(expert_parallel=2, balancing=balancing, bias_rate=0.25, auxiliary_loss=0.1)
    mesh = make_mesh(1, 2)
    _, _, (_, stats) = ours(case, mesh)
    load = np.asarray(stats.load)
    moved = np.asarray(case.bias) + (0.25 * np.sign(load.mean() - load) if balancing == "sign" else 0)
    centred = moved - moved.mean() if balancing == "sign" else moved
    np.testing.assert_allclose(stats.next_bias, centred, atol=1e-6)

    def balance(router):
        weights = dataclasses.replace(case.weights, router=router)
        return moe(case.x, case.valid, weights, case.bias, case.config, mesh)[1].balance_loss

    def plain(router):
        logits = jnp.where(case.valid[:, None], case.x, 0) @ router
        num_valid = jnp.sum(case.valid, dtype=jnp.int32)
        return auxiliary_loss(logits, case.valid, stats.load, num_valid, top_k=case.config.top_k)

    by_layer, by_hand = (
        jax.jit(jax.grad(one), compiler_options=QUICK_TO_COMPILE)(case.weights.router) for one in (balance, plain)
    )
    assert_equal_arrays(by_layer, by_hand)


@slow
def test_microbatches_add_up(make_case, make_mesh):
    """Nothing dropped: the gradients of four microbatches sum to those of the whole, and counts do."""
    case, mesh = make_case(num_tokens=64, expert_parallel=2), make_mesh(1, 2)
    whole = ours(case, mesh)
    parts = [
        ours(
            dataclasses.replace(
                case, **{name: getattr(case, name)[16 * i : 16 * i + 16] for name in ("x", "valid", "cotangent")}
            ),
            mesh,
        )
        for i in range(4)
    ]
    d_x = jnp.concatenate([gradients[0] for _, gradients, _ in parts])
    d_weights = jax.tree.map(lambda *leaves: sum(leaves), *(gradients[1] for _, gradients, _ in parts))
    assert_equal_arrays((d_x, d_weights), whole[1])
    assert sum(int(out[1].accepted) for _, _, out in parts) == int(whole[2][1].accepted)
    np.testing.assert_array_equal(sum(np.asarray(out[1].load) for _, _, out in parts), whole[2][1].load)


def test_not_finite_logits_are_seen(make_case, make_mesh):
    """A token whose logits are not numbers must not be served by experts 0..K-1 as if nothing had happened."""
    case, mesh = make_case(expert_parallel=2), make_mesh(1, 2)
    token = int(np.flatnonzero(np.asarray(case.valid))[3])
    case = dataclasses.replace(case, x=case.x.at[token, 0].set(jnp.inf))
    _, _, (out, stats) = ours(case, mesh)
    assert np.isnan(np.asarray(out)[token]).all()
    assert np.isfinite(np.delete(np.asarray(out), token, axis=0)).all()
    assert int(stats.nonfinite) == 1 and np.isfinite(stats.next_bias).all()


def test_a_mesh_that_does_not_fit_is_an_error(make_case, make_mesh):
    case = make_case(expert_parallel=4)
    with pytest.raises(ValueError, match=r"expert_parallel\(4\)"):
        moe(case.x, case.valid, case.weights, case.bias, case.config, make_mesh(1, 2))
    with pytest.raises(ValueError, match=r"tokens\(39\) % \(data\(1\) \* expert\(4\)\) = 3"):
        moe(case.x[:39], case.valid[:39], case.weights, case.bias, case.config, make_mesh(1, 4))
