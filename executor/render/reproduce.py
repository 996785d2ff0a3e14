"""What came of building a recipe again, as text and as JSON: its origin, the keys, and what a rerun wrote."""

from collections.abc import Iterator, Sequence
from typing import Any

from executor.comparing.reproduction import Keys, Output
from executor.history.lineage import Lineage
from executor.history.origin import Origin
from executor.render.as_json import change_json, diff_json
from executor.render.diff import diff_text
from executor.render.terminal import Terminal
from executor.render.values import change_text
from executor.storage.record import Record

_DIGEST, _MOST = 20, 8


def origin_text(record: Record, origin: Origin, terminal: Terminal) -> str:
    """What is built, and what the record does not hold of it."""
    with_changes = ", with the recorded changes" if origin.patch else ""
    settings = "".join(f", {override}" for override in origin.overrides)
    lines = [
        terminal.paint(f"{record.address}/{record.attempt}", "bold"),
        *terminal.wrap(f"{origin.recipe}, scale {origin.scale}{settings}", 2),
        *terminal.wrap(f"commit {origin.commit}{with_changes}", 2),
    ]
    for note in origin.notes:
        lines += [terminal.paint(line, "yellow") for line in terminal.wrap(f"note: {note}", 2)]
    return "\n".join([*lines, ""]) + "\n"


def keys_text(keys: Keys, lineage: Lineage, terminal: Terminal) -> str:
    """One line where they agree, else what differs, causes first."""
    root = lineage.root
    if keys.agree:
        found = terminal.paint("keys agree", "green", "bold")
        return f"{found}: {root.name} {keys.recorded}\n"
    lines = [
        f"{terminal.paint('keys differ', 'red', 'bold')}: {root.name}",
        f"  recorded  {keys.recorded}",
        f"  rebuilt   {keys.rebuilt}",
    ]
    lines += [
        line
        for location, why in lineage.missing
        for line in terminal.wrap(f"no record at {location} ({why}); what it was made from is not compared", 2)
    ]
    return "\n".join([*lines, "", diff_text(keys.diff, terminal)])


def outputs_text(outputs: Sequence[Output], prefix: str, terminal: Terminal) -> str:
    """A line for every step, what differs below it, then the sum."""
    lines = ["", terminal.paint("written again", "bold")]
    for output in outputs:
        word = terminal.paint("equal  ", "green") if output.equal else terminal.paint("DIFFERS", "red", "bold")
        lines.append(f"  {word}  {output.step}  {terminal.paint(_how(output), 'dim')}".rstrip())
        lines += [line for words in _what(output) for line in terminal.wrap(words, 11)]
    equal = sum(output.equal for output in outputs)
    lines += ["", *terminal.wrap(f"{equal} of {len(outputs)} steps equal; the rerun is kept under {prefix}")]
    if any(output.by == "result" for output in outputs):
        lines += terminal.wrap("checkpoints are compared by what their step returned: equal runs write other bytes")
    return "\n".join(lines) + "\n"


def _how(output: Output) -> str:
    return "by what it returned" if output.by == "result" else output.recorded[:_DIGEST]


def _what(output: Output) -> Iterator[str]:
    if not output.rerun:
        yield "the rerun has no such artifact"
        return
    for data in output.inputs:
        yield f"read other data: {data}"
    yield from _cut([f"file {path}" for path in output.files])
    yield from _cut([f"result {change.path}  {change_text(change.old, change.new)}" for change in output.changes])


def _cut(lines: Sequence[str]) -> list[str]:
    rest = len(lines) - _MOST
    return [*lines[:_MOST], *([f"… {rest} more"] if rest > 0 else [])]


def reproduction_json(
    record: Record, origin: Origin, keys: Keys, prefix: str, outputs: Sequence[Output] | None
) -> dict[str, Any]:
    """`outputs` is null where nothing was run."""
    return {
        "address": record.address,
        "attempt": record.attempt,
        "step": record.name,
        "commit": origin.commit,
        "recipe": origin.recipe,
        "scale": origin.scale,
        "overrides": list(origin.overrides),
        "patched": bool(origin.patch),
        "notes": list(origin.notes),
        "keys": {"agree": keys.agree, "recorded": keys.recorded, "rebuilt": keys.rebuilt},
        "diff": diff_json(keys.diff),
        "prefix": prefix,
        "outputs": None if outputs is None else [_output_json(output) for output in outputs],
    }


def _output_json(output: Output) -> dict[str, Any]:
    return {
        "step": output.step,
        "equal": output.equal,
        "by": output.by,
        "recorded": output.recorded,
        "rerun": output.rerun,
        "files": list(output.files),
        "changes": [change_json(change) for change in output.changes],
        "inputs": list(output.inputs),
    }
