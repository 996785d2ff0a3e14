"""The flagship in two minutes: the same steps at the smallest size that still trains.

    python recipes/smoke.py

What it learns means nothing; that every step runs, resumes and is found again does. The tests use it.
"""

import dataclasses

from executor import Experiment, main
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
        base = laptop_settings()
        return cls(hero=base)


def build(settings: SmokeSettings) -> Experiment:
    return hero_535b.build(settings.hero)


if __name__ == "__main__":
    main(build)
