"""Words of a folder of files, counted, and a model of them: small enough to run in a second."""

import dataclasses

from library.steps import CountConfig, TrainConfig, count, train

from executor import Experiment, Step, adopt


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    learning_rate: float = 0.1
    workers: int = 2

    @classmethod
    def at_scale(cls, scale: str) -> "Settings":
        return cls()


def build(settings: Settings) -> Experiment:
    raw = adopt("library/raw", name="raw")
    counts = Step("counts", count, CountConfig(files=raw, workers=settings.workers))
    model = Step("model", train, TrainConfig(counts=counts, learning_rate=settings.learning_rate))
    return Experiment(targets=(model,))
