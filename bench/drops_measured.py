"""Drops of the real layer on 8 virtual devices, with as many documents a device as the hero has at each length."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from steps.model.moe.plan import Limits
from steps.model.moe.routed import routed_experts
from steps.model.moe.shuffle import collect, deal_out

DEVICES, EXPERTS, TOP_K, TOKENS, WIDTH = 8, 48, 8, 2048, 16
CAPACITY = 1.15
DOCUMENTS = (16, 4, 1)


def measured(lean: float) -> Iterator[dict[str, Any]]:
    """One row a policy and number of documents; `context` is the tokens of a document here."""
    mesh = jax.make_mesh((1, DEVICES), ("data", "expert"), axis_types=(AxisType.Explicit,) * 2)
    for documents in DOCUMENTS:
        experts = _routing(documents, lean)
        for policy, run in _policies(mesh).items():
            yield {
                "kind": f"measured on {DEVICES} devices of {TOKENS} tokens",
                "policy": policy,
                "context": TOKENS // documents,
                "drop_percent": round(100 * run(experts) / experts.size, 3),
            }


def _routing(documents: int, lean: float) -> np.ndarray:
    generator = np.random.default_rng(0)
    shared = lean * generator.normal(size=(DEVICES * documents, 1, EXPERTS))
    logits = shared + generator.normal(size=(DEVICES * documents, TOKENS // documents, EXPERTS))
    return np.argsort(-logits.reshape(-1, EXPERTS), axis=1)[:, :TOP_K].astype(np.int32)


def _policies(mesh: jax.sharding.Mesh) -> dict[str, Any]:
    spread = NamedSharding(mesh, P("expert"))
    generator = np.random.default_rng(1)

    def put(*size: int) -> jax.Array:
        return jax.device_put(jnp.asarray(generator.normal(size=size), jnp.float32), spread)

    tokens, weights = put(DEVICES * TOKENS, WIDTH), put(DEVICES * TOKENS, TOP_K)
    w_gate_up, w_down = put(EXPERTS, WIDTH, 2 * WIDTH), put(EXPERTS, WIDTH, WIDTH)

    def levanter(experts: np.ndarray) -> int:
        from levanter.grug.grug_moe import moe_mlp

        _, counts = jax.jit(
            lambda experts: moe_mlp(
                tokens,
                experts,
                weights,
                w_gate_up,
                w_down,
                implementation="fixed_pooled_wave_all_to_all",
                mesh=mesh,
                capacity_factor=CAPACITY,
                pooled_transport_capacity_factor=CAPACITY,
                report_capacity_overflow=True,
            )
        )(jax.device_put(experts, spread))
        return int(counts.sender_dropped) + int(counts.receiver_dropped)

    def ours(pair_capacity: float | None, dealt: bool) -> Any:
        limits = Limits.relative(
            assignments=TOKENS * TOP_K,
            num_devices=DEVICES,
            num_experts=EXPERTS,
            capacity=CAPACITY,
            pair_capacity=pair_capacity,
        )

        def on_device(tokens, weights, w_gate_up, w_down, experts):
            if dealt:
                tokens, weights, experts = (deal_out(one, "expert") for one in (tokens, weights, experts))
            valid = jnp.ones(len(tokens), bool)
            out, plan, _ = routed_experts(
                tokens, valid, experts, weights, w_gate_up, w_down, limits=limits, transport="waves"
            )
            return collect(out, "expert") if dealt else out, jnp.sum(plan.wanted - plan.accepted)

        program = jax.jit(
            jax.shard_map(
                on_device, mesh=mesh, in_specs=(P("expert"),) * 5, out_specs=(P("expert"), P()), check_vma=False
            )
        )
        return lambda experts: int(program(tokens, weights, w_gate_up, w_down, jax.device_put(experts, spread))[1])

    return {
        f"levanter, pooled wave, {CAPACITY}": levanter,
        f"ours: per device, pooled, {CAPACITY}": ours(None, False),
        f"ours, and per pair {CAPACITY}": ours(CAPACITY, False),
        f"ours, and per pair {CAPACITY}, tokens dealt out": ours(CAPACITY, True),
    }
