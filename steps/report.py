"""The report that ends a run: what was predicted and what came true, what was learned, and what it took."""

import dataclasses
import statistics
from typing import Any

from executor import Input


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportConfig:
    """What a report reads; every part may be missing, and its section then is too.

    Attributes:
        forecast: `forecast.json`.
        rungs: name -> `history.json` of a rung.
        pretrain, midtrain: `history.json` of the hero's phases; the later one holds the whole run.
        fine_tune: `history.json` of fine-tuning.
        evaluations: stage -> `evaluation.json`, in the order in which they are shown.
    """

    forecast: Input | None = None
    rungs: dict[str, Input] = dataclasses.field(default_factory=dict)
    pretrain: Input | None = None
    midtrain: Input | None = None
    fine_tune: Input | None = None
    evaluations: dict[str, Input] = dataclasses.field(default_factory=dict)


def write_report(config: ReportConfig, output: str) -> dict[str, Any]:
    """Write `report.json`, `report.md` and, with a forecast, `report.png`; return the main figures.

    Wall times come from the records of the inputs; where a record is missing (outside of the engine) so is the time.
    """
    import json

    import fsspec

    from steps.report_text import markdown

    forecast = _read(config.forecast)
    hero = _read(config.midtrain) or _read(config.pretrain)
    report = {
        "rungs": [_rung(name, _read(location)) for name, location in config.rungs.items()],
        "forecast": compare(forecast, hero) if forecast else None,
        "hero": _hero(hero) if hero else None,
        "fine_tune": _curve_ends(_read(config.fine_tune)),
        "evaluations": {stage: _read(location) for stage, location in config.evaluations.items()},
        "steps": _costs(config),
    }
    with fsspec.open(f"{output}/report.json", "wt") as file:
        json.dump(report, file, indent=1)  # pyright: ignore[reportArgumentType]
    with fsspec.open(f"{output}/report.md", "wt") as file:
        file.write(markdown(report))  # pyright: ignore[reportAttributeAccessIssue]
    if forecast:
        from steps.forecast_picture import draw

        actual = [(item["progress"], item["macro_loss"]) for item in hero["evals"]] if hero else []
        with fsspec.open(f"{output}/report.png", "wb") as file:
            file.write(draw(forecast, actual))  # pyright: ignore[reportArgumentType, reportAttributeAccessIssue]
    final = report["forecast"]["marks"][-1] if forecast else {}
    return {
        "final_loss": report["hero"]["final_loss"] if hero else None,
        "predicted": final.get("predicted"),
        "relative_error": final.get("relative_error"),
    }


def compare(forecast: dict[str, Any], hero: dict[str, Any] | None) -> dict[str, Any]:
    """Predicted against actual at every mark.

    `actual` is the hero's evaluation within half a mark, None where it has none; `relative_error` is
    predicted / actual - 1, so that a positive error is a forecast that was too high.
    """
    marks = []
    half = 0.5 / len(forecast["marks"])
    evaluations = hero["evals"] if hero else []
    for mark in forecast["marks"]:
        near = min(evaluations, key=lambda item: abs(item["progress"] - mark["progress"]), default=None)
        actual = near["macro_loss"] if near and abs(near["progress"] - mark["progress"]) <= half else None
        marks.append(
            {
                "progress": mark["progress"],
                "predicted": mark["loss"],
                "low": mark["low"],
                "high": mark["high"],
                "actual": actual,
                "relative_error": None if actual is None else mark["loss"] / actual - 1,
            }
        )
    kept = ("method", "asymptote", "extrapolation_factor", "methods")
    return {"marks": marks, **{key: forecast[key] for key in kept}}


def _rung(name: str, history: dict[str, Any]) -> dict[str, Any]:
    run, last = history["run"], history["evals"][-1]
    kept = ("hidden", "parameters_active", "parameters_total", "flops_without_lm_head")
    facts = {key: run.get(key) for key in kept}
    return {
        "name": name,
        **facts,
        "tokens": last["tokens"],
        "final_loss": last["macro_loss"],
        "progress": last["progress"],
    }


def _hero(history: dict[str, Any]) -> dict[str, Any]:
    run, evaluations = history["run"], history["evals"]
    sender, receiver = sum(history["sender_dropped"]), sum(history["receiver_dropped"])
    assignments = sum(history["assignments"])
    entropy = history["router_entropy"]
    return {
        "run": run,
        "final_loss": evaluations[-1]["macro_loss"],
        "progress": evaluations[-1]["progress"],
        "tokens": evaluations[-1]["tokens"],
        "first_loss": evaluations[0]["macro_loss"],
        "losses": evaluations[-1]["losses"],
        "bits_per_byte": evaluations[-1]["bits_per_byte"],
        "drops": {
            "sender": sender,
            "receiver": receiver,
            "assignments": assignments,
            "fraction": (sender + receiver) / max(1, assignments),
        },
        "router_entropy": {"first": entropy[0], "lowest": min(entropy), "last": entropy[-1]},
        "loads": {name: _load(history.get(name)) for name in ("largest_device", "largest_pair")},
    }


def _load(over_mean: list[float] | None) -> dict[str, float] | None:
    """Median, largest and last; None for a run that did not measure it."""
    if not over_mean:
        return None
    return {"median": statistics.median(over_mean), "largest": max(over_mean), "last": over_mean[-1]}


def _curve_ends(history: dict[str, Any] | None) -> dict[str, Any] | None:
    """First and last training loss, each a mean over a tenth of the run."""
    if not history:
        return None
    losses = history["losses"]
    tenth = max(1, len(losses) // 10)
    return {"steps": len(losses), "first": sum(losses[:tenth]) / tenth, "last": sum(losses[-tenth:]) / tenth}


def _costs(config: ReportConfig) -> dict[str, dict[str, Any]]:
    """Step -> address and wall seconds of the attempt that was read, one entry for each step among the inputs."""
    from executor import MarinadeError, read_record, resolved

    costs = {}
    phases = (config.forecast, *config.rungs.values(), config.pretrain, config.midtrain, config.fine_tune)
    for location in (*phases, *config.evaluations.values()):
        if location is None:
            continue
        try:
            record = read_record(resolved(location))
        except MarinadeError:  # not written by a step: a file of the user's, or a test
            continue
        costs[record.name] = {"address": record.address, "wall_seconds": record.wall_seconds}
    return costs


def _read(location: Input | None) -> Any:
    import json

    import fsspec

    from executor import resolved

    if location is None:
        return None
    with fsspec.open(resolved(location), "rt") as file:
        return json.load(file)  # pyright: ignore[reportArgumentType]
