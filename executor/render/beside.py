"""What stands below a diff: costs, then metrics, as text, Markdown and JSON."""

from typing import TYPE_CHECKING, Any

from executor.render.costs import costs_json, costs_markdown, costs_text
from executor.render.curves import metrics_json, metrics_markdown, metrics_text
from executor.render.terminal import Terminal

if TYPE_CHECKING:
    from executor.commands.beside import Beside


def beside_text(beside: "Beside", terminal: Terminal) -> str:
    parts = [costs_text(beside.costs, terminal)]
    parts += [metrics_text(aligned, terminal, step) for step, aligned in beside.metrics]
    return "".join("\n" + part for part in parts if part)


def beside_markdown(beside: "Beside", picture: str = "") -> str:
    """`picture` is the file that was drawn, to be linked."""
    parts = [costs_markdown(beside.costs)]
    parts += [metrics_markdown(aligned, step, picture) for step, aligned in beside.metrics]
    return "".join("\n" + part for part in parts if part)


def beside_json(beside: "Beside") -> dict[str, Any]:
    return {
        "costs": costs_json(beside.costs),
        "metrics": [metrics_json(aligned, step) for step, aligned in beside.metrics],
    }
