"""The model without latent and short convolutions is Marin's Snowball: Levanter's own implementation must agree.

Both get the same weights; hidden states and the gradient of every weight are compared.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding

from steps.model.attention import AttentionWeights
from steps.model.config import ModelConfig
from steps.model.moe.layer import MoEWeights
from steps.model.norm import GatedNorm
from steps.model.transformer import Layer, Params, RouterState, forward

CONFIG = ModelConfig(
    vocab_size=64, hidden=48, num_layers=5, num_heads=4, head_dim=16, num_kv_heads=2, num_global_kv_heads=2, window=8,
    sequence_length=32, num_experts=8, top_k=2, expert_width=24, latent=None, num_shared_experts=1, shared_width=40,
    gated_norm_rank=128, conv_kernel=0, capacity_factor=8.0,
)  # fmt: skip
BATCH = 2
GRUG_AXES = ("replica_dcn", "data", "context", "expert", "model")


def ours(model) -> tuple[Params, RouterState]:
    """The arrays of a `SnowballTransformer` (or of its gradient) in our layout."""

    def norm(rms, gate) -> GatedNorm:
        return GatedNorm(gain=rms.weight, gate_down=gate.w_down, gate_up=gate.w_up)

    def layer(block) -> Layer:
        return Layer(
            attention_norm=norm(block.rms_attn, block.attn_gated_norm),
            attention=AttentionWeights(
                query=block.attn.w_q,
                key=block.attn.w_k,
                value=block.attn.w_v,
                output=block.attn.w_o,
                head_gate=block.attn.attn_gate,
                key_conv=None,
            ),
            attention_conv=None,
            moe_norm=norm(block.rms_mlp, block.mlp_gated_norm),
            moe=MoEWeights(
                router=block.mlp.router,
                latent_down=None,
                latent_norm=None,
                latent_up=None,
                w_gate_up=np.concatenate([block.mlp.expert_mlp.w_gate, block.mlp.expert_mlp.w_up], axis=-1),
                w_down=block.mlp.expert_mlp.w_down,
                shared_gate_up=np.concatenate([block.shared.w_gate, block.shared.w_up], axis=-1),
                shared_down=block.shared.w_down,
            ),
            moe_conv=None,
        )

    model = jax.tree.map(np.asarray, model)
    params = Params(
        embedding=model.token_embed,
        embedding_norm=norm(model.embed_norm, model.embed_gated_norm),
        layers=jax.tree.map(lambda *stack: np.stack(stack), *[layer(block) for block in model.blocks]),
        final_norm=norm(model.final_norm, model.final_gated_norm),
        lm_head=model.output_proj,
    )
    return params, RouterState(bias=np.stack([block.mlp.router_bias for block in model.blocks]))


@pytest.fixture(scope="module")
def tokens() -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).integers(0, CONFIG.vocab_size, (BATCH, CONFIG.sequence_length)))


@pytest.fixture(scope="module")
def cotangent() -> jax.Array:
    shape = (BATCH, CONFIG.sequence_length, CONFIG.hidden)
    return jnp.asarray(np.random.default_rng(1).standard_normal(shape), jnp.float32)


@pytest.fixture(scope="module")
def snowball(tokens: jax.Array, cotangent: jax.Array):
    """A Snowball of random arrays (none at its start), its hidden states, and its gradient against `cotangent`."""
    from levanter.grug.attention import AttentionMask
    from levanter.models.snowball import SnowballConfig, SnowballTransformer

    config = SnowballConfig(
        vocab_size=CONFIG.vocab_size,
        hidden_dim=CONFIG.hidden,
        intermediate_dim=CONFIG.expert_width,
        shared_expert_intermediate_dim=CONFIG.shared_width,
        num_experts=CONFIG.num_experts,
        num_experts_per_token=CONFIG.top_k,
        num_layers=CONFIG.num_layers,
        num_heads=CONFIG.num_heads,
        num_kv_heads=CONFIG.num_kv_heads,
        head_dim=CONFIG.head_dim,
        max_seq_len=CONFIG.sequence_length,
        sliding_window=CONFIG.window,
        qk_mult=CONFIG.qk_mult,
        initializer_std=CONFIG.initializer_std,
    )
    mesh = Mesh(np.array(jax.devices()[:1]).reshape(1, 1, 1, 1, 1), GRUG_AXES, axis_types=(AxisType.Explicit,) * 5)
    with jax.set_mesh(mesh):
        rng = np.random.default_rng(2)

        def draw(leaf: jax.ShapeDtypeStruct) -> jax.Array:
            values = (0.15 * rng.standard_normal(leaf.shape)).astype(np.float32)
            return jax.device_put(values, NamedSharding(mesh, leaf.sharding.spec))

        model = jax.tree.map(draw, jax.eval_shape(lambda: SnowballTransformer.init(config, key=jax.random.key(0))))

        def run(model):
            hidden = model(tokens, AttentionMask.causal())
            return jnp.sum(jax.reshard(hidden, jax.P()) * cotangent), hidden

        (_, hidden), gradient = jax.jit(jax.value_and_grad(run, has_aux=True))(model)
    return model, np.asarray(hidden), gradient


def test_hidden_states_and_gradients(snowball, tokens: jax.Array, cotangent: jax.Array):
    model, expected, gradient = snowball
    params, state = ours(model)
    assert sum(leaf.size for leaf in jax.tree.leaves((params, state))) == CONFIG.parameters_total
    mesh = Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("data", "expert"), axis_types=(AxisType.Auto,) * 2)
    segments = jnp.zeros_like(tokens)

    def run(params: Params) -> tuple[jax.Array, jax.Array]:
        hidden, _ = forward(params, state, tokens, segments, CONFIG, mesh)
        return jnp.sum(hidden * cotangent), hidden

    (_, hidden), grads = jax.jit(jax.value_and_grad(run, has_aux=True))(params)
    np.testing.assert_allclose(hidden, expected, atol=2e-5 * np.max(np.abs(expected)))
    wanted, _ = ours(gradient)
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(wanted), jax.tree.leaves(grads), strict=True):
        name, scale = jax.tree_util.keystr(path), np.max(np.abs(a))
        assert scale > 0 or name == ".lm_head", name
        np.testing.assert_allclose(b, a, atol=5e-5 * scale, err_msg=name)


@pytest.mark.parametrize("change", [{"global_every": 3}, {"window": 4}], ids=str)
def test_the_comparison_would_notice(snowball, tokens: jax.Array, change: dict):
    model, expected, _ = snowball
    params, state = ours(model)
    mesh = Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("data", "expert"), axis_types=(AxisType.Auto,) * 2)
    other = dataclasses.replace(CONFIG, **change)
    hidden, _ = jax.jit(lambda p: forward(p, state, tokens, jnp.zeros_like(tokens), other, mesh))(params)
    assert np.max(np.abs(hidden - expected)) > 1e-2
