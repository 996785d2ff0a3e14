"""One rung of the ladder twice, with the logits' z-loss and without: a pattern for anyone's own ablation.

    python recipes/ablation_z_loss.py
    marinade diff ladder/d64-… ablation/d64-without-z-loss-…      one field, and both runs' metrics side by side
    marinade experiments recipes/ablation_z_loss.py

The control is the flagship's own rung, so where the flagship has run only one arm is trained. What is claimed stands in
the recipe and goes on record before either arm starts; the verdict is recorded whatever it is.
"""

import dataclasses

from executor import Criterion, Experiment, Step, Value, main
from recipes._hero import HeroSettings
from recipes._phases import data_steps
from recipes.hero_535b import rung_step


@dataclasses.dataclass(frozen=True, kw_only=True)
class AblationSettings:
    """The family's settings, and the rung that is trained twice."""

    family: HeroSettings
    rung: str

    @classmethod
    def at_scale(cls, scale: str) -> "AblationSettings":
        family = HeroSettings.at_scale(scale)
        return cls(family=family, rung=sorted(family.ladder, key=lambda name: family.ladder[name].hidden)[-2])

    def __post_init__(self) -> None:
        if self.rung not in self.family.ladder:
            raise ValueError(f"there is no rung {self.rung!r}; the ladder has {', '.join(self.family.ladder)}")


def build(settings: AblationSettings) -> Experiment:
    family, name = settings.family, settings.rung
    control = rung_step(family, name, family.ladder[name], data_steps(family))
    model = dataclasses.replace(control.config.model, z_loss=0.0)
    without = dataclasses.replace(
        control, name=f"ablation/{name}-without-z-loss", config=dataclasses.replace(control.config, model=model)
    )
    return Experiment(
        targets=(control, without),
        hypothesis="Without the logits' z-loss the gradient norm grows towards the end of training.",
        success=(
            Criterion(
                "without z-loss the gradient norm ends above that of its second quarter",
                value=without.result("gradient_norm.growth"),
                above=1.0,
            ),
            Criterion(
                "it grows more than with z-loss",
                value=without.result("gradient_norm.growth"),
                above=control.result("gradient_norm.growth"),
            ),
            Criterion(
                "z-loss costs no more than half a percent of the final loss",
                value=_loss(control),
                within=0.005,
                of=_loss(without),
            ),
        ),
    )


def _loss(step: Step) -> Value:
    return step.result("validation.macro_loss")


if __name__ == "__main__":
    main(build)
