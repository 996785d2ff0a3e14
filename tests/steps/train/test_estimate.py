"""The arithmetic of a run against the public figures of the real one; each tolerance says what it allows for."""

import dataclasses

import pytest

from infra.topology import gb200_nvl72, laptop
from steps.model.config import ModelConfig
from steps.train.estimate import (
    HERO_MFU,
    LAPTOP,
    LAUNCH,
    LAUNCH_MFU,
    RUNG_MFU,
    estimate,
    exchange_bytes_per_token,
    expert_rows,
    memory_parts,
    wire_parts,
)

HERO = ModelConfig.of_family(hidden=6144, num_layers=48, expert_parallel=64)
MACHINE = gb200_nvl72(racks=11)
GANG = MACHINE.gang(racks=11)
STEPS, BATCH = 390_251, 11_264
TOKENS_PER_DEVICE = BATCH * 4096 // 704


def run_at(mfu: float):
    return estimate(HERO, steps=STEPS, batch_size=BATCH, machine=MACHINE, gang=GANG, mfu=mfu)


# MFU is published to three digits, so times agree to about 0.3%.
@pytest.mark.parametrize(("mfu", "seconds", "days"), [(HERO_MFU, 16.8, 75.9), (LAUNCH_MFU, 18.5, 83.6)])
def test_step_time_and_days_of_the_real_run(mfu: float, seconds: float, days: float) -> None:
    found = run_at(mfu)
    assert found["devices"] == 704
    assert found["step_seconds"] == pytest.approx(seconds, rel=0.004)
    assert found["days"] == pytest.approx(days, rel=0.004)
    assert found["device_hours"] == pytest.approx(days * 24 * 704, rel=0.004)


def test_mfu_that_the_published_step_times_imply() -> None:
    flops = HERO.training_flops(BATCH * 4096)
    assert flops / (16.8 * 704 * 2.5e15) == pytest.approx(HERO_MFU, abs=0.0005)
    assert flops / (18.5 * 704 * 2.5e15) == pytest.approx(LAUNCH_MFU, abs=0.0005)


# Peaks published: 137.9 GiB (ragged exchange), 149.9 GiB (pooled waves). The rule counts arrays, not what the compiler
# makes of them: a third either way.
def test_memory_is_of_the_published_order_and_fits() -> None:
    memory = run_at(HERO_MFU)["memory_per_device_bytes"]
    assert memory == pytest.approx(137.9 * 2**30, rel=1 / 3)
    assert memory < MACHINE.memory_bytes_per_device


def test_memory_by_part() -> None:
    parts = memory_parts(HERO, GANG, TOKENS_PER_DEVICE, LAUNCH)
    kept = memory_parts(HERO, GANG, TOKENS_PER_DEVICE, dataclasses.replace(LAUNCH, offload_carry=True))
    assert parts["optimizer"] == 0
    assert parts["carries"] == 48 * kept["carries"] == 48 * TOKENS_PER_DEVICE * 6144 * 2
    experts = 48 * 384 * 3 * 3072 * 3072 // 64
    rest = (HERO.parameters_total - experts * 64 - 128_256 * 6144) // 64
    assert parts["parameters"] == 2 * (experts + 128_256 * 6144 + rest)
    held = memory_parts(HERO, GANG, TOKENS_PER_DEVICE, dataclasses.replace(LAUNCH, offload_optimizer=False))
    assert held["optimizer"] == 4 * parts["parameters"]


def test_one_receive_buffer_is_the_published_one() -> None:
    assert TOKENS_PER_DEVICE == 65_536
    assert expert_rows(HERO, TOKENS_PER_DEVICE) == 602_932
    assert expert_rows(HERO, TOKENS_PER_DEVICE) * 3072 * 2 == pytest.approx(3.7e9, rel=0.01)


def test_wire_per_token_and_layer() -> None:
    per_token = exchange_bytes_per_token(HERO)
    assert per_token == pytest.approx(48.4e3, rel=0.001)
    assert 4 * per_token == pytest.approx(193.5e3, rel=0.001)
    assert exchange_bytes_per_token(dataclasses.replace(HERO, latent=None)) == 2 * per_token
    assert exchange_bytes_per_token(dataclasses.replace(HERO, expert_parallel=1)) == 0


def test_wire_of_one_step() -> None:
    parts = wire_parts(HERO, GANG, TOKENS_PER_DEVICE, LAUNCH)
    assert parts["exchange"] == 6 * 48 * 65_536 * exchange_bytes_per_token(HERO)
    one_rack = wire_parts(HERO, MACHINE.gang(), TOKENS_PER_DEVICE, LAUNCH)
    assert one_rack["between_racks"] == 0
    assert parts["between_racks"] == pytest.approx(2 * 10 / 11 * 2 * sum_of_elements(), rel=1e-6)


def sum_of_elements() -> int:
    return memory_parts(HERO, GANG, TOKENS_PER_DEVICE, LAUNCH)["parameters"] // 2


def test_a_rung_takes_longer_at_its_lower_mfu() -> None:
    rung = ModelConfig.of_family(hidden=2048, num_layers=22, expert_parallel=64)
    found = estimate(rung, steps=20_072, batch_size=BATCH, machine=MACHINE, gang=GANG, mfu=RUNG_MFU)
    assert found["days"] == pytest.approx(9.201e21 / (704 * 2.5e15 * RUNG_MFU) / 86_400, rel=0.002)


def test_what_does_not_divide_is_refused_with_the_equation() -> None:
    with pytest.raises(ValueError, match=r"batch_size\(11000\) % devices\(704\) = 440"):
        estimate(HERO, steps=1, batch_size=11_000, machine=MACHINE, gang=GANG)
    with pytest.raises(ValueError, match="expert axis must stay inside a rack"):
        estimate(dataclasses.replace(HERO, expert_parallel=128), steps=1, batch_size=BATCH, machine=MACHINE, gang=GANG)


def test_laptop() -> None:
    machine = laptop()
    model = ModelConfig.of_family(
        hidden=96, num_layers=4, head_dim=16, vocab_size=2048, num_experts=16, top_k=4, window=128,
        sequence_length=256, gated_norm_rank=8, expert_parallel=2,
    )  # fmt: skip
    found = estimate(model, steps=855, batch_size=4, machine=machine, gang=machine.gang(), precision=LAPTOP, mfu=0.17)
    assert found["devices"] == 2
    assert 0.05 < found["step_seconds"] < 0.3  # measured: 0.108
    assert 0 < found["memory_per_device_bytes"] < machine.memory_bytes_per_device
