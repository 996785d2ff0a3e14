"""The loop of a training step: batches in, optimizer steps, evaluations, checkpoints, metrics.

The state after step n is a pure function of (config, n): batches are addressed by step, nothing else is random, and
what was measured travels with the checkpoints. That is what lets a killed run continue bit for bit.
"""

import dataclasses
import json
import logging
import math
import time
from functools import cache
from typing import Any

import fsspec
import jax
import numpy as np
import optax
from jax.sharding import Mesh

from executor import StepContext, current, resolved
from steps.model.config import ModelConfig
from steps.model.loss import LossAux, loss
from steps.model.transformer import RouterState
from steps.train.checkpoint import RunCheckpoints, checkpoint_step, newest_checkpoint, restore, restore_weights
from steps.train.config import MomentsConfig, TrainConfig
from steps.train.data import TrainingData
from steps.train.evaluation import evaluate
from steps.train.history import Evaluation, History
from steps.train.metrics import MetricsLog, evaluation_row, training_row
from steps.train.optimizer import build_optimizer, with_learning_rates
from steps.train.state import TrainState, init_state, make_mesh, state_shapes, with_weights


def run(config: TrainConfig, output: str) -> dict[str, Any] | None:
    """Train from the newest checkpoint there is to the step asked for; see `steps.train.step.train`.

    Raises:
        FloatingPointError: the loss is not finite; says at which step and where the checkpoints lie.
    """
    for library in ("levanter", "jax"):  # their progress is ours to report
        logging.getLogger(library).setLevel(logging.WARNING)
    context = current()
    mesh = make_mesh(config.model)
    state, history = _begin(config, mesh, context)
    first = history.steps
    goal = config.until_step if context.stop_at is None else min(config.until_step, context.stop_at)
    data = TrainingData.open(config, history.stages)
    history.stages = list(data.stages)
    forecast = _read_forecast(config)
    checkpoints = RunCheckpoints(output, config.checkpoint.rolling_seconds, context.publish)
    metrics = MetricsLog(context.log_dir, config.trackers, name=context.name or "train", config=config, first=first)
    marks = config.evaluation_steps()
    advance = compile_step(config.model, config.optimizer.moments, mesh)
    batches = data.batches(first, mesh)
    print(
        f"steps {first + 1} to {goal} of {config.schedule.horizon_steps}: {config.model.parameters_total:,} "
        f"parameters, {config.tokens_per_step:,} tokens a step, mesh {dict(mesh.shape)}",
        flush=True,
    )
    try:
        if first > config.start_step and (first == goal or first in context.unpublished):
            checkpoints.save_permanent(state, first, history.to_json(_facts(config)))
        for step in range(first + 1, goal + 1):
            began = time.monotonic()
            state, measured = advance(state, next(batches), *map(np.float32, learning_rates(config, step)))
            measured = jax.device_get(measured)
            _append(history, measured)
            row = training_row(config, history, measured, time.monotonic() - began)
            if step in marks:
                row |= _evaluate(config, state, data, history, marks[step], forecast, mesh)
            if step % config.trackers.every == 0 or step in marks or step == goal:
                metrics.log(step, row)
            if not math.isfinite(history.losses[-1]):
                metrics.log(step, row)
                raise FloatingPointError(
                    f"the loss of step {step} is {history.losses[-1]}; the checkpoints before it are under {output}. "
                    "Lower the learning rate or mend the data, then run again"
                )
            if step == goal or step in context.milestones or _is_permanent(config, step):
                checkpoints.save_permanent(state, step, history.to_json(_facts(config)))
                metrics.flush()
            elif checkpoints.save_rolling_if_due(state, step, lambda: history.to_json(_facts(config))):
                metrics.flush()  # else a run that is killed and goes on from here has a gap in its rows
            context.progress(step - config.start_step, config.until_step - config.start_step, loss=history.losses[-1])
        checkpoints.finish()
    finally:
        batches.close()
        metrics.finish()
    with fsspec.open(f"{output}/history.json", "wt") as file:
        file.write(history.to_json(_facts(config)))  # pyright: ignore[reportAttributeAccessIssue]
    return _result(config, history, data.epochs(history.steps))


def _evaluate(
    config: TrainConfig,
    state: TrainState,
    data: TrainingData,
    history: History,
    progress: float,
    forecast: dict[int, float],
    mesh: Mesh,
) -> dict[str, float]:
    """Evaluate at a mark of the horizon: into the history, onto the log, and as metrics."""
    began = time.monotonic()
    evaluation = evaluate(
        state.params,
        state.router,
        data.validation,
        config.model,
        mesh,
        step=history.steps,
        progress=progress,
        tokens=history.steps * config.tokens_per_step,
    )
    history.evals.append(evaluation)
    predicted = forecast.get(_mark(progress))
    print(_evaluation_line(evaluation, predicted), flush=True)
    return evaluation_row(evaluation, predicted, time.monotonic() - began)


def _begin(config: TrainConfig, mesh: Mesh, context: StepContext) -> tuple[TrainState, History]:
    """The state to go on from: an earlier attempt's newest checkpoint, else what the config starts from."""
    optimizer = build_optimizer(config.optimizer.moments)
    shapes = state_shapes(config.model, optimizer, mesh)
    owed = min(context.unpublished, default=None)
    checkpoint = newest_checkpoint(context.earlier_attempts, owed)
    if checkpoint is None and config.start is not None:
        checkpoint = resolved(config.start)
        if checkpoint_step(checkpoint) != config.start_step:
            raise ValueError(f"start_step is {config.start_step}, but the checkpoint it starts from is {checkpoint}")
    if checkpoint is not None:
        print(f"continuing from {checkpoint}", flush=True)
        return restore(checkpoint, shapes)
    if config.initial is not None:
        print(f"new run with the weights of {resolved(config.initial)}", flush=True)
        params, router = restore_weights(resolved(config.initial), (shapes.params, shapes.router))
        return with_weights(params, router, optimizer, shapes), History()
    return init_state(config.model, optimizer, config.seed, mesh), History()


def learning_rates(config: TrainConfig, step: int) -> tuple[float, float]:
    """Rates of MuonH (and AdamH) and of Adam for training step `step`, counted from 1."""
    peak, adam_peak = config.optimizer.learning_rate, config.optimizer.adam_learning_rate
    factor = config.schedule.factor(step - 1, peak)
    return peak * factor, adam_peak * factor


@cache
def compile_step(model: ModelConfig, moments: MomentsConfig, mesh: Mesh) -> Any:
    """The jitted optimizer step: (state, batch, learning rate, Adam's rate) -> (state, measurements).

    Kept for the life of the process, so that a worker that trains the same shape again, another phase of the same run
    for one, does not compile again.
    """
    transform = build_optimizer(moments)

    def advance(state: TrainState, batch: Any, rate: Any, adam_rate: Any) -> tuple[TrainState, dict[str, Any]]:
        def objective(params: Any) -> tuple[Any, LossAux]:
            return loss(params, state.router, batch, model, mesh)

        (_, aux), gradients = jax.value_and_grad(objective, has_aux=True)(state.params)
        rated = with_learning_rates(state.optimizer, rate, adam_rate)
        updates, optimizer = transform.update(gradients, rated, state.params)
        params: Any = optax.apply_updates(state.params, updates)  # pyright: ignore[reportArgumentType]
        following = TrainState(params=params, optimizer=optimizer, router=RouterState(bias=aux.router.next_bias))
        measured = {
            "aux": aux,
            "gradient_norm": optax.global_norm(gradients),
            "parameter_norms": {
                name: optax.global_norm(part)
                for name, part in (
                    ("embedding", params.embedding),
                    ("layers", params.layers),
                    ("lm_head", params.lm_head),
                )
            },
            "learning_rate": rate,
            "adam_learning_rate": adam_rate,
        }
        return following, measured

    return jax.jit(advance, donate_argnums=0)


def _append(history: History, measured: dict[str, Any]) -> None:
    aux: LossAux = measured["aux"]
    history.losses.append(float(aux.cross_entropy))
    history.gradient_norms.append(float(measured["gradient_norm"]))
    history.router_entropy.append(float(np.mean(aux.router.entropy)))
    history.largest_device.append(float(np.max(aux.router.largest_device)))
    history.largest_pair.append(float(np.max(aux.router.largest_pair)))
    history.sender_dropped.append(int(np.sum(aux.router.sender_dropped, dtype=np.int64)))
    history.receiver_dropped.append(int(np.sum(aux.router.receiver_dropped, dtype=np.int64)))
    history.assignments.append(int(np.sum(aux.router.assignments, dtype=np.int64)))


def _facts(config: TrainConfig) -> dict[str, Any]:
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


def _result(config: TrainConfig, history: History, epochs: dict[str, float]) -> dict[str, Any]:
    """The small result that the record keeps."""
    last = history.evals[-1] if history.evals else None
    tail = history.losses[-max(1, len(history.losses) // 20) :]
    training_loss = sum(tail) / len(tail)
    return {
        "headline": {"training loss": training_loss} | ({"validation loss": last.macro_loss} if last else {}),
        "steps": history.steps,
        "tokens": history.steps * config.tokens_per_step,
        "training_loss": training_loss,
        "validation": dataclasses.asdict(last) if last else None,
        "drop_fraction": history.drop_fraction(),
        "gradient_norm": history.gradient_norm(),
        "epochs": epochs,
    }


def _is_permanent(config: TrainConfig, step: int) -> bool:
    every = config.checkpoint.permanent_every
    return every > 0 and step % every == 0


def _mark(progress: float) -> int:
    return round(progress * 100)


def _read_forecast(config: TrainConfig) -> dict[int, float]:
    """Percent of the horizon -> loss the ladder predicts there; empty without a forecast."""
    if config.forecast is None:
        return {}
    with fsspec.open(resolved(config.forecast), "rt") as file:
        marks = json.load(file)["marks"]  # pyright: ignore[reportArgumentType]
    return {_mark(mark["progress"]): mark["loss"] for mark in marks}


def _evaluation_line(evaluation: Evaluation, predicted: float | None) -> str:
    line = f"step {evaluation.step} ({evaluation.progress:.0%}): validation {evaluation.macro_loss:.4f} nats per token"
    if predicted is None:
        return line
    return f"{line}, predicted {predicted:.4f} ({evaluation.macro_loss / predicted - 1:+.1%})"
