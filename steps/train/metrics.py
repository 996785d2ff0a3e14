"""Metrics of a training attempt: JSONL beside the artifact always, Weights & Biases when asked.

Rows go to `metrics.jsonl` in the attempt's log folder, one flat object a row, under the names of the hero run
(`train/loss`, `grad/norm/total`, `moe/drop_fraction`, ...). They carry wall times, so they stay outside the digest.
`metrics.json` beside them says how they are read (see executor.comparing.metrics) and where this attempt begins.
"""

import dataclasses
import json
import os
from collections.abc import Sequence
from typing import Any

import fsspec
import jax
import numpy as np

from steps.train.config import TrackerConfig, TrainConfig
from steps.train.guards import GuardEvent
from steps.train.history import Evaluation, History


class MetricsLog:
    """Where the rows of one attempt go. `log_dir` is empty outside of the engine: nothing is written then.

    `first` is the step that the attempt continues from; what earlier attempts logged beyond it was trained again.
    `run_id` is Weights & Biases' name for the run, the same for all attempts at it.
    """

    def __init__(
        self, log_dir: str, trackers: TrackerConfig, *, name: str, config: TrainConfig, first: int, run_id: str
    ) -> None:
        self._rows: list[str] = []
        self._log_dir = log_dir
        self._is_local = bool(log_dir) and "://" not in log_dir
        self._parts = 0
        self._wandb = None
        if log_dir:
            self._describe({**config.charts(), "begins": first * config.tokens_per_step})
        if trackers.wandb_project and jax.process_index() == 0:
            self._wandb = _start_wandb(log_dir, trackers, name, config, run_id)

    def _describe(self, description: dict[str, Any]) -> None:
        """Written before the first row, so that an attempt that is killed early has said where it began."""
        if self._is_local:
            os.makedirs(self._log_dir, exist_ok=True)
        with fsspec.open(f"{self._log_dir}/metrics.json", "wt") as file:
            json.dump(description, file, indent=1)  # pyright: ignore[reportArgumentType]

    @property
    def wandb_run(self) -> dict[str, str]:
        """Project, id and link (empty while offline) of the run on Weights & Biases; empty where there is none."""
        if self._wandb is None:
            return {}
        import wandb

        run = wandb.run
        return {"project": run.project, "id": run.id, "url": run.url or ""} if run is not None else {}

    def log(self, step: int, metrics: dict[str, float]) -> None:
        """Add one row for the state after `step` optimizer steps."""
        row = {"step": step, **metrics}
        self._rows.append(json.dumps(row))
        if self._wandb is not None:
            self._wandb.log(metrics, step=step)

    def flush(self) -> None:
        """Write the rows that are not written yet: appended to a local file, a new numbered part elsewhere."""
        if not self._rows or not self._log_dir:
            self._rows.clear()
            return
        text = "".join(row + "\n" for row in self._rows)
        if self._is_local:
            with open(f"{self._log_dir}/metrics.jsonl", "a") as file:
                file.write(text)
        else:
            with fsspec.open(f"{self._log_dir}/metrics-{self._parts:06d}.jsonl", "wt") as file:
                file.write(text)  # pyright: ignore[reportAttributeAccessIssue]
            self._parts += 1
        self._rows.clear()

    def go_back(self, step: int) -> None:
        """Drop the rows of this attempt beyond `step`: it trains them again."""
        self._rows = [row for row in self._rows if json.loads(row)["step"] <= step]
        if not self._log_dir:
            return
        names = [f"metrics-{part:06d}.jsonl" for part in range(self._parts)] or ["metrics.jsonl"]
        for path in (f"{self._log_dir}/{name}" for name in names):
            filesystem, file = fsspec.core.url_to_fs(path)
            if filesystem.exists(file):
                lines = filesystem.cat_file(file).decode().splitlines(keepends=True)
                kept = "".join(line for line in lines if json.loads(line)["step"] <= step)
                filesystem.pipe_file(file, kept.encode())

    def finish(self) -> None:
        self.flush()
        if self._wandb is not None:
            self._wandb.finish()
            import wandb

            wandb.teardown()  # it keeps the folder of the first run, and a worker may train another


def training_row(config: TrainConfig, history: History, measured: dict[str, Any], seconds: float) -> dict[str, float]:
    """What one optimizer step measured, under the hero run's names; rates in tokens and seconds of this step."""
    aux, router = measured["aux"], measured["aux"].router
    dropped = (router.sender_dropped + router.receiver_dropped) / np.maximum(router.assignments, 1)
    assignments = max(1, history.assignments[-1])
    sender, receiver = history.sender_dropped[-1], history.receiver_dropped[-1]
    row = {
        "train/loss": float(aux.cross_entropy + aux.z_loss),
        "train/cross_entropy_loss": float(aux.cross_entropy),
        "grad/norm/total": float(measured["gradient_norm"]),
        "optim/learning_rate": float(measured["learning_rate"]),
        "optim/adam_lr": float(measured["adam_learning_rate"]),
        "optim/weight_decay": float(measured["weight_decay"]),
        "throughput/duration": seconds,
        "throughput/tokens_per_second": config.tokens_per_step / seconds,
        "throughput/total_tokens": history.steps * config.tokens_per_step,
        "moe/dropped_assignments": sender + receiver,
        "moe/drop_fraction": (sender + receiver) / assignments,
        "moe/sender_drop_fraction": sender / assignments,
        "moe/receiver_drop_fraction": receiver / assignments,
        "moe/largest_device": history.largest_device[-1],
        "moe/largest_pair": history.largest_pair[-1],
        "train/router/routing_entropy_mean": history.router_entropy[-1],
        "train/router/load_balancing_loss": float(np.mean(router.balance_loss)),
        "train/router/router_z_loss": float(np.mean(router.z_loss)),
        "train/router/capacity_overflow_rate_mean": float(np.mean(dropped)),
        "train/router/bias_min": float(np.min(router.next_bias)),
        "train/router/bias_max": float(np.max(router.next_bias)),
        "train/router/margin_min": float(np.min(router.margin_min)),
        "train/router/margin_max": float(np.max(router.margin_max)),
    }
    row |= {f"params/norm/{name}": float(norm) for name, norm in measured["parameter_norms"].items()}
    if config.trackers.peak_flops:
        flops = config.model.training_flops(config.tokens_per_step)
        row["throughput/mfu"] = flops / seconds / config.trackers.peak_flops
    for name, values in (
        ("routing_entropy", router.entropy),
        ("load_balancing_loss", router.balance_loss),
        ("router_z_loss", router.z_loss),
        ("capacity_overflow_rate", dropped),
        ("bias_min", np.min(router.next_bias, axis=1)),
        ("bias_max", np.max(router.next_bias, axis=1)),
    ):
        row |= {f"train/router/layer_{layer}/{name}": float(value) for layer, value in enumerate(values)}
    if history.stages:
        stage = sum(stage["start_step"] < history.steps for stage in history.stages) - 1
        row["mixture/stage"] = stage
        row |= {f"mixture/weight/{name}": weight for name, weight in history.stages[stage]["weights"].items()}
    return row


def guard_row(events: Sequence[GuardEvent]) -> dict[str, float]:
    """Which guards spoke: how many, and for each what it found."""
    if not events:
        return {}
    return {"guard/events": len(events)} | {f"guard/{event.guard}": event.value for event in events}


def evaluation_row(evaluation: Evaluation, predicted: float | None, seconds: float) -> dict[str, float]:
    """What one evaluation measured, and how far it lies from the forecast."""
    row = {"eval/macro_loss": evaluation.macro_loss, "eval/duration": seconds}
    row |= {f"eval/{domain}/loss": value for domain, value in evaluation.losses.items()}
    row |= {f"eval/{domain}/bpb": value for domain, value in evaluation.bits_per_byte.items()}
    if predicted is not None:
        row |= {"forecast/macro_loss": predicted, "forecast/deviation": evaluation.macro_loss / predicted - 1}
    return row


def _start_wandb(log_dir: str, trackers: TrackerConfig, name: str, config: TrainConfig, run_id: str) -> Any:
    from levanter.tracker.wandb import WandbConfig

    folder = log_dir if log_dir and "://" not in log_dir else os.getcwd()
    os.makedirs(folder, exist_ok=True)
    os.environ["WANDB_DIR"] = folder
    mode = "online" if os.environ.get("WANDB_API_KEY") else "offline"
    tracker = WandbConfig(project=trackers.wandb_project, name=name, mode=mode, save_code=False, id=run_id).init(None)
    tracker.log_hyperparameters(dataclasses.asdict(config))
    return tracker
