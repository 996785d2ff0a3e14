"""The flagship in two minutes: the same steps at the smallest size that still trains.

    python recipes/smoke.py

What it learns means little; that every step runs, resumes and is found again does. The tests use it.
"""

import dataclasses

from executor import Criterion, Experiment, main
from recipes import hero_535b
from recipes._hero import HeroSettings, laptop_settings


@dataclasses.dataclass(frozen=True, kw_only=True)
class SmokeSettings:
    """The family's settings, made small; `--set hero.midtrain.learning_rate=0.001` reaches into them."""

    hero: HeroSettings

    @classmethod
    def at_scale(cls, scale: str) -> "SmokeSettings":
        if scale != "laptop":
            raise ValueError(f"unknown scale {scale!r}; this recipe knows laptop")
        return cls(hero=_small(laptop_settings()))


def _small(base: HeroSettings) -> HeroSettings:
    run = dataclasses.replace(base.hero, num_layers=2, steps=40)
    return dataclasses.replace(
        base,
        shape=dataclasses.replace(base.shape, head_dim=8, num_experts=4, top_k=2, window=32, sequence_length=128),
        data=dataclasses.replace(base.data, vocab_size=512),
        mixture=dataclasses.replace(base.mixture, block_size=8, swap_step=10),
        ladder={f"d{hidden}": dataclasses.replace(run, hidden=hidden, steps=hidden) for hidden in (16, 24)},
        hero=dataclasses.replace(run, hidden=32),
        fine_tune=dataclasses.replace(base.fine_tune, steps=10),
        evaluation=dataclasses.replace(base.evaluation, marks=10, sequences_per_domain=4),
        checkpoint=dataclasses.replace(base.checkpoint, permanent_every=10, rolling_seconds=1.0),
    )


def build(settings: SmokeSettings) -> Experiment:
    steps = hero_535b.steps_of(settings.hero)
    return Experiment(
        targets=(steps.report,),
        report=steps.report / "report.md",
        hypothesis="Even the smallest hero learns more than which bytes are frequent, and more than its rungs.",
        success=(
            hero_535b.below_every_rung(steps),
            Criterion(
                "the hero is below the byte-level baseline on every domain",
                value=steps.evaluation.result("midtrain.bits_per_byte"),
                below=steps.baselines.result("byte_unigram_bits_per_byte"),
            ),
        ),
        prediction=steps.forecast.result("final.loss"),
    )


if __name__ == "__main__":
    main(build)
