"""Mixtures: which share of the sequences comes from which domain, and from which step on.

    MixtureConfig(components={"prose": prose, "code": code}, block_size=64,
                  stages=(Stage(start_step=0, weights={"prose": 0.3, "code": 0.7}),
                          Stage(start_step=800, weights={"prose": 0.5, "code": 0.5})))

Sequences are drawn in blocks. Every block holds exactly the stage's share of each component, in shuffled order, so a
stage begins where a block ends and the data of a step is known without reading the steps before it. Pure arithmetic.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from executor import Input

MAX_BLOCK_SIZE = 2**16 - 1
"""A sequence's place in its block is kept in 16 bits (Levanter's mixture)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stage:
    """From training step `start_step` on, `weights` hold: a share per component, of any sum."""

    start_step: int
    weights: Mapping[str, float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class MixtureConfig:
    """Token artifacts by name and the stages of their weights.

    Attributes:
        components: name -> token artifact (`train/`, `validation/`, `counts.json`).
        stages: in the order of their steps. A phase that continues a run may hold only its own stages: the earlier
            ones come with the checkpoint (`continued`).
        block_size: sequences in which the weights are realised exactly.
        seed: of the order within components and blocks.
    """

    components: Mapping[str, Input]
    stages: tuple[Stage, ...]
    block_size: int
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.block_size <= MAX_BLOCK_SIZE:
            raise ValueError(f"MixtureConfig.block_size: expected 1 to {MAX_BLOCK_SIZE}, found {self.block_size}")
        if not self.stages:
            raise ValueError("MixtureConfig.stages: expected at least one stage, found none")
        starts = [stage.start_step for stage in self.stages]
        if starts[0] < 0 or sorted(set(starts)) != starts:
            raise ValueError(f"MixtureConfig.stages: expected start steps that grow from 0 or later, found {starts}")
        for index, stage in enumerate(self.stages):
            where = f"MixtureConfig.stages[{index}].weights"
            if set(stage.weights) != set(self.components):
                missing = sorted(set(self.components) - set(stage.weights))
                unknown = sorted(set(stage.weights) - set(self.components))
                raise ValueError(
                    f"{where}: expected one weight for every component (0 to leave it out); "
                    f"missing: {missing}, unknown: {unknown}"
                )
            bad = {name: weight for name, weight in stage.weights.items() if not 0 <= weight < math.inf}
            if bad:
                raise ValueError(f"{where}: expected numbers >= 0, found {bad}")
            if not sum(stage.weights.values()) > 0:
                raise ValueError(f"{where}: expected a sum above 0, found {dict(stage.weights)}")
            sequences_per_block(stage.weights, self.block_size)


def sequences_per_block(weights: Mapping[str, float], block_size: int) -> dict[str, int]:
    """Sequences of each component in every block: shares rounded by largest remainder, ties by name."""
    exact = {name: Fraction(weight) for name, weight in weights.items()}
    total = sum(exact.values())
    shares = {name: weight * block_size / total for name, weight in sorted(exact.items())}
    counts = {name: math.floor(share) for name, share in shares.items()}
    by_remainder = sorted(shares, key=lambda name: counts[name] - shares[name])
    for name in by_remainder[: block_size - sum(counts.values())]:
        counts[name] += 1
    lost = {name: float(shares[name]) for name in shares if shares[name] > 0 and not counts[name]}
    if lost:
        raise ValueError(
            f"a block of {block_size} sequences holds no whole sequence of {lost}; raise block_size to about "
            f"{math.ceil(block_size / min(lost.values()))}, or set these weights to 0"
        )
    return {name: counts[name] for name in weights}


def continued(config: MixtureConfig, earlier: Sequence[Stage | Mapping[str, Any]]) -> MixtureConfig:
    """The mixture of the whole run: the stages that came before this config's first, and then its own."""
    first = config.stages[0].start_step
    before = [stage if isinstance(stage, Stage) else Stage(**stage) for stage in earlier]
    before = [stage for stage in before if stage.start_step < first]
    return dataclasses.replace(config, stages=(*before, *config.stages))


def check_alignment(config: MixtureConfig, batch_size: int) -> None:
    """Raise where a stage begins inside a block."""
    for index, stage in enumerate(config.stages):
        sequences = stage.start_step * batch_size
        if sequences % config.block_size:
            step = math.lcm(config.block_size, batch_size) // batch_size
            below = stage.start_step // step * step
            raise ValueError(
                f"MixtureConfig.stages[{index}] begins inside a block: start_step({stage.start_step}) * "
                f"batch_size({batch_size}) = {sequences} is {sequences % config.block_size} past a multiple of "
                f"block_size({config.block_size}); the nearest steps are {below} and {below + step}"
            )


def sequences_drawn(config: MixtureConfig, batch_size: int, until_step: int) -> dict[str, int]:
    """Sequences of each component in the first `until_step` steps, whole blocks counted where the last is partial."""
    drawn = dict.fromkeys(config.components, 0)
    for index, stage in enumerate(config.stages):
        end = config.stages[index + 1].start_step if index + 1 < len(config.stages) else until_step
        steps = min(end, until_step) - stage.start_step
        if steps <= 0:
            break
        blocks = math.ceil(steps * batch_size / config.block_size)
        for name, count in sequences_per_block(stage.weights, config.block_size).items():
            drawn[name] += blocks * count
    return drawn


def epochs(config: MixtureConfig, available: Mapping[str, int], batch_size: int, until_step: int) -> dict[str, float]:
    """How often each component is read in the first `until_step` steps; `available` are its sequences."""
    drawn = sequences_drawn(config, batch_size, until_step)
    empty = [name for name, count in drawn.items() if count and not available[name]]
    if empty:
        raise ValueError(f"components without a single whole sequence: {empty}; give them more text or weight 0")
    return {name: count / available[name] if count else 0.0 for name, count in drawn.items()}
