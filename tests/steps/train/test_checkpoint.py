"""A checkpoint restored on other numbers of devices: every array bit for bit, optimizer state and router bias too."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from steps.model.config import ModelConfig
from steps.train.checkpoint import RunCheckpoints, restore
from steps.train.config import MomentsConfig
from steps.train.history import History
from steps.train.optimizer import build_optimizer
from steps.train.state import init_state, make_mesh, state_shapes

MODEL = ModelConfig.of_family(
    hidden=16, num_layers=2, vocab_size=32, head_dim=8, num_experts=8, top_k=2, window=16, sequence_length=32,
    gated_norm_rank=4, expert_parallel=8,
)  # fmt: skip


def bits(state):
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(state)}


def local_shards(state):
    """What the first device holds of every array."""
    leaves = jax.tree_util.tree_leaves_with_path(state)
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): leaf.addressable_shards[0].data for path, leaf in leaves
    }


def test_saved_at_eight_and_restored_at_four_two_one_and_back(tmp_path):
    """Each restored state is saved again from where it lies, so the way back is walked as well."""
    optimizer = build_optimizer(MomentsConfig())
    state = init_state(MODEL, optimizer, 0, make_mesh(MODEL))
    state = jax.tree.map(lambda leaf: leaf + jnp.cos(jnp.arange(leaf.size, dtype=leaf.dtype)).reshape(leaf.shape)
                         if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf + 3, state)  # fmt: skip
    expected, histories = bits(state), History().to_json({})
    assert any("router" in name for name in expected) and any("optimizer" in name for name in expected)
    assert all(np.any(array) for array in expected.values()), "nothing is zero, which a lost array would be"
    for number, degree in enumerate((8, 4, 2, 1, 2, 8)):
        checkpoints = RunCheckpoints(str(tmp_path / str(number)), 1e9, lambda step, part: None)
        checkpoints.save_permanent(state, 1, histories)
        checkpoints.finish()
        config = dataclasses.replace(MODEL, expert_parallel=degree)
        like = state_shapes(config, optimizer, make_mesh(config))
        state, _ = restore(str(tmp_path / str(number) / "checkpoints" / "step-1"), like)
        held = {shard.shape[1] for name, shard in local_shards(state).items() if name.endswith("w_gate_up")}
        assert held == {MODEL.num_experts // degree}, "experts of one device, in parameters and moments"
        found = bits(state)
        assert found.keys() == expected.keys()
        assert [name for name in expected if found[name].tobytes() != expected[name].tobytes()] == [], f"at {degree}"
