"""A run of two layers over a few kilobytes, called as the engine would call it."""

import dataclasses
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from executor.context import StepContext, enter
from steps.conversations import ConversationConfig
from steps.mixture import MixtureConfig, Stage
from steps.model.config import ModelConfig
from steps.train.config import CheckpointConfig, EvaluationConfig, OptimizerConfig, TrackerConfig, TrainConfig
from steps.train.history import History
from steps.train.schedule import ScheduleConfig
from steps.train.step import train

MODEL = ModelConfig.of_family(
    hidden=16, num_layers=2, vocab_size=270, head_dim=8, num_experts=4, top_k=2, window=16, sequence_length=32,
    gated_norm_rank=4, expert_parallel=2,
)  # fmt: skip


@pytest.fixture(scope="session")
def data(small_data, tmp_path_factory):
    """Two tokenized domains, and a handful of question and answer pairs."""
    pairs = tmp_path_factory.mktemp("pairs")
    for split in ("train", "validation"):
        rows = [
            {"question": f"what is {word}?", "answer": f"{word} is a word"} for word in ("alpha", "beta", "one", "two")
        ]
        (pairs / f"{split}.jsonl").write_text("\n".join(map(json.dumps, 8 * rows)))
    return small_data, str(pairs)


@pytest.fixture(scope="session")
def config_of(data) -> Callable[..., TrainConfig]:
    """A run of 12 steps with the changes given; `conversations=True` fine-tunes."""
    return partial(_config_of, data)


@pytest.fixture(scope="session")
def run() -> Callable[..., History]:
    return _run


def _config_of(artifacts, **changes) -> TrainConfig:
    small_data, pairs = artifacts
    if changes.pop("conversations", False):
        changes["data"] = ConversationConfig(pairs=pairs, tokenizer=small_data.tokenizer)
    mixture = MixtureConfig(
        components=small_data.tokens,
        stages=(
            Stage(start_step=0, weights={"letters": 0.75, "numbers": 0.25}),
            Stage(start_step=8, weights={"letters": 0.25, "numbers": 0.75}),
        ),
        block_size=8,
    )
    base = TrainConfig(
        model=MODEL,
        data=mixture,
        optimizer=OptimizerConfig(learning_rate=0.02, adam_learning_rate=0.01),
        schedule=ScheduleConfig(horizon_steps=12),
        batch_size=8,
        until_step=12,
        evaluation=EvaluationConfig(marks=3, sequences_per_domain=8),
        checkpoint=CheckpointConfig(permanent_every=4, rolling_seconds=1e9),
        trackers=TrackerConfig(every=1),
    )
    return dataclasses.replace(base, **changes)


def _run(config: TrainConfig, output: Path, **context) -> History:
    """Train as the engine would call it; return the history that was written."""
    enter(StepContext(name="t", output=str(output), **context))
    try:
        train(config, str(output))
    finally:
        enter(None)
    return History.read(str(output / "history.json"))


@pytest.fixture(scope="session")
def unbroken(config_of, tmp_path_factory) -> tuple[Path, History]:
    output = tmp_path_factory.mktemp("unbroken")
    return output, _run(config_of(), output, log_dir=str(output / "log"))
