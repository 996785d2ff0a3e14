"""The ladder's rules give the real run's figures (docs/hero.md, sections 2 to 4)."""

import math

import pytest

from steps.ladder import TOKENS_PER_ACTIVE, Heuristic, aligned_step, rung_steps
from steps.model.config import ModelConfig

SEQUENCE = 4096
RUNGS = {  # hidden: layers, batch, steps, MuonH rate
    768: (8, 1024, 11_420, 0.01582),
    1024: (12, 2048, 15_276, 0.01441),
    1536: (16, 6144, 15_128, 0.01489),
    2048: (22, 11_264, 20_072, 0.01342),
}


@pytest.mark.parametrize("hidden", RUNGS)
def test_steps_and_rate_of_every_rung(hidden: int) -> None:
    layers, batch, steps, rate = RUNGS[hidden]
    model = ModelConfig.of_family(hidden=hidden, num_layers=layers)
    per_batch = batch * SEQUENCE
    found = rung_steps(
        parameters_active=model.parameters_active, tokens_per_active=TOKENS_PER_ACTIVE, tokens_per_batch=per_batch
    )
    assert found == steps
    optimizer = Heuristic().optimizer(tokens=steps * per_batch, hidden=hidden, tokens_per_batch=per_batch)
    assert optimizer.learning_rate == pytest.approx(rate, abs=6e-6)


def test_the_hero() -> None:
    per_batch = 11_264 * SEQUENCE
    assert per_batch == 46_137_344
    optimizer = Heuristic().optimizer(tokens=390_251 * per_batch, hidden=6144, tokens_per_batch=per_batch)
    assert optimizer.learning_rate == pytest.approx(0.0032905, abs=5e-8)
    assert optimizer.adam_learning_rate == pytest.approx(0.0007593, abs=5e-8)
    assert optimizer.moments.epsilon == pytest.approx(6.04e-15, abs=5e-18)
    assert (optimizer.moments.beta1, optimizer.moments.beta2) == (0.9, 0.95)


def test_caps_and_clips() -> None:
    small = Heuristic().optimizer(tokens=100_000, hidden=32, tokens_per_batch=131_072)
    assert small.learning_rate == 0.05
    assert small.adam_learning_rate == 0.05
    assert small.moments.beta2 == pytest.approx(0.999, rel=1e-12)
    assert Heuristic().optimizer(tokens=10**9, hidden=64, tokens_per_batch=1024).moments.beta2 == 0.9999


def test_beta2_falls_with_the_batch() -> None:
    betas = [
        Heuristic().optimizer(tokens=10**12, hidden=512, tokens_per_batch=131_072 * n).moments.beta2
        for n in (1, 10, 60)
    ]
    assert betas == pytest.approx([0.999, 0.999**10, 0.95])


def test_a_rung_trains_at_least_one_step() -> None:
    assert rung_steps(parameters_active=10, tokens_per_active=1, tokens_per_batch=4096) == 1


def test_cooldown_of_the_hero_begins_at_312192() -> None:
    step = aligned_step(progress=0.8, horizon_steps=390_251, batch_size=11_264, block_size=49_152)
    assert step == 312_192
    assert step * 11_264 % 49_152 == 0
    assert step <= 0.8 * 390_251 < step + math.lcm(11_264, 49_152) // 11_264


def test_a_run_shorter_than_a_block_cannot_cool_down() -> None:
    with pytest.raises(ValueError, match="take a smaller block_size"):
        aligned_step(progress=0.8, horizon_steps=10, batch_size=4, block_size=4096)
