"""The forecast: what the ladder says the hero's loss will be, at each mark of its progress, before it starts.

Power laws are fitted to the rungs' losses at each mark, in one of several ways (steps/scaling.py). The same rungs say
how far to trust each: the top one is predicted from those below it by every method, and the factor from the top rung's
compute to the hero's is stated beside the prediction.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from executor import Input, added, execution
from steps.scaling_method import FEWEST_RUNGS, METHODS, Method


@dataclasses.dataclass(frozen=True, kw_only=True)
class ForecastConfig:
    """What is fitted, and for whom.

    Attributes:
        rungs: `history.json` of every rung of the ladder.
        target_flops: training FLOPs without the head of the whole hero run
            (`ModelConfig.training_flops_without_lm_head(tokens)`).
        asymptote: loss held fixed as the limit of the law; 1.5 is the real run's.
        marks: even parts of the progress at which a fit is made.
        extrapolate_window: progress over which a rung that stopped early is taken as a straight line.
        extrapolate_offset: added to that line.
        method: how the law is fitted (steps/scaling_method.py); what the others say is in the result too.
        estimated: what is known of the target before any rung has run, as `estimate` and `diff` show it.
    """

    rungs: tuple[Input, ...]
    target_flops: int
    asymptote: float = 1.5
    marks: int = 20
    extrapolate_window: tuple[float, float] = (0.6, 0.8)
    extrapolate_offset: float = 0.005
    method: Method = added("per-checkpoint", born="per-checkpoint")
    estimated: dict[str, float | int] = execution(default_factory=dict)

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"ForecastConfig.method: expected one of {', '.join(METHODS)}, found {self.method!r}")
        if len(self.rungs) < FEWEST_RUNGS[self.method]:
            raise ValueError(
                f"ForecastConfig.rungs: a law needs {FEWEST_RUNGS[self.method]} or more rungs by {self.method}, "
                f"found {len(self.rungs)}"
            )
        if self.marks < 1 or self.target_flops <= 0:
            raise ValueError(
                f"ForecastConfig: expected marks >= 1 and target_flops > 0, found {self.marks}, {self.target_flops}"
            )

    @property
    def fitted_with(self) -> dict[str, Any]:
        """All that the law depends on besides the rungs, as JSON."""
        names = ("asymptote", "marks", "extrapolate_window", "extrapolate_offset")
        values = {name: getattr(self, name) for name in names}
        if self.method != "per-checkpoint":  # as it was before there was a choice
            values["method"] = self.method
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def numbers(self, until: int | None) -> dict[str, float | int]:
        return self.estimated

    def predicted(self, result: Mapping[str, Any]) -> dict[str, float]:
        """The headline for this target by the law of a forecast that has run on the same rungs.

        Empty where that one was fitted in another way. The law says nothing of the range, so only `loss` is there.
        """
        from steps.scaling import PowerLaw

        law = result.get("law")
        if law is None or law["fitted_with"] != self.fitted_with:
            return {}
        asymptote = law.get("asymptote", self.asymptote)
        power = PowerLaw(asymptote=asymptote, log_amplitude=law["log_amplitude"], exponent=law["exponent"])
        return {"loss": power.loss(self.target_flops)}


def fit_forecast(config: ForecastConfig, output: str) -> dict[str, Any]:
    """Write `forecast.json` and `forecast.png`; return the final prediction, its range, its law, and the backtest."""
    import json

    import fsspec

    from executor import current, resolved
    from steps.forecast_picture import draw

    rungs = []
    for number, location in enumerate(config.rungs):
        with fsspec.open(resolved(location), "rt") as file:
            rungs.append(rung_of(json.load(file), config))  # pyright: ignore[reportArgumentType]
        current().progress(number + 1, len(config.rungs), unit="rungs")
    forecast = forecast_of(rungs, config)
    with fsspec.open(f"{output}/forecast.json", "wt") as file:
        json.dump(forecast, file, indent=1)  # pyright: ignore[reportArgumentType]
    with fsspec.open(f"{output}/forecast.png", "wb") as file:
        file.write(draw(forecast))  # pyright: ignore[reportArgumentType, reportAttributeAccessIssue]
    kept = ("final", "method", "asymptote", "extrapolation_factor", "backtest", "methods")
    law = {**forecast["law"], "fitted_with": config.fitted_with}
    return {**{key: forecast[key] for key in kept}, "law": law, "headline": forecast["final"]}


def rung_of(history: dict[str, Any], config: ForecastConfig) -> dict[str, Any]:
    """One rung as the fit sees it: its compute, its loss at every mark, and how far it really got."""
    from steps.scaling import loss_at_marks

    curve = sorted((item["progress"], item["macro_loss"]) for item in history["evals"])
    losses = loss_at_marks(
        curve, marks=config.marks, window=config.extrapolate_window, offset=config.extrapolate_offset
    )
    reached = curve[-1][0]
    return {
        "hidden": history["run"].get("hidden"),
        "flops": history["run"]["flops_without_lm_head"],
        "losses": losses,
        "reached": reached,
        "extended": reached + 0.5 / config.marks < 1,
    }


def forecast_of(rungs: list[dict[str, Any]], config: ForecastConfig) -> dict[str, Any]:
    """The content of `forecast.json`; compute at a mark is the whole run's times the progress.

    Raises:
        ValueError: the rungs are too few for the method, or no law fits them.
    """
    from steps.scaling import laws, predict_curve

    rungs = sorted(rungs, key=lambda rung: rung["flops"])
    flops, curves = [rung["flops"] for rung in rungs], [rung["losses"] for rung in rungs]
    how: Any = {"asymptote": config.asymptote, "method": config.method}
    fitted = laws(flops, curves, **how)
    marks = []
    for index, prediction in enumerate(predict_curve(flops, curves, target=config.target_flops, **how)):
        progress = (index + 1) / config.marks
        points = [
            {"hidden": rung["hidden"], "flops": rung["flops"] * progress, "loss": rung["losses"][index]}
            for rung in rungs
        ]
        marks.append({"progress": progress, **dataclasses.asdict(prediction), "points": points})
    methods = methods_of(rungs, config)
    return {
        "marks": marks,
        "final": {key: marks[-1][key] for key in ("loss", "low", "high")},
        "method": config.method,
        "asymptote": fitted[-1].asymptote,
        "law": dataclasses.asdict(fitted[-1]),
        "target_flops": config.target_flops,
        "rungs": rungs,
        "extrapolation_factor": config.target_flops / rungs[-1]["flops"],
        "backtest": methods[config.method]["backtest"],
        "methods": methods,
    }


def methods_of(rungs: list[dict[str, Any]], config: ForecastConfig) -> dict[str, dict[str, Any]]:
    """What each method says of the end of the target, and how it does on the top rung; those that the rungs are too
    few for, or fit no law of, are left out."""
    from steps.scaling import predict_curve

    found = {}
    flops, curves = [rung["flops"] for rung in rungs], [rung["losses"] for rung in rungs]
    for method, fewest in FEWEST_RUNGS.items():
        how: Any = {"asymptote": config.asymptote, "method": method}
        if len(rungs) < fewest:
            continue
        final = predict_curve(flops, curves, target=config.target_flops, **how)[-1]
        found[method] = {**dataclasses.asdict(final), "backtest": backtest_of(rungs, config.asymptote, method)}
    return found


def backtest_of(rungs: list[dict[str, Any]], asymptote: float, method: Method) -> dict[str, Any] | None:
    """The top rung's final loss predicted from the rungs below it; None with too few below."""
    from steps.scaling import predict_curve

    *below, top = rungs
    if len(below) < FEWEST_RUNGS[method]:
        return None
    flops, curves = [rung["flops"] for rung in below], [rung["losses"] for rung in below]
    predicted = predict_curve(flops, curves, target=top["flops"], asymptote=asymptote, method=method)[-1].loss
    actual = top["losses"][-1]
    return {
        "hidden": top["hidden"],
        "predicted": predicted,
        "actual": actual,
        "relative_error": predicted / actual - 1,
        "factor": top["flops"] / below[-1]["flops"],
    }
