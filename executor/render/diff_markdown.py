"""A diff as Markdown for a comment on a pull request: a sentence, a table of causes, the rest folded away.

Invariant: never longer than GitHub takes; what does not fit is left out in whole sections, and said so.
"""

from collections.abc import Iterable, Sequence

from executor.comparing.changed import ChangedRecipe
from executor.comparing.compare import Cause, Diff, Note, is_text
from executor.comparing.fields import Change
from executor.render.diff import alike, by_causes, change_words, note_text, nothing_shared, plural, steps_text, what
from executor.render.values import change_texts

MOST_CHARACTERS = 65_536
"""GitHub refuses a longer comment."""
_ROOM = 60_000
_MOST_CODE_LINES = 200
_MOST_NAMES = 200
_CELL = 160
_ROWS = 25
"""Rows of a table that are left out together."""
_NO_LIMIT = 10**9


def diff_markdown(diff: Diff, *, full: bool = False, room: int = _ROOM) -> str:
    """At most `room` characters, and a line on what was left out; `full` cuts no value, list or code before that."""
    head = [f"### `{diff.a}` → `{diff.b}`", ""]
    if diff.shares_nothing:
        return fitted(["\n".join([*head, nothing_shared(diff)[0].upper() + nothing_shared(diff)[1:] + "."])], room)
    if not diff.different:
        said = [*head, f"No difference: {steps_text(diff.identical)} of equal key.", "", *_notes(diff.notes)]
        return fitted(["\n".join(said)], room)
    blocks = ["\n".join([*head, f"**{', '.join(_counts(diff))}**, {diff.identical:,} identical."])]
    groups = alike(diff.causes)
    if groups:
        blocks.append("| step | what | old | new |\n|---|---|---|---|")
        for group in groups:
            rows = _rows(group, full)
            parts = (rows[first : first + _ROWS] for first in range(0, len(rows), _ROWS))
            blocks += ["\n".join(["\r", *part]) for part in parts]
    for title, names in (("Added", diff.added), ("Removed", diff.removed)):
        if names:
            blocks.append(f"{title}: {_names(names, full)}.")
    if diff.renamed:
        pairs = [f"{old}` → `{new}" for old, new in diff.renamed]
        blocks.append(f"Renamed: {_names(pairs, full)}.")
    blocks += _code(groups, full)
    if diff.inherited:
        lines = [f"<details><summary>{len(diff.inherited):,} {_verb(diff)}</summary>", ""]
        lines += [f"- {_names(names, full)} from {_names(causes, full)}" for causes, names in by_causes(diff.inherited)]
        blocks.append("\n".join([*lines, "", "</details>"]))
    if diff.notes:
        blocks.append("\n".join(_notes(diff.notes)))
    return fitted(blocks, room)


def changed_markdown(against: str, found: Sequence[ChangedRecipe], *, full: bool = False) -> str:
    """Every recipe that changed, in half the room of a comment, as two scales stand in one; the recipes share it."""
    if not found:
        return f"**Recipes**, {against}: the steps of none differ.\n"
    differ = sum(one.diff is None or one.diff.different for one in found)
    verb = "recipe differs" if differ == 1 else "recipes differ"
    room = max(_ROOM // 2 // len(found) - 100, 1_000)
    blocks = [f"**{differ} {verb}**, {against}."]
    for one in found:
        if one.diff is None:
            text = one.problem.replace("```", "~~~")[-2_000:]
            blocks.append(f"### `{one.recipe}`\n\nCould not be compared:\n\n```text\n{text}\n```")
        else:
            blocks.append(diff_markdown(one.diff, full=full, room=room).rstrip())
    return fitted(blocks, _ROOM // 2 + 1_000)


def fitted(blocks: Sequence[str], room: int) -> str:
    """Blocks with blank lines between, as many as fit from the front; one that begins with \\r continues a table."""
    text, left_out = "", 0
    for block in blocks:
        joined = text + (block.removeprefix("\r") if block.startswith("\r") else ("\n\n" if text else "") + block)
        if left_out or len(joined) > room - 200:
            left_out += 1
            if not text:
                text = block[: room - 200].rstrip() + " …"
            continue
        text = joined
    if left_out:
        more = "section does" if left_out == 1 else "sections do"
        text += f"\n\n… {left_out:,} more {more} not fit into a comment; the same command shows all of it locally."
    return text.rstrip() + "\n"


def _verb(diff: Diff) -> str:
    return "inherits" if len(diff.inherited) == 1 else "inherit"


def _counts(diff: Diff) -> list[str]:
    parts = [f"{len(diff.causes):,} cause{plural(diff.causes)}"]
    parts += [f"{len(diff.inherited):,} {_verb(diff)}"] if diff.inherited else []
    parts += [f"{len(diff.added):,} added"] if diff.added else []
    return parts + ([f"{len(diff.removed):,} removed"] if diff.removed else [])


def _rows(causes: Sequence[Cause], full: bool) -> list[str]:
    names = "<br>".join(f"`{cause.step}`" for cause in causes[: _NO_LIMIT if full else _MOST_NAMES])
    name = names + (f"<br>amends `{causes[0].amends}`" if causes[0].amends else "")
    rows = []
    for number, change in enumerate(causes[0].changes):
        old, new = _two_values(change, _NO_LIMIT if full else _CELL)
        rows.append(f"| {name if number == 0 else ''} | {_cell(what(change))} | {_cell(old)} | {_cell(new)} |")
    return rows


def _two_values(change: Change, width: int) -> tuple[str, str]:
    if is_text(change):
        return "", change_words(change, 0)
    if change.op == "moved":
        return f"position {change.old}", f"position {change.new}"
    old, new = change_texts(change.old, change.new, width)
    return "" if change.op == "added" else old, "removed" if change.op == "removed" else new


def _code(groups: Iterable[Sequence[Cause]], full: bool) -> list[str]:
    """Every changed function once, folded."""
    blocks, shown = [], set()
    for change in (change for group in groups for change in group[0].changes if change.code is not None):
        seen = (change.path, change.old, change.new)
        if seen in shown or change.code is None:
            continue
        shown.add(seen)
        if change.code.missing:
            blocks.append(f"`{change.path}`: {change.code.missing}.")
            continue
        most = _NO_LIMIT if full else _MOST_CODE_LINES
        lines = list(change.code.lines[:most])
        if len(change.code.lines) > most:
            lines.append(f"… {len(change.code.lines) - most:,} more lines")
        fence = "`" * max(3, *(_longest_ticks(line) + 1 for line in lines))
        summary = f"<details><summary>code of <code>{change.path}</code></summary>"
        blocks.append("\n".join([summary, "", f"{fence}diff", *lines, fence, "", "</details>"]))
    return blocks


def _longest_ticks(line: str) -> int:
    return max((len(run) for run in "".join(c if c == "`" else " " for c in line).split()), default=0)


def _names(names: Sequence[str], full: bool) -> str:
    most = _NO_LIMIT if full else _MOST_NAMES
    more = f", … {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(f"`{name}`" for name in names[:most]) + more


def _cell(text: str) -> str:
    if not text:
        return ""
    return "`" + text.replace("|", "\\|").replace("`", "'").replace("\n", " ") + "`"


def _notes(notes: Iterable[Note]) -> list[str]:
    return [f"- note: {note_text(note)}" for note in notes]
