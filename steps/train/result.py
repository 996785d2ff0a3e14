"""What a training step hands on besides its checkpoints: facts about the run for `history.json`, and its result."""

import dataclasses
from typing import Any

from steps.train.config import TrainConfig
from steps.train.history import History


def facts_of(config: TrainConfig) -> dict[str, Any]:
    """What was trained, for those who read a history: sizes, and FLOPs of the whole horizon."""
    tokens = config.schedule.horizon_steps * config.tokens_per_step
    return {
        "hidden": config.model.hidden,
        "parameters_total": config.model.parameters_total,
        "parameters_active": config.model.parameters_active,
        "flops_total": config.model.training_flops(tokens),
        "flops_without_lm_head": config.model.training_flops_without_lm_head(tokens),
        "horizon_steps": config.schedule.horizon_steps,
        "batch_size": config.batch_size,
        "sequence_length": config.model.sequence_length,
    }


def result_of(config: TrainConfig, history: History, epochs: dict[str, float]) -> dict[str, Any]:
    """The small result that the record keeps."""
    last = history.evals[-1] if history.evals else None
    tail = history.losses[-max(1, len(history.losses) // 20) :]
    training_loss = sum(tail) / len(tail)
    result = {
        "headline": {"training loss": training_loss} | ({"validation loss": last.macro_loss} if last else {}),
        "steps": history.steps,
        "tokens": history.steps * config.tokens_per_step,
        "training_loss": training_loss,
        "validation": dataclasses.asdict(last) if last else None,
        "drop_fraction": history.drop_fraction(),
        "gradient_norm": history.gradient_norm(),
        "epochs": epochs,
    }
    return result | ({"skipped_steps": sorted(history.skipped)} if history.skipped else {})
