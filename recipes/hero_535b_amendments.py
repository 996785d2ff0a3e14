"""Amendments tried before they are made: each for a few steps beside the run as it was, from the same checkpoint.

    python recipes/hero_535b_amendments.py
    marinade diff recipes/hero_535b.py recipes/hero_535b_amendments.py

What the real run changed or planned to change under way (docs/hero.md, sections 0 and 4): weight decay on head gates
and router, room for the expert exchange, a longer context with its rule for queries. The flagship is trained as far as
the fork if it has not run.
"""

import dataclasses

from executor import Criterion, Experiment, Step, main
from recipes._hero import HeroSettings
from recipes.hero_535b import steps_of
from steps.train.config import TrainConfig, WeightDecayConfig
from steps.window import control_window


@dataclasses.dataclass(frozen=True, kw_only=True)
class AmendmentSettings:
    """The family's settings, and what is tried.

    Attributes:
        steps: length of the window.
        weight_decay: of head gates and router, at the fork.
        capacity_factor: rows a device has room for, over the mean.
        context_growth: the longer context over the run's own.
    """

    family: HeroSettings
    steps: int = 200
    weight_decay: float = 0.02
    capacity_factor: float = 1.1
    context_growth: int = 2

    @classmethod
    def at_scale(cls, scale: str) -> "AmendmentSettings":
        return cls(family=HeroSettings.at_scale(scale))


def build(settings: AmendmentSettings) -> Experiment:
    pretrain, fork = steps_of(settings.family).pretrain, settings.family.mixture.swap_step
    tried = amendments(settings, pretrain, fork)
    window = control_window(pretrain, *tried, steps=settings.steps)
    return Experiment(
        targets=(window,),
        report=window / "window.md",
        hypothesis="Neither weight decay nor less room costs loss within the window.",
        success=tuple(
            Criterion(
                f"the 95% interval of the loss under {name} reaches down to the control's",
                value=window.result(f"amended.{name}.loss_difference.low"),
                at_most=0.0,
            )
            for name in window.config.same_batches
        ),
    )


def amendments(settings: AmendmentSettings, pretrain: Step, fork: int) -> list[Step]:
    config: TrainConfig = pretrain.config
    decay = WeightDecayConfig(coefficient_at_start=settings.weight_decay, start_step=fork)
    roomy = dataclasses.replace(config.model, capacity_factor=settings.capacity_factor)
    changes = {
        "weight-decay": {"optimizer": dataclasses.replace(config.optimizer, weight_decay=decay)},
        "capacity": {"model": roomy},
        "context": {"sequence_length": settings.context_growth * config.model.sequence_length},
    }
    return [pretrain.amend(at_step=fork, name=f"hero/{name}", **change) for name, change in changes.items()]


if __name__ == "__main__":
    main(build)
