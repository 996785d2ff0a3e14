"""The benchmark's graph as a recipe: steps that each write one tiny file."""

import dataclasses
import os

from shapes import STEPS, sources

from executor import Experiment, Input, Step, main


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    steps: int

    @classmethod
    def at_scale(cls, scale: str) -> "Settings":
        return cls(steps=STEPS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WriteConfig:
    number: int
    sources: tuple[Input, ...]


def write(config: WriteConfig, output: str) -> None:
    if "://" in output:
        import fsspec

        fsspec.filesystem(output.partition("://")[0]).pipe_file(f"{output}/number.txt", str(config.number).encode())
        return
    with open(os.path.join(output, "number.txt"), "w") as file:
        file.write(str(config.number))


def build(settings: Settings) -> Experiment:
    steps: list[Step] = []
    for number in range(settings.steps):
        config = WriteConfig(number=number, sources=tuple(steps[other] for other in sources(number)))
        steps.append(Step(f"step{number}", write, config))
    return Experiment(targets=tuple(steps))


if __name__ == "__main__":
    main(build)
