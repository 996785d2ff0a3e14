"""The flagship with its mixture swapped part of the way through pretraining, as the real run's was at step 108,000.

    python recipes/hero_535b_mixture_swap.py
    marinade diff recipes/hero_535b.py recipes/hero_535b_mixture_swap.py

It shares every step up to the fork with the flagship and forks from the checkpoint there; on an empty store the base
run is trained only as far as the fork.
"""

import dataclasses

from executor import Experiment, main
from recipes import hero_535b
from recipes._hero import HeroSettings


def build(settings: HeroSettings) -> Experiment:
    return dataclasses.replace(
        hero_535b.build(dataclasses.replace(settings, swap=True)),
        hypothesis="The forecast of a ladder without the swap still holds when the hero's mixture is swapped.",
    )


if __name__ == "__main__":
    main(build)
