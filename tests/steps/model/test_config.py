"""The arithmetic of shapes against the public figures of the 535B run and its ladder (docs/hero.md)."""

import dataclasses
import subprocess
import sys

import pytest

from steps.model.config import ModelConfig

SEQUENCE = 4096


@dataclasses.dataclass(frozen=True, kw_only=True)
class Published:
    hidden: int
    num_layers: int
    heads: tuple[int, int, int]
    total: int
    active: int
    steps: int
    batch: int
    flops: float
    flops_without_lm_head: float

    @property
    def config(self) -> ModelConfig:
        return ModelConfig.of_family(hidden=self.hidden, num_layers=self.num_layers)

    @property
    def tokens(self) -> int:
        return self.steps * self.batch * SEQUENCE


RUNGS = [
    Published(
        hidden=768, num_layers=8, heads=(6, 1, 1), total=1_591_848_448, active=60_555_264, steps=11_420, batch=1024,
        flops=5.48e19, flops_without_lm_head=2.649679880270119e19,
    ),
    Published(
        hidden=1024, num_layers=12, heads=(8, 2, 1), total=3_980_116_480, active=162_004_992, steps=15_276, batch=2048,
        flops=2.736e20, flops_without_lm_head=1.7261182741798453e20,
    ),
    Published(
        hidden=1536, num_layers=16, heads=(12, 3, 1), total=11_534_398_464, active=481_296_384, steps=15_128,
        batch=6144, flops=1.831e21, flops_without_lm_head=1.3813258500033133e21,
    ),
    Published(
        hidden=2048, num_layers=22, heads=(16, 4, 2), total=27_742_902_528, active=1_170_735_104, steps=20_072,
        batch=11264, flops=9.201e21, flops_without_lm_head=7.741814947656449e21,
    ),
]  # fmt: skip
HERO = Published(
    hidden=6144, num_layers=48, heads=(48, 12, 6), total=535_477_106_688, active=22_762_487_808, steps=390_251,
    batch=11264, flops=2.696e24, flops_without_lm_head=2.6108941613772703e24,
)  # fmt: skip


@pytest.mark.parametrize("published", [*RUNGS, HERO], ids=lambda p: f"d{p.hidden}")
def test_published_figures(published: Published):
    config = published.config
    assert (config.num_heads, config.num_kv_heads, config.num_global_kv_heads) == published.heads
    assert config.parameters_total == published.total
    assert config.parameters_active == published.active
    assert round(791 * config.parameters_active / (published.batch * SEQUENCE)) == published.steps
    assert config.training_flops(published.tokens) == pytest.approx(published.flops, rel=5e-4)
    assert float(config.training_flops_without_lm_head(published.tokens)) == published.flops_without_lm_head


def test_hero_flops_exactly():
    assert HERO.config.forward_flops_per_token == 49_912_086_528
    assert HERO.config.training_flops(HERO.tokens) == pytest.approx(2.69602e24, rel=2e-6)
    assert HERO.tokens == pytest.approx(18.005e12, rel=1e-4)


def test_flops_leave_the_extra_global_layer_out():
    """The last of 22 layers attends globally, but the published compute counts 22 // 4 = 5 global layers."""
    config = RUNGS[-1].config
    assert sum(config.global_layers) == 6
    assert [i for i, is_global in enumerate(config.global_layers) if is_global] == [3, 7, 11, 15, 19, 21]
    five = config.forward_flops_per_token_without_lm_head
    assert 3 * five * RUNGS[-1].tokens == pytest.approx(7.741814947656449e21, rel=1e-15)
    assert sum(HERO.config.global_layers) == 12


def test_shared_experts_are_a_third_of_expert_compute():
    config = HERO.config
    shared, routed = config.shared_expert_flops_per_token, config.routed_expert_flops_per_token
    assert shared * 3 == shared + routed


def test_ladder_costs_a_fraction_of_a_percent():
    ladder = sum(rung.config.training_flops(rung.tokens) for rung in RUNGS)
    assert 100 * ladder / HERO.config.training_flops(HERO.tokens) == pytest.approx(0.42, abs=0.005)


def test_initializer():
    assert HERO.config.initializer_std == pytest.approx(0.006379, abs=5e-7)


def test_bytes():
    config = dataclasses.replace(HERO.config, expert_parallel=64)
    assert config.parameter_bytes() == 4 * HERO.total
    assert sum(config.bytes_by_part(2).values()) == 2 * HERO.total
    assert config.expert_bytes_per_device(2) * 64 == 2 * 48 * 384 * 3 * 3072 * 3072
    assert config.dispatch_bytes_per_token() * 63 / 64 == pytest.approx(48.4e3, rel=1e-3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"top_k": 384}, "top_k < num_experts(384); found 384"),
        ({"expert_parallel": 5}, "num_experts(384) % expert_parallel(5) = 4"),
        ({"num_kv_heads": 5}, "num_heads(48) % num_kv_heads(5) = 3"),
        ({"num_global_kv_heads": 16}, "num_global_kv_heads: expected at most num_kv_heads(12)"),
        ({"head_dim": 126}, "expected 4n, found 126"),
        ({"window": 0}, "window: expected at least 1, found 0"),
        ({"latent": 0}, "latent: expected at least 1"),
        ({"conv_kernel": -1}, "found 2 and -1"),
    ],
)
def test_what_a_user_gets_wrong(change: dict, words: str):
    with pytest.raises(ValueError, match="ModelConfig") as error:
        dataclasses.replace(HERO.config, **change)
    assert words in str(error.value)


def test_family_needs_whole_heads():
    with pytest.raises(ValueError, match=r"hidden\(100\) % head_dim\(16\) = 4"):
        ModelConfig.of_family(hidden=100, num_layers=2, head_dim=16)


def test_family_keeps_groups_even():
    """Seven heads cannot be shared by a number that does not divide them."""
    for heads in range(1, 65):
        config = ModelConfig.of_family(hidden=16 * heads, num_layers=2, head_dim=16)
        assert heads % config.num_kv_heads == 0
        assert config.num_global_kv_heads <= config.num_kv_heads


def test_import_is_light():
    code = "import sys, steps.model.config; print(*sorted({'jax', 'numpy', 'equinox', 'levanter'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert found == ""
