"""The two steps."""

import dataclasses
import json
from pathlib import Path

from library.reading import lines_of

from executor import Input, execution, resolved


@dataclasses.dataclass(frozen=True, kw_only=True)
class CountConfig:
    files: Input
    workers: int = execution(2)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig:
    counts: Input
    learning_rate: float


def count(config: CountConfig, output: str) -> None:
    found: dict[str, int] = {}
    for line in lines_of(resolved(config.files)):
        for word in line:
            found[word] = found.get(word, 0) + 1
    Path(output, "counts.json").write_text(json.dumps(found, sort_keys=True))


def train(config: TrainConfig, output: str) -> None:
    counts = json.loads(Path(resolved(config.counts), "counts.json").read_text())
    Path(output, "model.json").write_text(json.dumps({w: n * config.learning_rate for w, n in counts.items()}))
