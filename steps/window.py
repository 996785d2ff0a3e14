"""The paired control window of an amendment: both variants for a few steps from the same checkpoint, side by side.

    window = control_window(pretrain, amendment, steps=200)

Three steps of the pipeline: the run as it was, the run as amended, and a table of both with a verdict. Where the
amendment leaves data and batches alone both arms read the same batches, so that their losses can be compared step by
step; where it does not, only validation losses say something.
"""

import dataclasses
import itertools
import json
import math
import statistics
from typing import Any

import fsspec

from executor import Input, Step, resolved
from steps.train.config import TrainConfig
from steps.train.history import Evaluation, History

BLOCKS = 10
"""Neighbouring steps hang together, so the spread of the difference is taken between so many blocks of them."""

T_95 = 2.262
"""Student's t of a two-sided 95% interval at BLOCKS - 1 degrees of freedom."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class WindowConfig:
    """Two training artifacts that end at the same step, after `at_step` was their common past.

    Attributes:
        control, amended: the artifacts.
        at_step: the fork.
        same_batches: whether both read the same batches.
    """

    control: Input
    amended: Input
    at_step: int
    same_batches: bool


def control_window(base: Step, amendment: Step, *, steps: int = 200) -> Step:
    """The comparison of `amendment` with the step it amends, over `steps` steps from the fork.

    The control arm depends on base, fork and length alone: several amendments at one fork share it.

    Raises:
        ValueError: the amendment does not fork from `base`, or a window that is shorter than `BLOCKS` steps or longer
            than either of them.
    """
    fork = amendment.config.start_step
    if amendment.amends is not base:
        raise ValueError(f"{amendment.name} does not amend {base.name}; take base.amend(at_step=..., ...)")
    end = fork + steps
    last = min(base.config.until_step, amendment.config.until_step)
    if steps < BLOCKS or end > last:
        raise ValueError(f"a window has at least {BLOCKS} steps and ends by step {last}, found {fork} to {end}")
    control = base.amend(at_step=fork, name=f"window/control-{fork}-to-{end}", **_until(base.config, end))
    short = dataclasses.replace(amendment.config, **_until(amendment.config, end))
    name = amendment.name.rsplit("/", 1)[-1]
    amended = dataclasses.replace(amendment, name=f"window/{name}-{fork}-to-{end}", config=short)
    same = (control.config.data, control.config.batch_size) == (short.data, short.batch_size)
    same = same and control.config.model.sequence_length == short.model.sequence_length
    config = WindowConfig(control=control / "", amended=amended / "", at_step=fork, same_batches=same)
    return Step(f"window/{name}", compare_arms, config)


def _until(config: TrainConfig, end: int) -> dict[str, Any]:
    """A run that ends at `end` with an evaluation there."""
    return {"until_step": end, "evaluation": dataclasses.replace(config.evaluation, every=end)}


def compare_arms(config: WindowConfig, output: str) -> dict[str, Any]:
    """Write `window.json` and `window.md`: what both arms measured over the window, and the verdict."""
    arms = {name: _Arm.read(resolved(getattr(config, name)), config.at_step) for name in ("control", "amended")}
    control, amended = arms["control"], arms["amended"]
    if control.steps != amended.steps:
        raise ValueError(f"the arms differ in length: {control.steps} and {amended.steps} steps from {config.at_step}")
    rows = [
        {"figure": name, "unit": unit, "control": control.figures[name], "amended": amended.figures[name]}
        for name, unit in FIGURES.items()
    ]
    difference = _difference(control.losses, amended.losses) if config.same_batches else None
    verdict = _verdict(difference, control, amended)
    found = {
        "at_step": config.at_step,
        "steps": control.steps,
        "same_batches": config.same_batches,
        "loss_difference": difference,
        "verdict": verdict,
        "figures": rows,
    }
    with fsspec.open(f"{output}/window.json", "wt") as file:
        json.dump(found, file, indent=1)  # pyright: ignore[reportArgumentType]
    with fsspec.open(f"{output}/window.md", "wt") as file:
        file.write(window_text(found))  # pyright: ignore[reportAttributeAccessIssue]
    print(window_text(found), flush=True)
    shown = {f"{row['figure']} ({arm})": row[arm] for row in rows for arm in arms if row["figure"] in HEADLINE}
    return {"headline": shown, **{key: found[key] for key in ("steps", "same_batches", "loss_difference", "verdict")}}


FIGURES = {
    "training loss": "nats per token, mean",
    "validation loss": "nats per token, at the end",
    "gradient norm": "mean",
    "drop fraction": "of assignments",
    "router entropy": "nats, at the end",
    "fullest device": "rows over the mean, mean",
    "throughput": "tokens per second, median",
}

HEADLINE = ("training loss", "validation loss", "drop fraction")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Arm:
    """One arm from the fork on: `losses` of its steps, `figures` by the names of FIGURES."""

    losses: list[float]
    figures: dict[str, float | None]

    @property
    def steps(self) -> int:
        return len(self.losses)

    @classmethod
    def read(cls, location: str, fork: int) -> "_Arm":
        history = History.read(f"{location}/history.json")
        with fsspec.open(f"{location}/throughput.json", "rt") as file:
            rate = json.load(file)["tokens_per_second"]  # pyright: ignore[reportArgumentType]
        losses = history.losses[fork:]
        last: Evaluation | None = history.evals[-1] if history.evals else None
        figures = {
            "training loss": statistics.fmean(losses),
            "validation loss": last.macro_loss if last else None,
            "gradient norm": statistics.fmean(history.gradient_norms[fork:]),
            "drop fraction": history.drop_fraction(len(losses)),
            "router entropy": history.router_entropy[-1],
            "fullest device": statistics.fmean(history.largest_device[fork:]),
            "throughput": rate,
        }
        return cls(losses=losses, figures=figures)


def _difference(control: list[float], amended: list[float]) -> dict[str, float]:
    """Mean of amended minus control per step, with the 95% interval between blocks of steps."""
    paired = [new - old for old, new in zip(control, amended, strict=True)]
    edges = [round(index * len(paired) / BLOCKS) for index in range(BLOCKS + 1)]
    means = [statistics.fmean(paired[start:end]) for start, end in itertools.pairwise(edges)]
    mean, margin = statistics.fmean(means), T_95 * statistics.stdev(means) / math.sqrt(BLOCKS)
    return {"mean": mean, "low": mean - margin, "high": mean + margin}


def _verdict(difference: dict[str, float] | None, control: _Arm, amended: _Arm) -> str:
    if difference is None:
        before, after = control.figures["validation loss"], amended.figures["validation loss"]
        if before is None or after is None:
            return "the batches differ and nothing was evaluated: no verdict"
        return f"the batches differ; validation loss {after - before:+.4f} nats per token at the end"
    interval = f"{difference['mean']:+.4f} nats per token, 95% interval {difference['low']:+.4f} to "
    interval += f"{difference['high']:+.4f}"
    if difference["low"] > 0:
        return f"the loss is higher: {interval}"
    if difference["high"] < 0:
        return f"the loss is lower: {interval}"
    return f"no difference seen in the loss: {interval}"


def window_text(found: dict[str, Any]) -> str:
    """The table as Markdown."""
    batches = "the same batches" if found["same_batches"] else "different batches"
    lines = [
        f"# Control window: {found['steps']} steps from step {found['at_step']}, {batches}",
        "",
        "| figure | unit | control | amended | change |",
        "|---|---|---|---|---|",
    ]
    for row in found["figures"]:
        old, new = row["control"], row["amended"]
        change = "" if old is None or new is None or not old else f"{new / old - 1:+.2%}"
        shown = ["not measured" if value is None else f"{value:,.4g}" for value in (old, new)]
        lines.append(f"| {row['figure']} | {row['unit']} | {shown[0]} | {shown[1]} | {change} |")
    return "\n".join([*lines, "", f"Verdict: {found['verdict']}.", ""])
