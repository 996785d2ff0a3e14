"""A diff as text for a terminal and as Markdown for a pull request: causes first, then what inherits from them."""

from collections.abc import Iterable

from executor.compare import Cause, Diff, Inherited, Note
from executor.fields import Change
from executor.render.terminal import Terminal
from executor.render.values import change_text, change_texts

_MOST_CHANGES = 24
_MOST_NAMES = 40


def diff_text(diff: Diff, terminal: Terminal) -> str:
    lines = [f"a  {diff.a}", f"b  {diff.b}", ""]
    if not diff.different:
        lines.append(f"no difference: {_steps(diff.identical)} of equal key")
    elif not diff.identical and not diff.causes and not diff.renamed:
        lines.append("the two have no step in common")
    if diff.causes:
        lines.append(terminal.paint(f"{len(diff.causes)} cause{_s(diff.causes)}", "bold"))
        for cause in diff.causes:
            lines += _cause(cause, terminal)
        lines.append("")
    if diff.inherited:
        verb = "inherits" if len(diff.inherited) == 1 else "inherit"
        lines.append(terminal.paint(f"{len(diff.inherited)} {verb}", "bold"))
        for causes, names in _by_causes(diff.inherited):
            lines += terminal.wrap(", ".join(_cut(names)), 2)
            lines += [terminal.paint(line, "dim") for line in terminal.wrap("from " + ", ".join(_cut(causes)), 6)]
        lines.append("")
    for title, color, names in (("added", "green", diff.added), ("removed", "red", diff.removed)):
        if names:
            lines.append(terminal.paint(f"{len(names)} {title}", "bold", color))
            lines += [*terminal.wrap(", ".join(_cut(names)), 2), ""]
    if diff.renamed:
        lines.append(terminal.paint(f"{len(diff.renamed)} renamed", "bold"))
        lines += [*(f"  {old} -> {new}" for old, new in _cut_pairs(diff.renamed)), ""]
    if diff.different:
        lines.append(f"{_steps(diff.identical)} identical")
    if diff.notes:
        lines.append("")
        for note in diff.notes:
            lines += [terminal.paint(line, "dim") for line in terminal.wrap("note: " + note_text(note), 0)]
    return "\n".join(lines).rstrip() + "\n"


def diff_markdown(diff: Diff) -> str:
    """For a pull request: a sentence, a table of causes, the rest folded away."""
    lines = [f"### `{diff.a}` → `{diff.b}`", ""]
    if not diff.different:
        return (
            "\n".join([*lines, f"No difference: {_steps(diff.identical)} of equal key.", "", *_markdown_notes(diff)])
            + "\n"
        )
    parts = [f"{len(diff.causes)} cause{_s(diff.causes)}"]
    parts += [f"{len(diff.inherited)} inherit" + ("s" if len(diff.inherited) == 1 else "")] if diff.inherited else []
    parts += [f"{len(diff.added)} added"] if diff.added else []
    parts += [f"{len(diff.removed)} removed"] if diff.removed else []
    lines += [f"**{', '.join(parts)}**, {diff.identical} identical.", ""]
    if diff.causes:
        lines += ["| step | what | old | new |", "|---|---|---|---|"]
        for cause in diff.causes:
            name = f"`{cause.step}`" + (f"<br>amends `{cause.amends}`" if cause.amends else "")
            for number, change in enumerate(cause.changes):
                old, new = _two_values(change)
                lines.append(
                    f"| {name if number == 0 else ''} | {_cell(_what(change))} | {_cell(old)} | {_cell(new)} |"
                )
        lines.append("")
    for title, names in (("Added", diff.added), ("Removed", diff.removed)):
        if names:
            lines += [f"{title}: " + ", ".join(f"`{name}`" for name in names) + ".", ""]
    if diff.renamed:
        lines += ["Renamed: " + ", ".join(f"`{old}` → `{new}`" for old, new in diff.renamed) + ".", ""]
    if diff.inherited:
        lines += [f"<details><summary>{len(diff.inherited)} inherit</summary>", ""]
        for causes, names in _by_causes(diff.inherited):
            sources = ", ".join(f"`{name}`" for name in causes)
            lines.append(f"- {', '.join(f'`{name}`' for name in names)} from {sources}")
        lines += ["", "</details>", ""]
    return "\n".join([*lines, *_markdown_notes(diff)]).rstrip() + "\n"


def note_text(note: Note, width: int = 60) -> str:
    """One note in words."""
    if note.kind == "pinned":
        names = ", ".join(change.path for change in note.changes)
        return f"{note.step}: pinned code drifted, nothing reruns: {names}"
    fields = ", ".join(f"{change.path} {change_text(change.old, change.new, width)}" for change in note.changes)
    return f"{note.step}: {fields} (execution only, in no key)"


def _cause(cause: Cause, terminal: Terminal) -> list[str]:
    name = terminal.paint(cause.step, "bold", "yellow")
    lines = [f"  {name}  amends {cause.amends}" if cause.amends else f"  {name}"]
    shown = cause.changes[:_MOST_CHANGES]
    width = min(max((len(_what(change)) for change in shown if not _is_code(change)), default=0), 36)
    for change in shown:
        what = _what(change)
        if _is_code(change):
            lines.append(f"    {what} {_change_words(change, 0)}")
            continue
        room = max(terminal.width - 4 - max(width, len(what)) - 2, 28)
        text = _change_words(change, room)
        if len(what) <= width and 4 + width + 2 + len(text) <= terminal.width:
            lines.append(f"    {what:<{width}}  {text}")
        else:
            lines += [f"    {what}", *terminal.wrap(_change_words(change, terminal.width - 8), 8)]
    if len(cause.changes) > len(shown):
        lines.append(f"    … {len(cause.changes) - len(shown)} more")
    return lines


def _what(change: Change) -> str:
    if _is_code(change) and change.path != "identity rules":
        return f"code of {change.path}"
    return change.path or "config"


def _is_code(change: Change) -> bool:
    """Code whose values are fingerprints, which say nothing to people."""
    named = change.path in ("function", "version") or change.path.startswith("packages.")
    return change.kind == "code" and not named


def _change_words(change: Change, width: int) -> str:
    if _is_code(change):
        return "added" if change.old is None else "removed" if change.new is None else "changed"
    return change_text(change.old, change.new, width)


def _two_values(change: Change) -> tuple[str, str]:
    if _is_code(change):
        return "", _change_words(change, 0)
    return change_texts(change.old, change.new, 160)


def _cell(text: str) -> str:
    if not text:
        return ""
    return "`" + text.replace("|", "\\|").replace("`", "'") + "`"


def _markdown_notes(diff: Diff) -> list[str]:
    return [f"- note: {note_text(note)}" for note in diff.notes]


def _by_causes(inherited: Iterable[Inherited]) -> list[tuple[tuple[str, ...], list[str]]]:
    groups: dict[tuple[str, ...], list[str]] = {}
    for step in inherited:
        groups.setdefault(step.causes, []).append(step.step)
    return list(groups.items())


def _cut(names: Iterable[str]) -> list[str]:
    names = list(names)
    return names if len(names) <= _MOST_NAMES else [*names[:_MOST_NAMES], f"… {len(names) - _MOST_NAMES} more"]


def _cut_pairs(pairs: tuple[tuple[str, str], ...]) -> Iterable[tuple[str, str]]:
    return pairs[:_MOST_NAMES]


def _steps(count: int) -> str:
    return f"{count} step" if count == 1 else f"{count} steps"


def _s(items: tuple[object, ...]) -> str:
    return "" if len(items) == 1 else "s"
