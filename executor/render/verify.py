"""What was found wrong with artifacts: a line each, what is wrong below it, then what to type next."""

from collections.abc import Sequence

from executor.render.terminal import Terminal
from executor.render.values import bytes_text
from executor.upkeep.verify import Verified

_MOST_PROBLEMS = 10


def verified_text(verified: Verified, terminal: Terminal) -> str:
    """One artifact."""
    state = terminal.paint("DAMAGED", "red", "bold") if verified.problems else terminal.paint("ok     ", "green")
    where = f"{verified.address}/{verified.attempt}" if verified.attempt else verified.address
    lines = [f"{state}  {verified.name}  {_extent(verified)}"]
    if verified.problems:
        lines += terminal.wrap(where, 9)
        lines += [line for problem in verified.problems[:_MOST_PROBLEMS] for line in terminal.wrap(problem, 9)]
        if len(verified.problems) > _MOST_PROBLEMS:
            lines.append(f"         … {len(verified.problems) - _MOST_PROBLEMS} more")
    return "\n".join(lines) + "\n"


def verify_end_text(results: Sequence[Verified], absent: Sequence[str], command: str, terminal: Terminal) -> str:
    """The sum, what could not be compared, and what to type; `absent` are steps without an artifact."""
    if not results:
        return "\n".join(["nothing to verify", *_absent(absent, terminal)]) + "\n"
    damaged = sum(bool(verified.problems) for verified in results)
    files, size = sum(v.files for v in results), sum(v.size for v in results)
    lines = ["", f"{len(results) - damaged} of {len(results)} ok; {_files(files)}, {bytes_text(size)}"]
    unread = sum(verified.unread for verified in results)
    if unread:
        lines += terminal.wrap(
            f"{_files(unread)} known by existence and size only (large files of opaque steps, adopted data)"
        )
    lines += _absent(absent, terminal)
    if command:
        lines += terminal.wrap("to make what is damaged again:")
        lines.append(f"    {command}")
    return "\n".join(lines) + "\n"


def _absent(absent: Sequence[str], terminal: Terminal) -> list[str]:
    if not absent:
        return []
    return terminal.wrap(f"no artifact of {len(absent)} step{'s' if len(absent) != 1 else ''}: {', '.join(absent)}")


def _extent(verified: Verified) -> str:
    words = [_files(verified.files), bytes_text(verified.size)]
    if verified.milestones:
        words.append(f"{verified.milestones} milestone{'s' if verified.milestones != 1 else ''}")
    if verified.unread:
        words.append(f"{verified.unread} by size only")
    return ", ".join(words)


def _files(count: int) -> str:
    return f"{count} file{'s' if count != 1 else ''}"
