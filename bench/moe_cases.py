"""What the MoE benchmark runs: shapes, a correlated routing, and each implementation as one compiled program."""

import collections
import dataclasses
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from steps.model.config import Transport
from steps.model.moe.plan import Limits
from steps.model.moe.routed import routed_experts

CAPACITY = 1.25
DEVICES = next(count for count in (8, 4, 2, 1) if count <= jax.device_count())
COMBINE_SCALE = 2.5
LEAN = 0.7
"""How much the tokens of one device lean the same way: standard deviations of the logit they share."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shape:
    """T tokens of all devices, D width that experts work at, I expert width, E experts, K experts per token."""

    name: str
    tokens: int
    width: int
    expert_width: int
    experts: int = 48
    top_k: int = 8


SHAPES = {
    "A": Shape(name="A", tokens=2048, width=128, expert_width=128),
    "B": Shape(name="B", tokens=4096, width=256, expert_width=256),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One shape with its numbers, spread over the devices as the layer wants them."""

    shape: Shape
    dtype: str
    mesh: jax.sharding.Mesh
    tokens: jax.Array
    experts: jax.Array
    weights: jax.Array
    w_gate_up: jax.Array
    w_down: jax.Array
    cotangent: jax.Array


def make_case(shape: Shape, dtype: str) -> Case:
    """Logits are a standard normal for each token and expert and `LEAN` times one for each device and expert."""
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(shape.tokens, shape.experts))
    shared = generator.normal(size=(DEVICES, 1, shape.experts))
    logits = (logits.reshape(DEVICES, -1, shape.experts) + LEAN * shared).reshape(shape.tokens, shape.experts)
    experts = np.argsort(-logits, axis=1, kind="stable")[:, : shape.top_k]
    weights = 1 / (1 + np.exp(-np.take_along_axis(logits, experts, axis=1)))
    weights = COMBINE_SCALE * weights / weights.sum(axis=1, keepdims=True)

    def draw(*size: int) -> np.ndarray:
        return generator.normal(size=size) / np.sqrt(size[-2] if len(size) > 2 else 1)

    mesh = jax.make_mesh((1, DEVICES), ("data", "expert"), axis_types=(AxisType.Explicit,) * 2)
    spread = NamedSharding(mesh, P("expert"))

    def put(array: np.ndarray, kind: str) -> jax.Array:
        return jax.device_put(jnp.asarray(array, kind), spread)

    return Case(
        shape=shape,
        dtype=dtype,
        mesh=mesh,
        tokens=put(draw(shape.tokens, shape.width), dtype),
        experts=put(experts, "int32"),
        weights=put(weights, "float32"),
        w_gate_up=put(draw(shape.experts, shape.width, 2 * shape.expert_width), dtype),
        w_down=put(draw(shape.experts, shape.expert_width, shape.width), dtype),
        cotangent=put(draw(shape.tokens, shape.width), dtype),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compiled:
    """One implementation, ready to run: forward and backward, every gradient."""

    assignments: int
    arguments: tuple[jax.Array, ...]
    program: Any

    def run(self) -> tuple[Any, Any]:
        """((loss, dropped assignments), gradients)."""
        return jax.block_until_ready(self.program(*self.arguments))

    def facts(self) -> dict[str, Any]:
        """Drops, and what the compiled program holds and moves on one device."""
        (_, dropped), _ = self.run()
        return {
            "drop_fraction": round(int(dropped) / self.assignments, 6),
            "temp_bytes": int(self.program.memory_analysis().temp_size_in_bytes),
            **operations(self.program.as_text()),
        }


def compiled(case: Case, name: str) -> Compiled:
    layer, arguments = IMPLEMENTATIONS[name](case)

    def loss(differentiated, others, cotangent):
        out, dropped = layer(*differentiated, *others)
        return jnp.sum(out.astype(jnp.float32) * cotangent.astype(jnp.float32)), dropped

    def both(differentiated, others, cotangent):
        return jax.value_and_grad(loss, has_aux=True)(differentiated, others, cotangent)

    program = jax.jit(both).lower(*arguments).compile()
    return Compiled(assignments=case.shape.tokens * case.shape.top_k, arguments=arguments, program=program)


def _inputs(case: Case) -> tuple:
    return (case.tokens, case.weights, case.w_gate_up, case.w_down), (case.experts,), case.cotangent


def _floor(case: Case) -> tuple[Callable, tuple]:
    """The matmuls alone, perfectly balanced: T*K/E rows an expert, rounded up, on the device of their expert."""
    shape = case.shape
    rows = -(-shape.tokens * shape.top_k // shape.experts)
    spread = NamedSharding(case.mesh, P("expert"))
    size = (shape.experts, rows, shape.width)
    generator = np.random.default_rng(1)
    grouped, cotangent = (
        jax.device_put(jnp.asarray(generator.normal(size=size), case.dtype), spread) for _ in range(2)
    )

    def on_device(rows, w_gate_up, w_down):
        gate, up = jnp.split(jnp.einsum("erd,edi->eri", rows, w_gate_up), 2, axis=-1)
        return jnp.einsum("eri,eid->erd", jax.nn.silu(gate) * up, w_down)

    def layer(grouped, w_gate_up, w_down):
        specs = (P("expert"),) * 3
        out = jax.shard_map(on_device, mesh=case.mesh, in_specs=specs, out_specs=P("expert"))(
            grouped, w_gate_up, w_down
        )
        return out, jnp.zeros((), jnp.int32)

    return layer, ((grouped, case.w_gate_up, case.w_down), (), cotangent)


def _levanter(implementation: str, waves: int = 1) -> Callable[[Case], tuple[Callable, tuple]]:
    def make(case: Case) -> tuple[Callable, tuple]:
        from levanter.grug.grug_moe import moe_mlp

        def layer(tokens, weights, w_gate_up, w_down, experts):
            out, counts = moe_mlp(
                tokens,
                experts,
                weights,
                w_gate_up,
                w_down,
                implementation=implementation,
                mesh=case.mesh,
                capacity_factor=CAPACITY,
                pooled_transport_capacity_factor=CAPACITY,
                num_expert_waves=waves,
                report_capacity_overflow=True,
            )
            return out, counts.sender_dropped + counts.receiver_dropped

        return layer, _inputs(case)

    return make


def _ours(
    transport: Transport, capacity: float | None, pair_capacity: float | None
) -> Callable[[Case], tuple[Callable, tuple]]:
    def make(case: Case) -> tuple[Callable, tuple]:
        shape = case.shape
        limits = Limits.relative(
            assignments=shape.tokens // DEVICES * shape.top_k,
            num_devices=DEVICES,
            num_experts=shape.experts,
            capacity=capacity,
            pair_capacity=pair_capacity,
        )

        def on_device(tokens, weights, w_gate_up, w_down, experts):
            valid = jnp.ones(tokens.shape[0], bool)
            out, plan, counts = routed_experts(
                tokens, valid, experts, weights, w_gate_up, w_down, limits=limits, transport=transport
            )
            return out, jax.lax.psum(jnp.sum(counts) - jnp.sum(plan.accepted[jax.lax.axis_index("expert")]), "expert")

        def layer(*inputs):
            specs = (P("expert"),) * 5
            return jax.shard_map(
                on_device, mesh=case.mesh, in_specs=specs, out_specs=(P("expert"), P()), check_vma=False
            )(*inputs)

        return layer, _inputs(case)

    return make


_ALONE = {
    "ours:local": _ours("local", None, None),
}
_SPREAD = {
    "levanter:fixed_pooled_wave_all_to_all, 1 wave": _levanter("fixed_pooled_wave_all_to_all"),
    "levanter:fixed_pooled_wave_all_to_all, 3 waves": _levanter("fixed_pooled_wave_all_to_all", 3),
    "levanter:ring": _levanter("ring"),
    "ours:waves, pair limit": _ours("waves", CAPACITY, CAPACITY),
    "ours:waves": _ours("waves", CAPACITY, None),
    "ours:waves, dropless": _ours("waves", None, None),
    "ours:ring": _ours("ring", CAPACITY, None),
}
_ON_GPUS = {
    "levanter:ragged_all_to_all": _levanter("ragged_all_to_all"),
    "ours:ragged": _ours("ragged", CAPACITY, None),
    "ours:ragged, dropless": _ours("ragged", None, None),
}
IMPLEMENTATIONS: dict[str, Callable[[Case], tuple[Callable, tuple]]] = {
    "floor": _floor,
    **(_SPREAD if DEVICES > 1 else _ALONE),
    **(_ON_GPUS if DEVICES > 1 and jax.default_backend() == "gpu" else {}),
}
"""By what this machine has: one device moves nothing, and only GPUs have a ragged all-to-all."""

_COLLECTIVES = ("all-to-all", "all-gather", "all-reduce", "reduce-scatter", "collective-permute")
_TIMES = {"all-reduce": 2, "reduce-scatter": DEVICES}
"""Bytes that a device receives for one of the result; 1 where it is not named."""
_BYTES = {"f32": 4, "bf16": 2, "s32": 4, "u32": 4, "pred": 1, "f64": 8, "s64": 8, "u8": 1, "s8": 1, "f16": 2}
_OPERATION = re.compile(r"= (?P<shapes>\(?[a-z0-9]+\[.*?) (?P<name>[a-z\-]+)(?:-start)?\(")
_ARRAY = re.compile(r"(?P<type>[a-z]+[0-9]*)\[(?P<size>[0-9,]*)\]")


def operations(text: str) -> dict[str, int]:
    """Counts of what moves rows in a compiled program, and the bytes that one device receives, its own among them."""
    counts: collections.Counter[str] = collections.Counter()
    wire = 0
    for line in text.splitlines():
        found = _OPERATION.search(line)
        if found is None:
            continue
        name = found["name"]
        if name in _COLLECTIVES:
            counts["collectives"] += 1
            wire += _TIMES.get(name, 1) * sum(_size(array) for array in _ARRAY.finditer(found["shapes"]))
        elif name in ("gather", "scatter", "sort", "while"):
            counts[name + "s"] += 1
    named = ("collectives", "gathers", "scatters", "sorts", "whiles")
    return {"wire_bytes": wire, **{name: counts[name] for name in named}}


def _size(array: re.Match[str]) -> int:
    sizes = [int(part) for part in array["size"].split(",") if part]
    return int(np.prod(sizes, dtype=np.int64)) * _BYTES.get(array["type"], 0)
