"""Numbers of steps as a table that fits 80 columns, totals below."""

from executor.planning.estimate import Estimate, StepEstimate
from executor.render.terminal import Terminal, columns
from executor.render.values import bytes_text, count_text, duration_text

_COLUMNS = (
    ("params", "parameters_total"),
    ("active", "parameters_active"),
    ("tokens", "tokens"),
    ("FLOPs", "flops_total"),
    ("devices", "devices"),
    ("mem/dev", "memory_per_device_bytes"),
    ("step", "step_seconds"),
    ("days", "days"),
    ("dev-hours", "device_hours"),
)
_KNOWN = {name for _, name in _COLUMNS} | {"forward_flops_per_token"}
_MODEL = ("parameters_total", "parameters_active", "tokens", "flops_total")
_TOTALS = ("tokens", "flops_total", "days", "device_hours")


def estimate_text(estimate: Estimate, terminal: Terminal) -> str:
    lines = [f"{estimate.recipe}, scale {estimate.scale}", ""]
    if not estimate.steps:
        return "\n".join([*lines, "no step of this recipe offers numbers"]) + "\n"
    shown = [column for column in _COLUMNS if any(column[1] in step.numbers for step in estimate.steps)]
    rows = [["step", *(title for title, _ in shown)]]
    rows += [[step.name, *(number_text(name, step.numbers.get(name)) for _, name in shown)] for step in estimate.steps]
    total = ["total", *(number_text(name, estimate.total(name)) if name in _TOTALS else "" for _, name in shown)]
    rows.append(total)
    for part in _tables(rows, sum(name in _MODEL for _, name in shown), terminal.width):
        table = columns(part, right=range(1, len(part[0])))
        lines += [terminal.paint(table[0], "bold"), *table[1:-1], terminal.paint(table[-1], "bold"), ""]
    for step in estimate.steps:
        lines += _other(step, terminal)
    return "\n".join(lines).rstrip() + "\n"


def number_text(name: str, value: float | int | None) -> str:
    """One number; its name says the unit."""
    if value is None:
        return "-"
    if "bytes" in name:
        return bytes_text(value)
    if name.endswith("seconds"):
        return duration_text(value) if value >= 1 else f"{value * 1000:.3g} ms"
    if name == "days":
        return f"{value:.2f}" if value >= 0.01 or value == 0 else f"{value:.1e}"
    return count_text(value)


def _tables(rows: list[list[str]], model: int, width: int) -> list[list[list[str]]]:
    """One table where it fits, else what is trained (`model` columns) above what it takes."""
    fits = max(map(len, columns(rows))) <= width
    halves = [range(1, len(rows[0]))] if fits else [range(1, 1 + model), range(1 + model, len(rows[0]))]
    return [[[row[0], *(row[i] for i in half)] for row in rows] for half in halves if half]


def _other(step: StepEstimate, terminal: Terminal) -> list[str]:
    """Numbers that have no column, and how far the step is wanted."""
    words = []
    if step.wanted_until is not None:
        words.append(f"wanted, and counted, only as far as step {step.wanted_until}")
    words += [
        f"{name.replace('_', ' ')} {number_text(name, value)}"
        for name, value in step.numbers.items()
        if name not in _KNOWN
    ]
    return terminal.wrap(f"{step.name}: {', '.join(words)}") if words else []
