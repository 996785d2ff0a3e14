"""What a training run needs and takes on a machine, before anything runs. Pure arithmetic.

    estimate(model, steps=390_251, batch_size=11_264, machine=machine, gang=machine.gang(racks=11))
    {"devices": 704, "memory_per_device_bytes": ..., "step_seconds": 16.8, "days": 75.8, ...}

Time is FLOPs over peak times MFU: the MFU is a measured figure of the real run, not a prediction. Memory and bytes on
the wire follow from shapes, for the layout of the real run: dense weights spread over a rack, optimizer state and
carries on the host. The training step of this project replicates dense weights and offloads nothing yet. Left out: what
compiler and communication libraries reserve, fragmentation, evaluation, checkpoints, restarts, the input pipeline, and
that the expert exchange partly hides behind compute.
"""

import dataclasses
from typing import TypedDict

from infra.topology import Gang, Machine
from steps.model.config import ModelConfig

HERO_MFU = 0.234
"""Of 2.5e15 FLOP/s a GPU: derived from 16.8 s a step after the exchange was replaced (marin #8506: 20.5 -> 23.3%)."""

LAUNCH_MFU = 0.212
"""The same at the launch's 18.5 s a step (derived; the status log says 20.5 to 21%)."""

RUNG_MFU = 0.136
"""Median of the d2048 rung (docs/hero.md); the narrower rungs were not published."""

LAPTOP_MFU = 0.17
"""Of the matmul rate of two cores: 30 to 36 of about 190 GFLOP/s, measured with the laptop hero."""

TOKEN_WIDE_BUFFERS = 16
"""Arrays of [tokens, hidden] in the working set of one layer: two norms and their gates, attention in and out, XSA,
gated heads, convolutions, shared experts, residuals. A stated rule, counted off the layer's code, not measured."""

LOGIT_BLOCK = 4096
"""Vocabulary entries that the fused loss holds at a time."""

SECONDS_PER_DAY = 86_400


@dataclasses.dataclass(frozen=True, kw_only=True)
class Precision:
    """Bytes an element, and what stays on the device.

    The defaults are the real run's after step 81,716: fp32 parameters on the device, bf16 compute, optimizer state on
    the host, carries between layers offloaded (`offload_carry`). At launch parameters were bf16, with an fp32 master
    on the host.
    """

    parameter_bytes: int = 4
    gradient_bytes: int = 4
    compute_bytes: int = 2
    optimizer_bytes: int = 8
    offload_optimizer: bool = True
    offload_carry: bool = True


HERO = Precision()
LAUNCH = Precision(parameter_bytes=2, gradient_bytes=2, offload_carry=False)
LAPTOP = Precision(compute_bytes=4, offload_optimizer=False, offload_carry=False)


class RunEstimate(TypedDict):
    """Bytes on the wire are sent, one way, by one device in one optimizer step."""

    devices: int
    memory_per_device_bytes: int
    wire_bytes_per_device: int
    step_seconds: float
    days: float
    device_hours: float


def estimate(
    model: ModelConfig,
    *,
    steps: int,
    batch_size: int,
    machine: Machine,
    gang: Gang,
    precision: Precision = HERO,
    mfu: float = HERO_MFU,
) -> RunEstimate:
    """Devices, memory, wire, time of `steps` optimizer steps of `batch_size` sequences.

    Raises:
        ValueError: the expert axis does not fit a rack, or a batch does not divide over the devices.
    """
    machine.check_expert_axis(gang, model.expert_parallel)
    if batch_size % gang.devices:
        raise ValueError(
            f"a batch is spread evenly: batch_size({batch_size}) % devices({gang.devices}) = "
            f"{batch_size % gang.devices}, expected 0; {gang.equation}"
        )
    tokens_per_step = batch_size * model.sequence_length
    flops_per_step = model.training_flops(tokens_per_step)
    step_seconds = flops_per_step / (gang.devices * machine.peak_flops_per_device * mfu)
    tokens_per_device = tokens_per_step // gang.devices
    return RunEstimate(
        devices=gang.devices,
        memory_per_device_bytes=sum(memory_parts(model, gang, tokens_per_device, precision).values()),
        wire_bytes_per_device=sum(wire_parts(model, gang, tokens_per_device, precision).values()),
        step_seconds=step_seconds,
        days=steps * step_seconds / SECONDS_PER_DAY,
        device_hours=steps * step_seconds / 3600 * gang.devices,
    )


def memory_parts(model: ModelConfig, gang: Gang, tokens_per_device: int, precision: Precision) -> dict[str, int]:
    """Bytes on one device, by what they hold.

    Experts are spread over the expert axis, the embedding is whole on every device, everything else is spread over
    the devices of a rack. Activations: every layer's input is kept (unless offloaded) and one layer is recomputed at
    a time, whose arrays count twice, once as values and once as cotangents.
    """
    elements = _elements_per_device(model, gang)
    experts_per_layer = elements["experts"] // model.num_layers
    carry = tokens_per_device * model.hidden * precision.compute_bytes
    optimizer = 0 if precision.offload_optimizer else precision.optimizer_bytes
    rows = expert_rows(model, tokens_per_device)
    row_elements = 2 * model.expert_input + 3 * model.expert_width
    dense_layer = (model.parameters_total - _table(model) - model.parameters_by_part["experts"]) // model.num_layers
    return {
        "parameters": precision.parameter_bytes * sum(elements.values()),
        "gradients": precision.gradient_bytes * sum(elements.values()),
        "optimizer": optimizer * sum(elements.values()),
        "carries": carry if precision.offload_carry else carry * model.num_layers,
        "layer_weights": precision.compute_bytes * (dense_layer + experts_per_layer),
        "layer_tokens": 2 * TOKEN_WIDE_BUFFERS * carry,
        "layer_experts": 2 * rows * row_elements * precision.compute_bytes,
        "logits": 2 * 4 * tokens_per_device * min(LOGIT_BLOCK, model.vocab_size),
    }


def wire_parts(model: ModelConfig, gang: Gang, tokens_per_device: int, precision: Precision) -> dict[str, int]:
    """Bytes one device sends in one optimizer step, by why.

    The exchange goes out and back in the forward pass, in its recomputation and in the backward pass, without
    capacity padding. Dense weights are gathered over the rack for each of three passes less one and their gradients
    scattered; between racks gradients are all-reduced in a ring.
    """
    elements = _elements_per_device(model, gang)
    ranks = gang.devices_per_group
    dense_gathered = elements["dense"] * (ranks - 1)
    between = 2 * (gang.groups - 1) * sum(elements.values()) // gang.groups
    return {
        "exchange": 6 * model.num_layers * tokens_per_device * exchange_bytes_per_token(model, precision.compute_bytes),
        "gather_dense": 2 * dense_gathered * precision.compute_bytes,
        "scatter_dense": dense_gathered * precision.gradient_bytes,
        "between_racks": between * precision.gradient_bytes,
    }


def exchange_bytes_per_token(model: ModelConfig, bytes_per_element: int = 2) -> int:
    """Bytes a token puts on the wire in one direction of one layer: K l bytes (S - 1)/S, S the expert degree.

    What stays on its own device is not sent. The hero: 48,384 (48.4 KB).
    """
    whole = model.top_k * model.expert_input * bytes_per_element
    return whole * (model.expert_parallel - 1) // model.expert_parallel


def expert_rows(model: ModelConfig, tokens_per_device: int) -> int:
    """Rows that the experts of one device have room for: ceil(capacity factor * tokens * K).

    Without a limit every device may receive everything, so the even load is counted.
    """
    rows = tokens_per_device * model.top_k * (model.capacity_factor or 1.0)
    return -int(-rows // 1)


def _elements_per_device(model: ModelConfig, gang: Gang) -> dict[str, int]:
    parts = model.parameters_by_part
    dense = model.parameters_total - parts["experts"] - parts["embedding"]
    return {
        "experts": parts["experts"] // model.expert_parallel,
        "embedding": parts["embedding"],
        "dense": dense // gang.devices_per_group,
    }


def _table(model: ModelConfig) -> int:
    parts = model.parameters_by_part
    return parts["embedding"] + parts["lm_head"]
