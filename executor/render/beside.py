"""What stands below a diff: costs, then metrics, as text, Markdown and JSON."""

from collections.abc import Sequence
from typing import Any

from executor.comparing.alignment import Aligned
from executor.comparing.costs import Costs
from executor.render.costs import costs_json, costs_markdown, costs_text
from executor.render.curves import metrics_json, metrics_markdown, metrics_text
from executor.render.terminal import Terminal

Metrics = Sequence[tuple[str, Aligned]]
"""(step, both curves); the step is empty where there is only one pair."""


def beside_text(costs: Costs, metrics: Metrics, measured: Sequence[str], terminal: Terminal) -> str:
    """`measured` are steps that have metrics on both sides, which were not asked for."""
    parts = [costs_text(costs, terminal)]
    if measured:
        lines = terminal.wrap(f"both sides have metrics of {', '.join(measured)}: --metrics STEP shows them")
        parts.append("".join(terminal.paint(line, "dim") + "\n" for line in lines))
    parts += [metrics_text(aligned, terminal, step) for step, aligned in metrics]
    return "".join("\n" + part for part in parts if part)


def beside_markdown(costs: Costs, metrics: Metrics, picture: str = "") -> str:
    """`picture` is the file that was drawn, to be linked."""
    parts = [costs_markdown(costs), *(metrics_markdown(aligned, step, picture) for step, aligned in metrics)]
    return "".join("\n" + part for part in parts if part)


def beside_json(costs: Costs, metrics: Metrics, measured: Sequence[str]) -> dict[str, Any]:
    return {
        "costs": costs_json(costs),
        "metrics": [metrics_json(aligned, step) for step, aligned in metrics],
        "measured": list(measured),
    }
