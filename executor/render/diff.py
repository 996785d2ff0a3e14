"""A diff as text for a terminal: causes first, then what inherits from them. No line is longer than the terminal."""

import textwrap
from collections.abc import Iterable, Sequence

from executor.comparing.changed import ChangedRecipe
from executor.comparing.compare import Cause, Diff, Inherited, Note, is_text
from executor.comparing.fields import Change
from executor.render.terminal import Terminal
from executor.render.values import change_text, value_text

_MOST_CHANGES = 24
_MOST_NAMES = 40
_MOST_CODE_LINES = 16
_NO_LIMIT = 10**9


def diff_text(diff: Diff, terminal: Terminal, *, full: bool = False) -> str:
    """`full` leaves nothing out: no list, value or code is cut."""
    show = _Text(terminal, full)
    lines = [*show.wrap(f"a  {diff.a}", 0), *show.wrap(f"b  {diff.b}", 0), ""]
    if diff.shares_nothing:
        lines += show.wrap(nothing_shared(diff), 0)
        return "\n".join([*lines, *show.notes(diff.notes)]) + "\n"
    if not diff.different:
        lines.append(f"no difference: {steps_text(diff.identical)} of equal key")
    elif not diff.identical and not diff.causes and not diff.renamed:
        lines.append("the two have no step in common")
    if diff.causes:
        lines.append(terminal.paint(f"{len(diff.causes)} cause{plural(diff.causes)}", "bold"))
        for causes in alike(diff.causes):
            lines += show.causes(causes)
        lines.append("")
    if diff.inherited:
        verb = "inherits" if len(diff.inherited) == 1 else "inherit"
        lines.append(terminal.paint(f"{len(diff.inherited)} {verb}", "bold"))
        for causes, names in by_causes(diff.inherited):
            lines += show.names(names, 2)
            lines += [terminal.paint(line, "dim") for line in show.names(causes, 6, "from ")]
        lines.append("")
    for title, color, names in (("added", "green", diff.added), ("removed", "red", diff.removed)):
        if names:
            lines.append(terminal.paint(f"{len(names)} {title}", "bold", color))
            lines += [*show.names(names, 2), ""]
    if diff.renamed:
        lines.append(terminal.paint(f"{len(diff.renamed)} renamed", "bold"))
        for pair in show.cut([f"{old} -> {new}" for old, new in diff.renamed]):
            lines += show.wrap(pair, 2)
        lines.append("")
    if diff.different:
        lines.append(f"{steps_text(diff.identical)} identical")
    return "\n".join([*lines, *show.notes(diff.notes)]).rstrip() + "\n"


def changed_text(against: str, found: Sequence[ChangedRecipe], terminal: Terminal, *, full: bool = False) -> str:
    """Every recipe that changed, one after the other."""
    if not found:
        return f"{against}: the steps of no recipe differ\n"
    show = _Text(terminal, full)
    differ = sum(one.diff is None or one.diff.different for one in found)
    parts = ["\n".join(show.wrap(f"{against}: {differ} of the {len(found)} below differ", 0))]
    for one in found:
        if one.diff is None:
            lines = [*show.wrap(f"{one.recipe} could not be compared:", 0)]
            parts.append(
                "\n".join([*lines, *(part for line in one.problem.splitlines() for part in show.wrap(line, 2))])
            )
        else:
            parts.append(diff_text(one.diff, terminal, full=full).rstrip())
    return "\n\n".join(parts) + "\n"


def nothing_shared(diff: Diff) -> str:
    """That two sides have nothing in common, in a sentence."""
    return (
        f"the two share nothing: a has {steps_text(len(diff.removed))}, b has {steps_text(len(diff.added))}, and no "
        "two of them have a key, a function or a config in common, so there is nothing to compare"
    )


def note_text(note: Note, width: int = 60) -> str:
    """One note in words."""
    if note.kind == "pinned":
        names = ", ".join(change.path for change in note.changes)
        return f"{note.step}: pinned code drifted, nothing reruns: {names}"
    if note.kind == "accepted":
        return f"{note.step}: its key was accepted, it does not run again: {note.changes[0].new}"
    fields = ", ".join(f"{change.path} {change_words(change, width)}" for change in note.changes)
    return f"{note.step}: {fields} (execution only, in no key)"


def what(change: Change) -> str:
    """What changed, for people."""
    return f"code of {change.path}" if is_text(change) else change.path or "config"


def change_words(change: Change, width: int) -> str:
    """How it changed, in about `width` characters."""
    if is_text(change):
        return "added" if change.old is None else "removed" if change.new is None else "changed"
    if change.op == "moved":
        return f"moved from {change.old} to {change.new}"
    if change.op == "added":
        return f"added: {value_text(change.new, width - 7)}"
    if change.op == "removed":
        return f"removed: {value_text(change.old, width - 9)}"
    return change_text(change.old, change.new, width)


def alike(causes: Iterable[Cause]) -> list[list[Cause]]:
    """Steps with the same changes together: a helper that five of them call is shown once."""
    groups: dict[object, list[Cause]] = {}
    for cause in causes:
        same = tuple((change.kind, change.path, change.op, repr((change.old, change.new))) for change in cause.changes)
        groups.setdefault((same, cause.amends), []).append(cause)
    return list(groups.values())


def by_causes(inherited: Iterable[Inherited]) -> list[tuple[tuple[str, ...], list[str]]]:
    """Steps that inherit from the same causes together."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for step in inherited:
        groups.setdefault(step.causes, []).append(step.step)
    return list(groups.items())


def steps_text(count: int) -> str:
    """`1 step`, `2 steps`."""
    return f"{count:,} step" if count == 1 else f"{count:,} steps"


def plural(items: Sequence[object]) -> str:
    """An s where there is not exactly one."""
    return "" if len(items) == 1 else "s"


class _Text:
    """Lines for one terminal; remembers which code it has shown."""

    def __init__(self, terminal: Terminal, full: bool) -> None:
        self.terminal, self.full = terminal, full
        self.shown: set[tuple[object, ...]] = set()

    def wrap(self, text: str, indent: int) -> list[str]:
        """Within the width whatever comes: a name that is longer is broken."""
        width = max(self.terminal.width - indent, 20)
        lines = textwrap.wrap(text, width, break_long_words=True, break_on_hyphens=False)
        return [" " * indent + line for line in lines]

    def cut(self, names: Sequence[str]) -> list[str]:
        most = _NO_LIMIT if self.full else _MOST_NAMES
        return [*names] if len(names) <= most else [*names[:most], f"… {len(names) - most:,} more (--full)"]

    def names(self, names: Sequence[str], indent: int, before: str = "") -> list[str]:
        return self.wrap(before + ", ".join(self.cut(names)), indent)

    def causes(self, causes: list[Cause]) -> list[str]:
        paint, first = self.terminal.paint, causes[0]
        amends = f"  amends {first.amends}" if first.amends else ""
        if len(causes) == 1 and len(first.step + amends) + 2 <= self.terminal.width:
            lines = [f"  {paint(first.step, 'bold', 'yellow')}{amends}"]
        else:
            named = self.names([cause.step for cause in causes], 2) + (self.wrap(amends, 4) if amends else [])
            lines = [paint(line, "bold", "yellow") for line in named]
        changes = first.changes if self.full else first.changes[:_MOST_CHANGES]
        width = self._column(changes)
        for change in changes:
            lines += self.code(change) if is_text(change) else self.value(change, width)
        if len(first.changes) > len(changes):
            lines.append(f"    … {len(first.changes) - len(changes)} more (--full)")
        return lines

    def _column(self, changes: Iterable[Change]) -> int:
        """Width of the paths that leaves the most values beside theirs: of the longest, or of the shorter ones."""
        sizes = [(len(what(change)), len(change_words(change, 28))) for change in changes if not is_text(change)]
        longest = max((path for path, _ in sizes), default=0)
        shorter = max((path for path, _ in sizes if path <= 36), default=0)

        def below(column: int) -> int:
            return sum(path > column or 4 + column + 2 + value > self.terminal.width for path, value in sizes)

        return min(longest, shorter, key=below)

    def value(self, change: Change, width: int) -> list[str]:
        named = what(change)
        room = max(self.terminal.width - 4 - max(width, len(named)) - 2, 28)
        text = change_words(change, _NO_LIMIT if self.full else room)
        if len(named) <= width and 4 + width + 2 + len(text) <= self.terminal.width:
            return [f"    {named:<{width}}  {text}"]
        below = change_words(change, _NO_LIMIT if self.full else self.terminal.width - 8)
        return [*self.wrap(named, 4), *self.wrap(below, 8)]

    def code(self, change: Change) -> list[str]:
        lines = self.wrap(f"{what(change)} {change_words(change, 0)}", 4)
        seen = (change.path, change.old, change.new)
        if change.code is None:
            return lines
        if seen in self.shown:
            return [*lines, "      (shown above)"]
        self.shown.add(seen)
        if change.code.missing:
            return [*lines, *self.wrap(f"({change.code.missing})", 6)]
        most = _NO_LIMIT if self.full else _MOST_CODE_LINES
        for line in change.code.lines[:most]:
            lines += self._code_line(line.expandtabs(4))
        if len(change.code.lines) > most:
            lines.append(f"      … {len(change.code.lines) - most:,} more lines (--full)")
        return lines

    def _code_line(self, line: str) -> list[str]:
        room = max(self.terminal.width - 6, 20)
        if not self.full and len(line) > room:
            line = line[: room - 1] + "…"
        color = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1])
        parts = [line[i : i + room] for i in range(0, len(line), room)] or [""]
        return [(" " * 6 + self.terminal.paint(part, *([color] if color else []))).rstrip() for part in parts]

    def notes(self, notes: Iterable[Note]) -> list[str]:
        lines: list[str] = []
        for note in notes:
            text = note_text(note, _NO_LIMIT if self.full else 60)
            if note.kind == "pinned" and not self.full:
                names = self.cut([change.path for change in note.changes])
                text = f"{note.step}: pinned code drifted, nothing reruns: {', '.join(names)}"
            lines += [self.terminal.paint(line, "dim") for line in self.wrap("note: " + text, 0)]
            if note.kind == "pinned" and self.full:
                for change in note.changes:
                    lines += self.code(change)
        return ["", *lines] if lines else []
