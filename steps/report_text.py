"""`report.md`: a report rendered for people, in at most 80 columns where names are short. No I/O."""

from collections.abc import Callable, Sequence
from typing import Any

YARDSTICKS = {
    "byte_unigram_bits_per_byte": "byte unigram",
    "unigram_bits_per_byte": "token unigram",
    "gzip_bits_per_byte": "gzip -9",
}
"""Baselines that need no model, as `evaluation.json` names them -> as the table does."""

ADDRESS = "below the prefix"


def markdown(report: dict[str, Any]) -> str:
    """All sections that the report has something for."""
    sections: Sequence[Callable[[dict[str, Any]], list[str]]] = (
        _outcome, _ladder, _forecast, _evaluations, _health, _costs,
    )  # fmt: skip
    parts = ["\n".join(lines) for section in sections if (lines := section(report))]
    return "# Report\n\n" + "\n\n".join(parts) + "\n"


def _outcome(report: dict[str, Any]) -> list[str]:
    hero, forecast = report["hero"], report["forecast"]
    if hero is None:
        return []
    lines = [
        f"Final validation loss **{hero['final_loss']:.4f}** nats per token at {hero['progress']:.0%},",
        f"after {hero['tokens']:,} tokens; {hero['first_loss']:.4f} at the first evaluation.",
    ]
    scored = _last_scored(forecast)
    if scored:
        lines += [
            f"Forecast **{scored['predicted']:.4f}** ({scored['low']:.4f} to {scored['high']:.4f}) at"
            f" {scored['progress']:.0%}: **{scored['relative_error']:+.2%}** off,",
            f"extrapolating {forecast['extrapolation_factor']:.1f}x in compute.",
        ]
    return lines


def _ladder(report: dict[str, Any]) -> list[str]:
    rows = [
        (
            rung["name"],
            _count(rung["parameters_active"]),
            _count(rung["tokens"]),
            _compute(rung["flops_without_lm_head"]),
            f"{rung['final_loss']:.4f}",
        )
        for rung in report["rungs"]
    ]
    if not rows:
        return []
    return ["## Ladder", "", *_table(("rung", "active", "tokens", "FLOPs", "loss"), rows)]


def _forecast(report: dict[str, Any]) -> list[str]:
    forecast = report["forecast"]
    if forecast is None:
        return []
    rows = [
        (f"{mark['progress']:.0%}", f"{mark['predicted']:.4f}", f"{mark['low']:.4f} to {mark['high']:.4f}",
         _optional(mark["actual"], ".4f"), _optional(mark["relative_error"], "+.2%"))
        for mark in forecast["marks"]
    ]  # fmt: skip
    lines = ["## Forecast", "", *_table(("progress", "predicted", "leave one out", "actual", "error"), rows), ""]
    lines.append(f"By {forecast['method']}, asymptote {forecast['asymptote']:g}. Error is predicted / actual - 1.")
    tested = [found["backtest"] for found in forecast["methods"].values() if found["backtest"]]
    if tested:
        first = tested[0]
        lines.append("Last two columns: the top rung as each method would have predicted it from")
        lines.append(f"those below (d{first['hidden']}, {first['factor']:.1f}x, measured {first['actual']:.4f}).")
    rows = []
    for method, found in forecast["methods"].items():
        backtest = found["backtest"]
        top = (f"{backtest['predicted']:.4f}", f"{backtest['relative_error']:+.2%}") if backtest else ("", "")
        rows.append((method, f"{found['loss']:.4f}", f"{found['low']:.4f} to {found['high']:.4f}", *top))
    return [*lines, "", *_table(("method", "predicted", "leave one out", "top rung", "error"), rows)]


def _evaluations(report: dict[str, Any]) -> list[str]:
    evaluations = report["evaluations"]
    if not evaluations:
        return []
    first = next(iter(evaluations.values()))
    domains = list(first["bits_per_byte"])
    asked = any("multiple_choice" in evaluation for evaluation in evaluations.values())
    rows = []
    for stage, evaluation in evaluations.items():
        choice = evaluation.get("multiple_choice")
        bits = [f"{evaluation['bits_per_byte'][domain]:.3f}" for domain in domains]
        rows.append((stage, *bits, *([f"{choice['accuracy']:.1%}" if choice else "-"] if asked else [])))
    baselines = first.get("baselines", {})
    for key, name in YARDSTICKS.items():
        if key in baselines:
            rows.append((name, *(_optional(baselines[key].get(domain), ".3f") for domain in domains), *["-"] * asked))
    choice = next((e["multiple_choice"] for e in evaluations.values() if "multiple_choice" in e), None)
    if choice:
        rows.append(("chance", *["-"] * len(domains), f"{choice['chance']:.1%}"))
    lines = ["## Evaluation, bits per byte", "", *_table(("", *domains, *(["choice"] if asked else [])), rows)]
    if choice:
        lines += ["", f"choice: {choice['questions']} multiple-choice questions on held-out text."]
    return lines


def _health(report: dict[str, Any]) -> list[str]:
    hero, tuned = report["hero"], report["fine_tune"]
    lines = []
    if hero:
        drops, entropy = hero["drops"], hero["router_entropy"]
        lines += [
            f"- dropped assignments: {drops['fraction']:.3%} of {drops['assignments']:,} (sender {drops['sender']:,},"
            f" receiver {drops['receiver']:,})",
            f"- router entropy: {entropy['first']:.4f} first, {entropy['lowest']:.4f} lowest,"
            f" {entropy['last']:.4f} last",
        ]
        for name, load in hero["loads"].items():
            if load:
                lines.append(
                    f"- {name.replace('_', ' ')}, rows over the mean: {load['median']:.2f} median,"
                    f" {load['largest']:.2f} largest, {load['last']:.2f} last"
                )
    if tuned:
        lines.append(
            f"- fine-tuning, answers only: {tuned['first']:.4f} -> {tuned['last']:.4f} nats in {tuned['steps']} steps"
        )
    return ["## Training", "", *lines] if lines else []


def _costs(report: dict[str, Any]) -> list[str]:
    rows = [(name, _seconds(cost["wall_seconds"]), cost["address"]) for name, cost in report["steps"].items()]
    if not rows:
        return []
    total = sum(cost["wall_seconds"] for cost in report["steps"].values())
    table = _table(("step", "wall time", ADDRESS), [*rows, ("sum", _seconds(total), "")])
    return ["## Steps", "", *table]


def _last_scored(forecast: dict[str, Any] | None) -> dict[str, Any] | None:
    marks = forecast["marks"] if forecast else []
    return next((mark for mark in reversed(marks) if mark["actual"] is not None), None)


def _table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    """A Markdown table that is aligned as plain text too: words to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    left = [number == 0 or name == ADDRESS for number, name in enumerate(header)]

    def line(cells: tuple[str, ...]) -> str:
        aligned = [
            cell.ljust(width) if is_left else cell.rjust(width)
            for cell, width, is_left in zip(cells, widths, left, strict=True)
        ]
        return f"| {' | '.join(aligned)} |"

    rule = "|".join("-" * (width + 1) + ("-" if is_left else ":") for width, is_left in zip(widths, left, strict=True))
    return [line(header), f"|{rule}|", *map(line, rows)]


def _optional(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _compute(flops: float | None) -> str:
    return "-" if flops is None else f"{flops:.2e}"


def _count(number: float | None) -> str:
    if number is None:
        return "-"
    for size, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return str(number)


def _seconds(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 7200:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"
