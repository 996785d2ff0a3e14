"""Every transport on one plan: the same assignments, the same sums, the same gradients; with and without drops.

`dense` is what the others are held against: it moves nothing and works on everything, in float64. `ragged` runs here
under `emulated`, which does what the collective's documentation says, since XLA has it on GPUs only.
"""

import dataclasses
import functools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from steps.model.moe.dispatch import movement, waves
from steps.model.moe.dispatch.assigned import Assigned
from steps.model.moe.dispatch.choice import choose
from steps.model.moe.dispatch.groups import sort_by_expert
from steps.model.moe.dispatch.waves import Cells
from steps.model.moe.plan import Limits, make_plan
from steps.model.moe.routed import routed_experts

QUICK_TO_COMPILE = {"xla_backend_optimization_level": 0}
WIDTH, EXPERT_WIDTH, TOP_K = 6, 5, 3

slow = pytest.mark.slow


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """Tokens of all devices with their experts; `lean` pushes all of a device's tokens to the same experts."""

    tokens: np.ndarray
    valid: np.ndarray
    experts: np.ndarray
    weights: np.ndarray
    w_gate_up: np.ndarray
    w_down: np.ndarray
    cotangent: np.ndarray


def top_k_of(num_experts: int) -> int:
    """Of two experts one: with both there is nothing to drop."""
    return min(TOP_K, num_experts - 1)


def make(num_experts: int, num_devices: int, *, tokens_per_device: int = 12, lean: float = 2.0, seed: int = 0) -> Case:
    generator = np.random.default_rng(seed)
    num_tokens = tokens_per_device * num_devices
    logits = generator.normal(size=(num_devices, tokens_per_device, num_experts))
    logits = logits + lean * generator.normal(size=(num_devices, 1, num_experts))
    experts = np.argsort(-logits.reshape(num_tokens, num_experts), axis=1)[:, : top_k_of(num_experts)]
    valid = generator.random(num_tokens) > 0.2
    valid[:tokens_per_device] &= num_devices == 1  # a device without a token
    return Case(
        tokens=np.where(valid[:, None], generator.normal(size=(num_tokens, WIDTH)), 0),
        valid=valid,
        experts=experts.astype(np.int32),
        weights=generator.random(experts.shape),
        w_gate_up=0.5 * generator.normal(size=(num_experts, WIDTH, 2 * EXPERT_WIDTH)),
        w_down=0.5 * generator.normal(size=(num_experts, EXPERT_WIDTH, WIDTH)),
        cotangent=generator.normal(size=(num_tokens, WIDTH)),
    )


def run(transport: str, case: Case, limits: Limits, make_mesh, dtype: str = "float32"):
    """(output, accepted [S, E], gradients by tokens, weights, w_gate_up, w_down) as numpy."""
    program = compiled(transport, limits, make_mesh(1, limits.num_devices), str(movement.UNUSED))
    real = (jnp.asarray(one, dtype) for one in (case.tokens, case.weights, case.w_gate_up, case.w_down, case.cotangent))
    (_, (out, accepted)), gradients = program(*real, case.experts, case.valid)
    return jax.tree.map(lambda one: np.asarray(one, np.float64), (out, accepted, *gradients))


@functools.cache
def compiled(transport: str, limits: Limits, mesh, unused: str):
    def on_device(tokens, weights, w_gate_up, w_down, experts, valid):
        out, plan, _ = routed_experts(
            tokens, valid, experts, weights, w_gate_up, w_down, limits=limits, transport=transport
        )
        return out, plan.accepted

    def loss(tokens, weights, w_gate_up, w_down, cotangent, experts, valid):
        over = P(("data", "expert"))
        out, accepted = jax.shard_map(
            on_device, mesh=mesh, in_specs=(over, over, P("expert"), P("expert"), over, over), out_specs=(over, P()),
            check_vma=False,
        )(tokens, weights, w_gate_up, w_down, experts, valid)  # fmt: skip
        return jnp.sum(out * cotangent), (out, accepted)

    return jax.jit(jax.value_and_grad(loss, (0, 1, 2, 3), has_aux=True), compiler_options=QUICK_TO_COMPILE)


def emulated(operand, output, input_offsets, send_sizes, output_offsets, recv_sizes, *, axis_name):
    """Rows [input_offset, + send_size) of each sender come to lie from its output_offset on."""
    me = jax.lax.axis_index(axis_name)
    rows, starts, sizes, targets = (
        jax.lax.all_gather(one, axis_name) for one in (operand, input_offsets, send_sizes, output_offsets)
    )
    place = jnp.arange(output.shape[0])
    for sender in range(rows.shape[0]):
        source = place - targets[sender, me]
        here = (source >= 0) & (source < sizes[sender, me])
        row = rows[sender][jnp.clip(starts[sender, me] + source, 0, rows.shape[1] - 1)]
        output = jnp.where(here[:, None], row, output)
    return output


@pytest.fixture(autouse=True)
def _emulate_ragged(monkeypatch):
    monkeypatch.setattr(jax.lax, "ragged_all_to_all", emulated)


def limited(num_experts: int, num_devices: int, capacity: float | None, pair: float | None, tokens: int = 12) -> Limits:
    return Limits.relative(
        assignments=tokens * top_k_of(num_experts), num_devices=num_devices, num_experts=num_experts, capacity=capacity,
        pair_capacity=pair,
    )  # fmt: skip


CASES = [
    pytest.param("waves", 4, 3, None, None, id="waves, nothing dropped"),
    pytest.param("waves", 4, 3, 1.0, 0.9, id="waves, both limits"),
    pytest.param("ring", 4, 3, 1.0, None, id="ring, device limit"),
    pytest.param("ragged", 4, 3, 1.0, 1.2, id="ragged, both limits"),
    *(
        pytest.param(transport, devices, local, capacity, pair, marks=slow)
        for transport in ("waves", "ring", "ragged")
        for devices in (2, 4, 8)
        for local in (1, 3, 6)
        for capacity, pair in ((None, None), (0.4, None), (1.1, 0.8))  # a device has no tokens: 0.4 is tight
    ),
]


@pytest.mark.parametrize("transport, devices, local, capacity, pair", CASES)
def test_every_transport_moves_what_the_plan_says(transport, devices, local, capacity, pair, make_mesh, poisoned):
    case = make(devices * local, devices)
    limits = limited(devices * local, devices, capacity, pair)
    wanted = run("dense", case, limits, make_mesh)
    found = run(transport, case, limits, make_mesh)
    np.testing.assert_array_equal(found[1], wanted[1])
    assert (capacity is None) == (np.sum(wanted[1]) == case.experts.shape[1] * np.sum(case.valid)), (
        "drops where there are limits"
    )
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, atol=3e-6 * np.max(np.abs(other)), rtol=0)


@pytest.mark.parametrize("devices", [pytest.param(2), pytest.param(8, marks=slow)])
def test_all_rows_to_one_device_are_carried_by_further_waves(devices, make_mesh, poisoned):
    case = make(3 * devices, devices)
    case = dataclasses.replace(case, experts=np.tile(np.arange(TOP_K, dtype=np.int32), (len(case.tokens), 1)))
    limits = limited(3 * devices, devices, None, None)
    cells = Cells.of(12 * TOP_K, limits)
    assert cells.first + cells.further < cells.longest <= cells.first + cells.most * cells.further
    for one, other in zip(run("waves", case, limits, make_mesh), run("dense", case, limits, make_mesh), strict=True):
        np.testing.assert_allclose(one, other, atol=3e-6 * np.max(np.abs(other)), rtol=0)


def test_further_waves_are_as_many_as_the_plan_needs(make_mesh, monkeypatch):
    """No more than the fullest pair asks for, none where the first cell is enough: a loop that ran is counted."""
    limits = limited(8, 4, None, None)

    def number(experts):
        counts = jnp.stack([sort_by_expert(one, jnp.ones(12, bool), 8).counts for one in experts.reshape(4, 12, TOP_K)])
        assigned = Assigned(
            order=sort_by_expert(experts[:12], jnp.ones(12, bool), 8), plan=make_plan(counts, limits),
            experts=experts[:12], limits=limits, tile=16, axis="expert",
        )  # fmt: skip
        return int(waves._num_further(Cells.of(12 * TOP_K, limits), assigned))

    even = jnp.asarray([[(t + 3 * j) % 8 for j in range(TOP_K)] for t in range(48)], jnp.int32)
    assert number(even) == 0
    cells = Cells.of(12 * TOP_K, limits)
    assert (cells.first, cells.further) == (12, 3)
    one_sided = jnp.asarray([[j for j in range(TOP_K)] for _ in range(48)], jnp.int32)  # 24 rows of each to device 0
    assert number(one_sided) == 4
    assert cells.most == 8


def test_a_pair_limit_that_fits_the_first_cell_leaves_the_loop_out():
    assert Cells.of(12 * TOP_K, limited(8, 4, None, 1.25)).most == 0
    assert Cells.of(12 * TOP_K, limited(8, 4, None, 1.4)).most == 0, "a little above the first cell: one wave is better"
    assert Cells.of(12 * TOP_K, limited(8, 4, None, 3.0)).most > 0


@pytest.mark.parametrize(
    "asked, platform, devices, capacity, chosen",
    [
        ("auto", "cpu", 4, 1.25, "waves"),
        ("auto", "tpu", 2, 1.25, "ring"),
        ("auto", "tpu", 2, None, "ring"),  # all rows of both devices are twice an even load
        ("auto", "tpu", 3, None, "waves"),  # a ring's buffers would hold three times an even load
        ("auto", "gpu", 4, None, "ragged"),
        ("auto", "gpu", 1, None, "local"),
        ("ring", "cpu", 4, None, "ring"),
        ("dense", "cpu", 1, None, "dense"),
    ],
)
def test_which_transport_runs(asked, platform, devices, capacity, chosen):
    assert choose(asked, platform, limited(8, devices, capacity, None), tokens=12, top_k=TOP_K) == chosen


@pytest.mark.parametrize(
    "asked, platform, devices, words",
    [("ragged", "cpu", 4, "use 'waves'"), ("waves", "cpu", 1, "use 'auto'"), ("local", "gpu", 4, "use 'auto'")],
)
def test_a_transport_that_cannot_run_names_one_that_can(asked, platform, devices, words):
    with pytest.raises(ValueError, match=words):
        choose(asked, platform, limited(8, devices, None, None), tokens=12, top_k=TOP_K)


@pytest.mark.parametrize("pair, further", [(1.0, False), pytest.param(None, True, marks=slow)])
def test_bytes_on_the_wire_are_those_of_the_formula(pair, further, make_mesh):
    """docs/moe.md: an all-to-all carries S * P rows of l elements, twice forward and twice backward; a further wave,
    whose cells are smaller, six times, as the backward pass goes there and back again for what it did not keep."""
    devices, case = 4, make(8, 4)
    limits = limited(8, devices, None, pair)
    cells = Cells.of(12 * TOP_K, limits)
    text = program_text("waves", case, limits, make_mesh(1, devices))
    first, more = devices * cells.first * WIDTH * 4, devices * cells.further * WIDTH * 4
    assert result_bytes("all-to-all", text) == sorted([first] * 4 + [more] * 6 * further)
    assert (cells.most > 0) == further


def test_bytes_of_the_ring_are_those_of_the_formula(make_mesh):
    """docs/moe.md: every device receives the rows of all S*T tokens and sends back S*T sums, forward and backward."""
    devices, tokens, case = 4, 12, make(8, 4)
    text = program_text("ring", case, limited(8, devices, 1.0, None), make_mesh(1, devices))
    rows, weights = tokens * WIDTH * 4, tokens * TOP_K * 4
    assert result_bytes("all-gather", text) == sorted([devices * rows] * 2 + [devices * weights])
    assert result_bytes("reduce-scatter", text) == sorted([rows] * 2 + [weights])
    assert result_bytes("all-to-all", text) == []


def program_text(transport: str, case: Case, limits: Limits, mesh) -> str:
    real = [
        jnp.asarray(one, "float32") for one in (case.tokens, case.weights, case.w_gate_up, case.w_down, case.cotangent)
    ]
    program = compiled(transport, limits, mesh, str(movement.UNUSED))
    return program.lower(*real, case.experts, case.valid).compile().as_text()


def result_bytes(collective: str, text: str) -> list[int]:
    """Of every collective of a kind that carries numbers, the bytes of what comes out on one device."""
    found = (
        sum(4 * math.prod(map(int, size.split(","))) for size in re.findall(r"f32\[([0-9,]+)\]", shapes))
        for shapes in re.findall(rf"= (.*?) {collective}\(", text)
    )
    return sorted(size for size in found if size)


def test_ragged_lowers_for_gpus(monkeypatch):
    monkeypatch.undo()
    case, limits = make(4, 2), limited(4, 2, 1.0, None)
    mesh = jax.make_mesh((1, 2), ("data", "expert"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    real = [
        jnp.asarray(one, "float32") for one in (case.tokens, case.weights, case.w_gate_up, case.w_down, case.cotangent)
    ]
    program = compiled.__wrapped__("ragged", limits, mesh, "")
    text = program.trace(*real, case.experts, case.valid).lower(lowering_platforms=("cuda",)).as_text()
    assert text.count("ragged_all_to_all") >= 4, "there and back, forward and backward"
