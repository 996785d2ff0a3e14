"""The control window of amendments: a run as it was and as amended, for a few steps from the same checkpoint.

    window = control_window(pretrain, pretrain.amend(at_step=fork, name="hero/less-room", model=...), steps=200)

An arm is a training step of its own; the window puts them into one table, with a verdict for each amendment. Where an
amendment leaves data and batches alone it reads the batches of the control, and losses are compared step by step; where
it does not, only validation losses say something.
"""

import dataclasses
import itertools
import json
import math
import statistics
from collections.abc import Mapping
from typing import Any

import fsspec

from executor import Input, Step, resolved
from steps.train.history import History

BLOCKS = 10
"""Neighbouring steps hang together, so the spread of the difference is taken between so many blocks of them."""

T_95 = 2.262
"""Student's t of a two-sided 95% interval at BLOCKS - 1 degrees of freedom."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class WindowConfig:
    """Training artifacts that end at the same step, after `at_step` was their common past.

    Attributes:
        control: the run as it was.
        amended: amendment -> the run as amended.
        at_step: the fork.
        same_batches: amendments that read the control's batches.
    """

    control: Input
    amended: Mapping[str, Input]
    at_step: int
    same_batches: tuple[str, ...]


def control_window(base: Step, *amendments: Step, steps: int = 200) -> Step:
    """A comparison of amendments with the step they amend, over `steps` steps from the fork.

    Raises:
        ValueError: an amendment that does not fork from `base` where the others do, or a window that is shorter than
            `BLOCKS` steps or longer than any of them.
    """
    forks = {amendment.config.start_step for amendment in amendments}
    strange = [amendment.name for amendment in amendments if amendment.amends is not base]
    if strange or len(forks) != 1:
        raise ValueError(
            f"a window needs amendments of {base.name} at one step, made by base.amend(at_step=..., ...); found steps "
            f"{sorted(forks)}" + (f" and no amendments of it: {', '.join(strange)}" if strange else "")
        )
    fork = forks.pop()
    end, last = fork + steps, min(step.config.until_step for step in (base, *amendments))
    if steps < BLOCKS or end > last:
        raise ValueError(f"a window has at least {BLOCKS} steps and ends by step {last}, found {fork} to {end}")
    control = _arm(base.amend(at_step=fork, name="control"), end)
    arms = {_short(amendment): _arm(amendment, end) for amendment in amendments}
    same = tuple(name for name, arm in arms.items() if _batches(arm) == _batches(control))
    config = WindowConfig(
        control=control / "", amended={name: arm / "" for name, arm in arms.items()}, at_step=fork, same_batches=same
    )
    return Step(f"window/{fork}-to-{end}", compare_arms, config)


def _short(step: Step) -> str:
    return step.name.rsplit("/", 1)[-1]


def _arm(step: Step, end: int) -> Step:
    name = f"window/{_short(step)}-{step.config.start_step}-to-{end}"
    return dataclasses.replace(step, name=name, config=step.config.ending_at(end))


def _batches(arm: Step) -> tuple[Any, ...]:
    return arm.config.data, arm.config.batch_size, arm.config.model.sequence_length


def compare_arms(config: WindowConfig, output: str) -> dict[str, Any]:
    """Write `window.json` and `window.md`: what the arms measured behind the fork, and the verdicts.

    Raises:
        ValueError: arms of different length.
    """
    control = _Arm.read(resolved(config.control), config.at_step)
    arms = {name: _Arm.read(resolved(location), config.at_step) for name, location in config.amended.items()}
    for name, arm in arms.items():
        if len(arm.losses) != len(control.losses):
            raise ValueError(
                f"the arms differ in length from step {config.at_step} on: {len(control.losses)} steps of the "
                f"control, {len(arm.losses)} of {name}"
            )
    found: dict[str, Any] = {
        "at_step": config.at_step,
        "steps": len(control.losses),
        "control": control.figures,
        "amended": {
            name: {
                "same_batches": name in config.same_batches,
                "loss_difference": _difference(control.losses, arm.losses) if name in config.same_batches else None,
                "figures": arm.figures,
            }
            for name, arm in arms.items()
        },
    }
    for amended in found["amended"].values():
        amended["verdict"] = _verdict(amended["loss_difference"], control.figures, amended["figures"])
    text = window_text(found)
    for name, written in (("window.json", json.dumps(found, indent=1)), ("window.md", text)):
        with fsspec.open(f"{output}/{name}", "wt") as file:
            file.write(written)  # pyright: ignore[reportAttributeAccessIssue]
    print(text, flush=True)
    differences = {
        f"loss, {name}": its["loss_difference"]["mean"]
        for name, its in found["amended"].items()
        if its["loss_difference"]
    }
    return {"headline": differences, "steps": found["steps"], "amended": found["amended"]}


FIGURES = {
    "training loss": "nats per token, mean",
    "validation loss": "nats per token, at the end",
    "gradient norm": "mean",
    "drop fraction": "of assignments",
    "router entropy": "nats, at the end",
    "fullest device": "rows over the mean, mean",
    "throughput": "tokens per second, median",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Arm:
    """One arm from the fork on: `losses` of its steps, `figures` by the names of FIGURES."""

    losses: list[float]
    figures: dict[str, float | None]

    @classmethod
    def read(cls, location: str, fork: int) -> "_Arm":
        history = History.read(f"{location}/history.json")
        with fsspec.open(f"{location}/throughput.json", "rt") as file:
            rate = json.load(file)["tokens_per_second"]  # pyright: ignore[reportArgumentType]
        losses = history.losses[fork:]
        figures = {
            "training loss": statistics.fmean(losses),
            "validation loss": history.evals[-1].macro_loss,
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


def _verdict(difference: dict[str, float] | None, control: dict[str, Any], amended: dict[str, Any]) -> str:
    if difference is None:
        change = amended["validation loss"] - control["validation loss"]
        return f"other batches; validation loss {change:+.4f} nats per token at the end"
    interval = f"{difference['mean']:+.4f} nats per token, 95% interval {difference['low']:+.4f} to "
    interval += f"{difference['high']:+.4f}"
    if difference["low"] > 0:
        return f"the loss is higher: {interval}"
    if difference["high"] < 0:
        return f"the loss is lower: {interval}"
    return f"no difference seen in the loss: {interval}"


def window_text(found: dict[str, Any]) -> str:
    """The table as Markdown."""
    amended = found["amended"]
    lines = [
        f"# Control window: {found['steps']} steps from step {found['at_step']}",
        "",
        " | ".join(["| figure", "unit", "control", *amended]) + " |",
        "|---|---|" + "---:|" * (1 + len(amended)),
    ]
    for name, unit in FIGURES.items():
        control = found["control"][name]
        cells = [_cell(its["figures"][name], control) for its in amended.values()]
        lines.append(" | ".join([f"| {name}", unit, _cell(control, None), *cells]) + " |")
    lines += ["", *(f"- {name}: {its['verdict']}" for name, its in amended.items()), ""]
    return "\n".join(lines)


def _cell(value: float | None, control: float | None) -> str:
    if value is None:
        return "not measured"
    if not control:
        return f"{value:,.4g}"
    ratio = value / control
    return f"{value:,.4g} ({ratio - 1:+.1%})" if ratio < 10 else f"{value:,.4g} ({ratio:,.0f} times)"
