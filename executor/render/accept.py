"""What was accepted: each step with the artifact it leads to now and the changes that are covered."""

from collections.abc import Mapping
from typing import Any

from executor.render.terminal import Terminal
from executor.render.values import change_text
from executor.upkeep.accept import Accepted

_MOST_CHANGES = 12


def accepted_text(accepted: Accepted, terminal: Terminal) -> str:
    lines: list[str] = []
    for acceptance in accepted.acceptances:
        lines.append(f"{terminal.paint('accepted', 'green')}  {acceptance.name}")
        lines += terminal.wrap(f"leads to {accepted.prefix}/{acceptance.address}/{acceptance.attempt}", 4)
        for change in acceptance.changes[:_MOST_CHANGES]:
            lines += terminal.wrap(_change(change, terminal.width - 8), 4)
        if len(acceptance.changes) > _MOST_CHANGES:
            lines.append(f"    … {len(acceptance.changes) - _MOST_CHANGES} more changes")
        lines += terminal.wrap(f"reason: {acceptance.reason}", 4)
    for name in accepted.up_to_date:
        lines.append(f"{terminal.paint('as it was', 'dim')}  {name}: already up to date")
    return "\n".join(lines) + "\n"


def _change(change: Mapping[str, Any], width: int) -> str:
    if change["kind"] == "code" and change["path"] not in ("function", "version"):
        words = "new: " if change["old"] is None else "gone: " if change["new"] is None else ""
        return f"code of {words}{change['path']}"
    label = f"{change['kind']} {change['path']}"
    return f"{label}  {change_text(change['old'], change['new'], max(width - len(label) - 2, 24))}"
