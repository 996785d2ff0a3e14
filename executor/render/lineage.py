"""A lineage as a tree, and the path that `why` found."""

from typing import Any

from executor.history.lineage import Lineage, PathStep
from executor.render.status import clock_text
from executor.render.terminal import Terminal
from executor.render.values import duration_text
from executor.storage.record import InputRecord, Record

_DIGEST = 16
_FIRST = ("recipe", "scale", "arguments", "command", "commit", "modified", "run", "host", "python")


def lineage_text(lineage: Lineage, terminal: Terminal) -> str:
    """Where the artifact comes from, then the tree of its inputs; a record met before is named, not repeated."""
    root = lineage.root
    lines = [terminal.paint(root.name, "bold"), *_facts(root, terminal), ""]
    seen: set[int] = set()
    # (index, input it came through, prefix of its lines, connector)
    stack: list[tuple[int | None, InputRecord | None, str, str]] = [(0, None, "", "")]
    while stack:
        number, through, indent, connector = stack.pop()
        if number is None:
            assert through is not None
            lines.append(f"{indent}{connector}{_edge(through)}  " + terminal.paint("record is gone", "red"))
            continue
        item = lineage.ancestors[number]
        again = number in seen and item.inputs
        label = _edge(through) if through else item.record.name
        tail = " (above)" if again else ""
        head = f"{indent}{connector}{label}{tail}"
        words = _short(item.record, terminal.width - len(head) - 2)
        lines.append(f"{head}  {terminal.paint(words, 'dim')}".rstrip())
        if again:
            continue
        seen.add(number)
        below = indent + {"": "", "├─ ": "│  ", "└─ ": "   "}[connector]
        inputs = _distinct(item.inputs)
        for place, (found, source) in reversed(list(enumerate(inputs))):
            stack.append((source, found, below, "└─ " if place == len(inputs) - 1 else "├─ "))
    for location, error in lineage.missing:
        lines += ["", *terminal.wrap(f"no record at {location}: {error}")]
    return "\n".join(lines) + "\n"


def why_text(path: tuple[PathStep, ...], terminal: Terminal) -> str:
    """The path from an artifact to an ancestor, one line each."""
    lines = []
    for number, step in enumerate(path):
        head = "  " * number + (_edge(step.through) if step.through else step.record.name)
        words = _short(step.record, terminal.width - len(head) - 2)
        lines.append(f"{head}  {terminal.paint(words, 'dim')}")
    return "\n".join(lines) + "\n"


def _distinct(
    inputs: tuple[tuple[InputRecord, int | None], ...],
) -> list[tuple[InputRecord, int | None]]:
    """Inputs, those of one step and part once: two fields may hold the same."""
    found = {(i.step, i.part, source): (i, source) for i, source in reversed(inputs)}
    return list(reversed(found.values()))


def _edge(through: InputRecord) -> str:
    part = through.part if through.part.startswith("@") else f"/{through.part}" if through.part else ""
    how = f"{through.path}, execution only" if through.execution_only else through.path
    return f"{through.step}{part} ({how})"


def _short(record: Record, width: int) -> str:
    """Status where it did not succeed, digest, time: as many of them as fit."""
    parts = [] if record.status == "succeeded" else [record.status.replace("_", " ")]
    parts += [record.digest.removeprefix("sha256:")[:_DIGEST], clock_text(record.started)]
    parts = [part for part in parts if part]
    while len(parts) > 1 and len(" ".join(parts)) > width:
        parts.pop()
    return " ".join(parts)


def _facts(record: Record, terminal: Terminal) -> list[str]:
    """How this one was made; provenance is printed as it was recorded, short values only, what matters most first."""
    facts = {
        "artifact": f"{record.address}/{record.attempt}",
        "status": record.status.replace("_", " "),
        "function": record.payload.get("function", ""),
        "made": f"{clock_text(record.started)}, {duration_text(record.wall_seconds)}",
    }
    order = {name: number for number, name in enumerate(_FIRST)}
    for name, value in sorted(record.provenance.items(), key=lambda item: order.get(item[0], len(order))):
        facts[name.replace("_", " ")] = _fact(value)
    width = max(map(len, facts))
    lines: list[str] = []
    for name, value in facts.items():
        if value:
            first, *rest = terminal.wrap(value, width + 4)
            lines += [f"  {name:<{width}}  {first.strip()}", *rest]
    return lines


def _fact(value: Any) -> str:
    if isinstance(value, str | int | float):
        return "" if "\n" in str(value) else str(value)
    if isinstance(value, list):
        return " ".join(map(str, value)) if all(isinstance(item, str | int) for item in value) else ""
    if isinstance(value, dict) and all(isinstance(item, str | int) for item in value.values()):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    return ""
