"""The state of each step as text."""

from executor.driver.status import AttemptStatus, Status, StepStatus
from executor.render.frames import own_frames
from executor.render.terminal import Terminal, columns
from executor.render.values import duration_text

_COLORS = {
    "succeeded": ("green",),
    "running": ("cyan",),
    "failed": ("red", "bold"),
    "halted": ("red",),
    "interrupted": ("yellow",),
    "partial": ("yellow",),
}


def status_text(status: Status, terminal: Terminal) -> str:
    counts: dict[str, int] = {}
    for step in status.steps:
        counts[step.state] = counts.get(step.state, 0) + 1
    total = ", ".join(f"{count} {state}" for state, count in counts.items()) or "no steps"
    lines = terminal.wrap(f"{status.recipe}, scale {status.scale}: {total}")
    lines += terminal.wrap(f"in {status.prefix}")
    lines += [f"issue {status.issue}"] if status.issue else []
    lines += [f"last run started {clock_text(status.last_run)}" if status.last_run else "never run here", ""]
    rows = [_row(step) for step in status.steps]
    for line, step in zip(columns(rows), status.steps, strict=True):
        state = f"{step.state:<11}".rstrip()
        lines.append("  " + line.replace(state, terminal.paint(state, *_COLORS.get(step.state, ("dim",))), 1))
        lines += _details(step, terminal)
    return "\n".join(lines) + "\n"


def clock_text(moment: str) -> str:
    """`2026-12-01 02:10:31` of an ISO 8601 time."""
    return moment.replace("T", " ").partition(".")[0].partition("+")[0].removesuffix("Z")


def _row(step: StepStatus) -> list[str]:
    seconds = duration_text(step.seconds) if step.seconds else ""
    return [step.state, step.name, clock_text(step.started), seconds]


def _details(step: StepStatus, terminal: Terminal) -> list[str]:
    lines = []
    if step.state == "running":
        lines.append(f"      on {step.where}")
    if step.asked:
        for attempt in step.attempts:
            lines += ["", *_attempt(attempt, terminal)]
        lines += [""] if step.attempts else []
    elif step.state == "failed" and step.attempts:
        lines += _attempt(step.attempts[0], terminal)
    elif step.error:
        lines += terminal.wrap(step.error, 6)
    if step.state in ("failed", "halted") and step.log and not step.attempts:
        lines.append(f"      log {step.log}")
    if step.state == "halted":
        lines.append(f"      go on with --acknowledge {step.name}")
    return lines


def _attempt(attempt: AttemptStatus, terminal: Terminal) -> list[str]:
    """One attempt: number, when, where; of one that did not succeed the traceback's own frames and the log's end."""
    took = f", {duration_text(attempt.seconds)}" if attempt.seconds else ""
    where = f" on {attempt.host} process {attempt.pid}" if attempt.host else ""
    status = attempt.status.replace("_", " ")
    head = f"attempt {attempt.number} {status}, {clock_text(attempt.started)}{took}{where}"
    lines = terminal.wrap(head, 6)
    if attempt.traceback:
        lines += [f"        {line}" for line in own_frames(attempt.traceback).splitlines()]
    elif attempt.error:
        lines += terminal.wrap(attempt.error, 8)
    lines.append(f"        log {attempt.log}")
    lines += [f"        | {line}" for line in attempt.log_tail.splitlines()]
    return lines
