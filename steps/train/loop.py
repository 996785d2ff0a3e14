"""The loop of a training step: batches in, optimizer steps, evaluations, guards, checkpoints, metrics.

The state after step n is a pure function of (config, n): batches are addressed by step, nothing else is random, and
what was measured travels with the checkpoints. That is what lets a killed run continue bit for bit.
"""

import hashlib
import json
import logging
import os
import statistics
import time
from typing import Any

import fsspec
import numpy as np
from jax.sharding import Mesh

from executor import StepContext, StepHalted, current, resolved
from steps.model.loss import LossAux
from steps.train.advance import compile_step, learning_rates
from steps.train.checkpoint import RunCheckpoints, checkpoint_step, newest_checkpoint, restore, restore_weights
from steps.train.compile_cache import keep_compiled_programs
from steps.train.config import TrainConfig
from steps.train.data import TrainingData
from steps.train.evaluation import evaluate
from steps.train.guards import Band, GuardEvent, Watched, inspect, mark_of
from steps.train.history import Evaluation, History
from steps.train.metrics import MetricsLog, evaluation_row, guard_row, training_row
from steps.train.optimizer import build_optimizer
from steps.train.processes import agreed, connect, fetched, together
from steps.train.result import facts_of, result_of
from steps.train.state import TrainState, init_state, make_mesh, state_shapes, with_weights
from steps.train.timing import Timing
from steps.train.watchdog import Watchdog


def run(config: TrainConfig, output: str) -> dict[str, Any] | None:
    """Train from the newest checkpoint there is to the step asked for; see `steps.train.step.train`.

    Raises:
        StepHalted: a guard paused the run; its checkpoint is saved.
        FloatingPointError: a guard stopped it, for a loss that is not finite by default; says at which step and where
            the checkpoints lie.
    """
    for library in ("levanter", "jax"):  # their progress is ours to report
        logging.getLogger(library).setLevel(logging.WARNING)
    connect(current())
    keep_compiled_programs()
    training = _Run(config, output)
    try:
        training.train()
    finally:
        training.close()
    if current().process > 0:
        return None
    for name, text in (("history.json", training.history_text()), ("throughput.json", training.throughput_text())):
        with fsspec.open(f"{output}/{name}", "wt") as file:
            file.write(text)  # pyright: ignore[reportAttributeAccessIssue]
    return result_of(config, training.history, training.data.epochs(training.history.steps))


class _Run:
    """One attempt: the state, what was measured, and where both are kept."""

    def __init__(self, config: TrainConfig, output: str) -> None:
        self.config, self.output, self.context = config, output, current()
        self.mesh = make_mesh(config.model)
        rows = config.batch_size // config.microbatches
        if rows % self.mesh.size:
            raise ValueError(
                "each device of the mesh takes as many sequences as the others: expected batch_size / microbatches to "
                f"be a multiple of {self.mesh.size} devices, found {rows}; change one of them or the step's devices"
            )
        self.state, self.history = _begin(config, self.mesh, self.context)
        stop_at = self.context.stop_at
        self.first = self.history.steps
        self.goal = config.until_step if stop_at is None else min(config.until_step, stop_at)
        self.data = TrainingData.open(config, self.history.stages)
        self.history.stages = list(self.data.stages)
        self.forecast = _read_forecast(config)
        self.checkpoints = RunCheckpoints(
            output, config.checkpoint.rolling_seconds, self.context.publish, leads=self.context.process == 0
        )
        self.metrics = MetricsLog(
            self.context.log_dir,
            config.trackers,
            name=self.context.name or "train",
            config=config,
            first=self.first,
            run_id=_run_id(output),
        )
        if self.metrics.wandb_run:
            found = self.metrics.wandb_run
            self.context.note(f"Weights & Biases: run {found['id']} {found['url']}".rstrip(), wandb=found)
        self.timing = Timing()
        self.logged = self.first
        self.marks = config.evaluation_steps()
        self.guards = {**config.guards, **config.rollbacks}
        decay = config.optimizer.weight_decay
        decays = decay.parameters if decay else ()
        self.advance = compile_step(config.model, config.optimizer.moments, decays, config.microbatches, self.mesh)
        self.batches = self.data.batches(self.first, self.mesh)
        self.watchdog = Watchdog(config.watchdog, config.guards, self._stalled)

    def close(self) -> None:
        self.watchdog.close()
        self.timing.close()
        self.batches.close()
        self.metrics.finish()

    def train(self) -> None:
        config, context = self.config, self.context
        print(
            f"steps {self.first + 1} to {self.goal} of {config.schedule.horizon_steps}: "
            f"{config.model.parameters_total:,} parameters, {config.tokens_per_step:,} tokens a step, "
            f"mesh {dict(self.mesh.shape)}",
            flush=True,
        )
        if self.first > config.start_step and (self.first == self.goal or self.first in context.unpublished):
            self.checkpoints.save_permanent(self.state, self.first, self.history_text())
        while self.history.steps < self.goal:
            if self._step():
                self._save_now()
                print(f"asked to stop: step {self.history.steps} is saved", flush=True)
                context.stop()
            # From here on there is something to save; before the first step a stop need not wait for a compilation.
            context.save_on_stop(config.checkpoint.stop_seconds)
        self.checkpoints.finish()

    def _step(self) -> bool:
        """One optimizer step and all that follows from it; whether the run was asked to stop."""
        config, history, began = self.config, self.history, time.monotonic()
        step = history.steps + 1
        batch = next(self.batches)
        if step in history.skipped:
            history.skip()
            row = {}
        else:
            self.state, measured = self.advance(self.state, batch, learning_rates(config, step))
            measured = fetched(measured)
            _append(history, measured)
            row = training_row(config, history, measured, time.monotonic() - began)
        if step in self.marks:
            row |= self._evaluate(self.marks[step])
        self.context.progress(step - config.start_step, config.until_step - config.start_step, loss=history.losses[-1])
        stopping, is_due, seconds = agreed(self.context, self.checkpoints.is_due, time.monotonic() - began)
        self.watchdog.beat(seconds)
        events = inspect(self.guards, self._watched())
        row |= guard_row(events)
        if row and (step % config.trackers.every == 0 or step in self.marks or step == self.goal or events):
            row |= self.timing.take(max(1, step - self.logged))
            self.logged = step
            self.metrics.log(step, row)
        for event in events:
            self.context.note(f"guard {event.guard}: {event.message}", **event.facts())
        if events and events[0].action != "note":
            self._act(events[0])
        if history is self.history:  # else it went back
            with self.timing.saving():
                self._save_if_due(step, is_due=is_due)
        return stopping

    def _act(self, event: GuardEvent) -> None:
        if event.action == "rollback":
            self._go_back(event)
        elif event.action == "stop":
            raise FloatingPointError(
                f"guard {event.guard}: {event.message}. The checkpoints before it are under {self.output}. Lower the "
                "learning rate or mend the data, then run again"
            )
        else:
            self._save_now()
            raise StepHalted(f"guard {event.guard} paused it at {event.message}; this step's checkpoint is saved")

    def _go_back(self, event: GuardEvent) -> None:
        """Restore the newest checkpoint before the offending batches, and skip them from there on.

        Raises:
            FloatingPointError: too many rollbacks, or nothing to go back to.
        """
        published = max(self.checkpoints.last_permanent, self.config.start_step)
        skipped = [step for step in event.offending if step > published]
        so_far = sum(rollback["guard"] == event.guard for rollback in self.history.rollbacks)
        most = self.guards[event.guard].most_rollbacks
        if so_far >= most or not skipped or skipped[0] == 1:
            why = (
                f"it went back {so_far} times already (most_rollbacks={most})"
                if so_far >= most
                else f"no checkpoint before steps {list(event.offending)} may be trained from again"
            )
            raise FloatingPointError(f"guard {event.guard}: {event.message}; {why}. See {self.output}")
        found = self.checkpoints.go_back(self.context.earlier_attempts, skipped[0] - 1)
        together(self.context, f"found {event.guard} {event.step}")
        self.checkpoints.remove_beyond(skipped[0] - 1)
        rollbacks, stages = self.history.rollbacks, self.history.stages
        self.state, self.history = _start_from(found, self.config, self.mesh)
        rollback = {"guard": event.guard, "step": event.step, "skipped": skipped}
        self.history.rollbacks, self.history.stages = [*rollbacks, rollback], stages
        self.metrics.go_back(self.history.steps)
        self.batches.close()
        self.batches = self.data.batches(self.history.steps, self.mesh)
        self.watchdog.beat()
        self.context.note(
            f"guard {event.guard}: back to step {self.history.steps}; the batches of steps "
            f"{', '.join(map(str, skipped))} are skipped",
            **rollback,
        )

    def _evaluate(self, progress: float) -> dict[str, float]:
        """Evaluate at a mark of the horizon: into the history, onto the log, and as metrics."""
        began, steps = time.monotonic(), self.history.steps
        evaluation = evaluate(
            self.state.params,
            self.state.router,
            self.data.validation,
            self.config.model,
            self.mesh,
            step=steps,
            progress=progress,
            tokens=steps * self.config.tokens_per_step,
        )
        self.history.evals.append(evaluation)
        predicted = self.forecast.get(mark_of(progress))
        loss = predicted.loss if predicted else None
        print(_evaluation_line(evaluation, loss), flush=True)
        return evaluation_row(evaluation, loss, time.monotonic() - began)

    def _watched(self) -> Watched:
        return Watched(
            history=self.history,
            num_experts=self.config.model.num_experts,
            horizon_steps=self.config.schedule.horizon_steps,
            forecast=self.forecast,
            seconds=tuple(self.watchdog.seconds),
        )

    def _save_if_due(self, step: int, *, is_due: bool) -> None:
        every = self.config.checkpoint.permanent_every
        if step == self.goal or step in self.context.milestones or (every > 0 and step % every == 0):
            self.checkpoints.save_permanent(self.state, step, self.history_text())
            self.metrics.flush()
        elif is_due:
            self.checkpoints.save_rolling(self.state, step, self.history_text())
            self.metrics.flush()  # else a run that is killed and goes on from here has a gap in its rows

    def _save_now(self) -> None:
        self.checkpoints.save_rolling(self.state, self.history.steps, self.history_text())
        self.checkpoints.wait()
        self.metrics.flush()

    def history_text(self) -> str:
        return self.history.to_json(facts_of(self.config))

    def throughput_text(self) -> str:
        """Median of the latest steps of this attempt; it stays out of the history, which no clock enters."""
        timed = self.watchdog.seconds
        median = statistics.median(timed) if timed else None
        rate = self.config.tokens_per_step / median if median else None
        return json.dumps({"steps": len(timed), "step_seconds": median, "tokens_per_second": rate})

    def _stalled(self, guard: str, seconds: float, limit: float) -> None:
        step = self.history.steps + 1
        message = f"guard {guard}: step {step} has not ended for {seconds:.0f} s; {limit:.0f} s are usual at most"
        self.context.note(message, guard=guard, watch="stall", step=step, value=seconds, limit=limit)


def _begin(config: TrainConfig, mesh: Mesh, context: StepContext) -> tuple[TrainState, History]:
    """The state to go on from: an earlier attempt's newest checkpoint, else what the config starts from."""
    owed = min(context.unpublished, default=None)
    return _start_from(newest_checkpoint(context.earlier_attempts, owed), config, mesh)


def _start_from(checkpoint: str | None, config: TrainConfig, mesh: Mesh) -> tuple[TrainState, History]:
    """The state of a checkpoint of this step; without one that which the config starts from."""
    optimizer = build_optimizer(config.optimizer.moments)
    shapes = state_shapes(config.model, optimizer, mesh)
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


def _run_id(output: str) -> str:
    """The same for all attempts at one piece of work: they write beside each other."""
    return hashlib.sha256(os.path.dirname(output.rstrip("/")).encode()).hexdigest()[:16]


def _append(history: History, measured: dict[str, Any]) -> None:
    aux: LossAux = measured["aux"]
    history.losses.append(float(aux.cross_entropy))
    history.gradient_norms.append(float(measured["gradient_norm"]))
    history.router_entropy.append(float(np.mean(aux.router.entropy)))
    history.router_bias.append(float(np.max(np.abs(aux.router.next_bias))))
    history.largest_device.append(float(np.max(aux.router.largest_device)))
    history.largest_pair.append(float(np.max(aux.router.largest_pair)))
    history.sender_dropped.append(int(np.sum(aux.router.sender_dropped, dtype=np.int64)))
    history.receiver_dropped.append(int(np.sum(aux.router.receiver_dropped, dtype=np.int64)))
    history.assignments.append(int(np.sum(aux.router.assignments, dtype=np.int64)))


def _read_forecast(config: TrainConfig) -> dict[int, Band]:
    """Percent of the horizon -> what the ladder predicts there; empty without a forecast."""
    if config.forecast is None:
        return {}
    with fsspec.open(resolved(config.forecast), "rt") as file:
        marks = json.load(file)["marks"]  # pyright: ignore[reportArgumentType]
    return {mark_of(mark["progress"]): Band(loss=mark["loss"], low=mark["low"], high=mark["high"]) for mark in marks}


def _evaluation_line(evaluation: Evaluation, predicted: float | None) -> str:
    line = f"step {evaluation.step} ({evaluation.progress:.0%}): validation {evaluation.macro_loss:.4f} nats per token"
    if predicted is None:
        return line
    return f"{line}, predicted {predicted:.4f} ({evaluation.macro_loss / predicted - 1:+.1%})"
