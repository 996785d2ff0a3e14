"""The whole model: its size is what the arithmetic says, every part is alive, and nothing leaks between positions."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh

from steps.model.config import ModelConfig
from steps.model.loss import Batch, loss
from steps.model.transformer import Params, RouterState, forward, init, init_router_state

TINY = ModelConfig(
    vocab_size=40, hidden=24, num_layers=3, num_heads=4, head_dim=8, num_kv_heads=2, num_global_kv_heads=1, window=8,
    sequence_length=16, global_every=2, num_experts=8, top_k=2, expert_width=12, latent=12, num_shared_experts=2,
    shared_width=12, gated_norm_rank=4, capacity_factor=8.0, z_loss=0.01,
)  # fmt: skip
LAPTOP = ModelConfig.of_family(
    hidden=96, num_layers=4, vocab_size=2048, head_dim=16, num_experts=16, top_k=4, window=64, sequence_length=256,
    gated_norm_rank=16,
)  # fmt: skip
HERO = ModelConfig.of_family(hidden=6144, num_layers=48)
ODD = dataclasses.replace(TINY, vocab_size=37, hidden=23, num_heads=6, num_kv_heads=3, expert_width=7, latent=5,
                          num_shared_experts=3, shared_width=9, conv_kernel=3, gated_norm_rank=1)  # fmt: skip
BARE = dataclasses.replace(ODD, latent=None, num_shared_experts=0, conv_kernel=0, gated_norm=False, head_gate=False)


def mesh_of(data: int, expert: int) -> Mesh:
    devices = np.array(jax.devices()[: data * expert]).reshape(data, expert)
    return Mesh(devices, ("data", "expert"), axis_types=(AxisType.Auto,) * 2)


@functools.lru_cache
def shaken(config: ModelConfig) -> Params:
    """Parameters with every array away from its start, where zero gates and identity convolutions hide."""
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(lambda: init(config, jax.random.key(0)))
    return jax.tree.map(lambda leaf: jnp.asarray(0.3 * rng.standard_normal(leaf.shape) + 0.1, jnp.float32), shapes)


@functools.lru_cache
def hidden_of(config: ModelConfig):
    mesh = mesh_of(1, 1)
    return jax.jit(lambda *args: forward(*args, config, mesh)[0])


def bias_of(config: ModelConfig) -> RouterState:
    bias = 0.1 * np.random.default_rng(9).standard_normal((config.num_layers, config.num_experts))
    return RouterState(bias=jnp.asarray(bias, jnp.float32))


def packed(config: ModelConfig, batch: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Tokens, and segments of three documents with two padded places at the end."""
    length = config.sequence_length
    tokens = np.random.default_rng(seed).integers(0, config.vocab_size, (batch, length)).astype(np.int32)
    segments = np.repeat([0, 1, 2, -1], [5, 3, length - 10, 2]).astype(np.int32)
    return tokens, np.broadcast_to(segments, tokens.shape)


@pytest.mark.parametrize("config", [TINY, LAPTOP, ODD, BARE, HERO], ids=["tiny", "laptop", "odd", "bare", "hero"])
def test_arithmetic_counts_the_real_arrays(config: ModelConfig):
    params = jax.eval_shape(lambda: init(config, jax.random.key(0)))
    state = jax.eval_shape(lambda: init_router_state(config))
    size = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path((params, state))}
    assert sum(leaf.size for leaf in size.values()) == config.parameters_total
    assert sum(leaf.size * leaf.dtype.itemsize for leaf in size.values()) == config.parameter_bytes()

    moe, attention = params.layers.moe, params.layers.attention
    whole = [attention.query, attention.key, attention.value, attention.output, moe.router, moe.shared_gate_up]
    whole += [moe.shared_down, moe.latent_down, moe.latent_up]
    active = sum(leaf.size for leaf in whole if leaf is not None)
    routed = moe.w_gate_up.size + moe.w_down.size
    assert active + routed * config.top_k // config.num_experts == config.parameters_active

    parts = config.parameters_by_part
    assert parts["experts"] == routed
    assert parts["router_bias"] == state.bias.size
    assert parts["embedding"] == params.embedding.size
    assert parts["norm_gains"] == sum(leaf.size for name, leaf in size.items() if name.endswith(".gain"))
    assert parts["gated_norm"] == sum(leaf.size for name, leaf in size.items() if ".gate_" in name)
    assert parts["conv"] == sum(leaf.size for name, leaf in size.items() if name.endswith("_conv"))


def test_init():
    @jax.jit
    def some() -> tuple[tuple, tuple, jax.Array]:
        params = init(LAPTOP, jax.random.key(0))
        attention, layers = params.layers.attention, params.layers
        kernels = (layers.attention_conv, layers.moe_conv, attention.key_conv)
        return (params.embedding, attention.query, layers.moe.w_down), kernels, attention.head_gate

    matrices, kernels, head_gate = some()
    std = 0.5 / np.sqrt(96)
    for matrix in matrices:
        assert np.std(matrix) == pytest.approx(std * 0.9866, rel=0.02)  # what cutting at three deviations leaves
        assert np.max(np.abs(matrix)) <= 3 * std
    assert not np.array_equal(matrices[1][0], matrices[1][1]), "layers are drawn alike"
    assert not np.any(head_gate)
    for kernel in kernels:
        np.testing.assert_array_equal(kernel[:, 0], 1)
        assert not np.any(kernel[:, 1:])
    shapes = jax.eval_shape(lambda: init(LAPTOP, jax.random.key(0)))
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(shapes))


def test_init_of_one_part_does_not_hang_on_another():
    drawn = jax.jit(lambda config, key: init(config, key).layers.moe.router, static_argnums=0)
    with_all, without = drawn(TINY, jax.random.key(3)), drawn(dataclasses.replace(TINY, latent=None), jax.random.key(3))
    np.testing.assert_array_equal(with_all, without)


@pytest.mark.parametrize(
    "change",
    [
        {"gated_norm": False},
        {"conv_kernel": 0},
        {"global_every": 100},
        pytest.param({"combine_scale": 1.0}, marks=pytest.mark.slow),
        pytest.param({"head_gate": False}, marks=pytest.mark.slow),
        pytest.param({"xsa": False}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_switching_a_part_off_changes_the_output(change: dict):
    other = dataclasses.replace(TINY, **change)
    params, (tokens, segments) = shaken(TINY), packed(TINY)
    if change.get("gated_norm") is False:
        bare = [dataclasses.replace(n, gate_down=None, gate_up=None) for n in norms_of(params)]
        params_off = with_norms(params, bare)
    elif "conv_kernel" in change:
        attention = dataclasses.replace(params.layers.attention, key_conv=None)
        layers = dataclasses.replace(params.layers, attention=attention, attention_conv=None, moe_conv=None)
        params_off = dataclasses.replace(params, layers=layers)
    elif "head_gate" in change:
        attention = dataclasses.replace(params.layers.attention, head_gate=None)
        params_off = dataclasses.replace(params, layers=dataclasses.replace(params.layers, attention=attention))
    else:
        params_off = params
    on = hidden_of(TINY)(params, bias_of(TINY), tokens, segments)
    off = hidden_of(other)(params_off, bias_of(TINY), tokens, segments)
    assert np.max(np.abs(on - off)) > 1e-2


def norms_of(params: Params) -> list:
    return [params.embedding_norm, params.layers.attention_norm, params.layers.moe_norm, params.final_norm]


def with_norms(params: Params, norms: list) -> Params:
    layers = dataclasses.replace(params.layers, attention_norm=norms[1], moe_norm=norms[2])
    return dataclasses.replace(params, embedding_norm=norms[0], layers=layers, final_norm=norms[3])


@pytest.mark.parametrize("where", range(4), ids=["embedding", "attention", "experts", "final"])
def test_every_norm_has_its_gate(where: int):
    params, (tokens, segments) = shaken(TINY), packed(TINY)
    norms = norms_of(params)
    norms[where] = dataclasses.replace(norms[where], gate_up=-norms[where].gate_up)
    on = hidden_of(TINY)(params, bias_of(TINY), tokens, segments)
    off = hidden_of(TINY)(with_norms(params, norms), bias_of(TINY), tokens, segments)
    assert np.max(np.abs(on - off)) > 1e-2


@pytest.mark.parametrize("kernel", ["attention_conv", "moe_conv"])
def test_both_branches_have_their_convolution(kernel: str):
    params, (tokens, segments) = shaken(TINY), packed(TINY)
    turned = dataclasses.replace(params.layers, **{kernel: -getattr(params.layers, kernel)})
    on = hidden_of(TINY)(params, bias_of(TINY), tokens, segments)
    off = hidden_of(TINY)(dataclasses.replace(params, layers=turned), bias_of(TINY), tokens, segments)
    assert np.max(np.abs(on - off)) > 1e-2


def test_nothing_leaks_back_in_time_or_between_documents():
    params, (tokens, segments) = shaken(TINY), packed(TINY)
    before = hidden_of(TINY)(params, bias_of(TINY), tokens, segments)
    for place in (0, 4, 5, 9, 13, 15):
        changed = tokens.copy()
        changed[:, place] = (changed[:, place] + 1) % TINY.vocab_size
        after = hidden_of(TINY)(params, bias_of(TINY), changed, segments)
        moved = np.max(np.abs(after - before), axis=(0, 2))
        reachable = (segments[0] == segments[0, place]) & (np.arange(16) >= place)
        assert np.all(moved[~reachable] < 1e-5), place
        assert moved[place] > 1e-2


def test_a_packed_document_equals_the_document_alone():
    """Positions only enter as distances, so a document holds the same wherever it lies in a sequence."""
    params, (tokens, segments) = shaken(TINY), packed(TINY)
    inside = hidden_of(TINY)(params, bias_of(TINY), tokens, segments)[:, 8:14]
    alone_tokens, alone_segments = np.zeros_like(tokens), np.full_like(segments, -1)
    alone_tokens[:, :6], alone_segments[:, :6] = tokens[:, 8:14], 0
    alone = hidden_of(TINY)(params, bias_of(TINY), alone_tokens, alone_segments)[:, :6]
    np.testing.assert_allclose(inside, alone, atol=1e-4)


@functools.lru_cache
def step_of(config: ModelConfig, data: int, expert: int):
    mesh = mesh_of(data, expert)
    return jax.jit(jax.value_and_grad(lambda *args: loss(*args, config, mesh), has_aux=True))


def grads_of(config: ModelConfig, batch: Batch, data: int = 1, expert: int = 1):
    return step_of(config, data, expert)(shaken(config), bias_of(config), batch)


def batch_of(config: ModelConfig, batch: int) -> Batch:
    tokens, segments = packed(config, batch)
    mask = np.random.default_rng(5).integers(0, 3, tokens.shape) * (segments >= 0) / 2
    return Batch(tokens=jnp.asarray(tokens), loss_mask=jnp.asarray(mask), segment_ids=jnp.asarray(segments))


def test_loss_is_the_weighted_mean_and_the_penalty():
    config, batch, params = TINY, batch_of(TINY, 8), shaken(TINY)
    (value, aux), _ = grads_of(config, batch)
    hidden = hidden_of(config)(params, bias_of(config), batch.tokens, batch.segment_ids)
    logits = (np.asarray(hidden, np.float64) @ np.asarray(params.lm_head, np.float64))[:, :-1]
    normaliser = np.log(np.exp(logits).sum(-1))
    nats = normaliser - np.take_along_axis(logits, np.asarray(batch.tokens)[:, 1:, None], -1)[..., 0]
    weight = np.asarray(batch.loss_mask)[:, :-1]
    assert float(aux.weight) == pytest.approx(weight.sum())
    assert float(aux.cross_entropy) == pytest.approx((nats * weight).sum() / weight.sum(), rel=1e-5)
    assert float(aux.z_loss) == pytest.approx(0.01 * (normaliser**2 * weight).sum() / weight.sum(), rel=1e-5)
    assert float(value) == pytest.approx(float(aux.cross_entropy + aux.z_loss), rel=1e-6)
    assert aux.router.next_bias.shape == (config.num_layers, config.num_experts)


def test_a_batch_without_weight_has_no_loss_and_no_gradient():
    batch = batch_of(TINY, 8)
    empty = dataclasses.replace(batch, loss_mask=jnp.zeros_like(batch.loss_mask))
    (value, _), grads = grads_of(TINY, empty)
    assert float(value) == 0
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(grads))


@pytest.mark.parametrize(
    ("data", "expert", "remat"),
    [
        (2, 2, "layer"),
        pytest.param(2, 2, "experts", marks=pytest.mark.slow),
        pytest.param(1, 1, "layer", marks=pytest.mark.slow),
        pytest.param(1, 1, "none", marks=pytest.mark.slow),
        pytest.param(4, 1, "experts", marks=pytest.mark.slow),
        pytest.param(1, 8, "experts", marks=pytest.mark.slow),
    ],
)
def test_devices_and_memory_do_not_change_the_result(data: int, expert: int, remat: str):
    """Where it runs and what it keeps is execution: loss and every gradient stay, as long as nothing is dropped."""
    batch = batch_of(TINY, 8)
    (base, aux), grads = grads_of(TINY, batch)
    config = dataclasses.replace(TINY, expert_parallel=expert, remat=remat)
    (other, other_aux), other_grads = step_of(config, data, expert)(shaken(TINY), bias_of(TINY), batch)
    assert int(jnp.sum(aux.router.sender_dropped + aux.router.receiver_dropped)) == 0
    assert int(jnp.sum(other_aux.router.sender_dropped + other_aux.router.receiver_dropped)) == 0
    assert float(other) == pytest.approx(float(base), rel=1e-6)
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(grads), jax.tree.leaves(other_grads), strict=True):
        scale = np.max(np.abs(a))
        assert scale > 0, jax.tree_util.keystr(path)
        np.testing.assert_allclose(b, a, atol=2e-5 * scale, err_msg=jax.tree_util.keystr(path))


def test_bf16_follows_fp32():
    config = dataclasses.replace(TINY, compute_dtype="bfloat16")
    params, state, (tokens, segments) = shaken(TINY), bias_of(TINY), packed(TINY)
    exact = hidden_of(TINY)(params, state, tokens, segments)
    coarse = hidden_of(config)(params, state, tokens, segments)
    assert coarse.dtype == jnp.bfloat16
    kept = segments >= 0
    typical = np.sqrt(np.mean(np.square(exact[kept])))
    assert np.median(np.abs(coarse.astype(jnp.float32) - exact)[kept]) < 0.05 * typical
