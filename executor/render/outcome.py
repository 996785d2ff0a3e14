"""The end of a run: failures first, then the report, then where everything lies and what to type next."""

from typing import TYPE_CHECKING

from executor.render.frames import own_frames
from executor.render.terminal import Terminal, columns
from executor.render.values import duration_text
from executor.render.verdict import verdict_line

if TYPE_CHECKING:
    from executor.driver.events import StepOutcome
    from executor.driver.run import RunOutcome

_LOG_LINES = 12
_MOST_ROWS = 48


def nothing_to_do_text(outcome: "RunOutcome", report: str) -> str:
    lines = [f"nothing to do: {_steps(len(outcome.steps))} up to date ({duration_text(outcome.wall_seconds)})"]
    if outcome.verdict is not None and outcome.verdict.criteria:
        lines.append(verdict_line(outcome.verdict))
    if report:
        lines.append(f"report: {report}")
    return "\n".join(lines) + "\n"


def failures_text(outcome: "RunOutcome", terminal: Terminal) -> str:
    """Each failure's own traceback, its log's path and tail; then what did not run because of it."""
    lines: list[str] = []
    for name, step in outcome.steps.items():
        if step.status == "failed":
            lines += [
                "",
                terminal.paint(f"FAILED {name}", "bold", "red"),
                *_indented(own_frames(step.traceback) or step.error),
            ]
            lines += _log(step, terminal)
        elif step.status == "halted":
            lines += ["", terminal.paint(f"HALTED {name}", "bold", "yellow"), *_indented(step.error)]
            lines += _log(step, terminal)
    stopped = [name for name, step in outcome.steps.items() if step.status == "interrupted"]
    if stopped:
        lines += ["", *terminal.wrap("interrupted: " + ", ".join(stopped))]
    left = [name for name, step in outcome.steps.items() if step.status == "not_run"]
    if left:
        lines += ["", *terminal.wrap(f"did not run ({len(left)}): " + ", ".join(left))]
    return "\n".join(lines[1:]) + "\n" if lines else ""


def places_text(outcome: "RunOutcome", report: str, terminal: Terminal) -> str:
    """Where the artifacts lie, relative to the prefix, and how long each step that ran took."""
    prefix = outcome.plan.prefix
    rows = []
    for name, step in outcome.steps.items():
        if step.location:
            took = "reused" if step.status == "reused" else duration_text(step.seconds)
            rows.append([name, took, step.location.removeprefix(prefix + "/")])
    ran = [step for step in outcome.steps.values() if step.status not in ("reused", "not_run")]
    done = sum(step.is_good for step in outcome.steps.values())
    total = f"{done} of {_steps(len(outcome.steps))} done, {len(ran)} ran, {duration_text(outcome.wall_seconds)}"
    lines = [terminal.paint(total, "bold"), f"everything lies under {prefix}"]
    shown = rows if len(rows) <= _MOST_ROWS else rows[-_MOST_ROWS:]
    if len(shown) < len(rows):
        lines.append(f"  … {len(rows) - len(shown)} more")
    lines += ["  " + line for line in columns(shown, right=(1,))]
    if report:
        lines.append(f"report: {report}")
    return "\n".join(lines) + "\n"


def next_text(outcome: "RunOutcome", command: str) -> str:
    """What to type after a run that did not finish; empty after one that did."""
    halted = [name for name, step in outcome.steps.items() if step.status == "halted"]
    if halted:
        return f"to go on where a guard halted: {command} --acknowledge {halted[0]}\n"
    if outcome.interrupted:
        return f"stopped; to go on from what was finished: {command}\n"
    if any(step.status == "failed" for step in outcome.steps.values()):
        return f"after the fix, to go on from what was finished: {command}\n"
    return ""


def _log(step: "StepOutcome", terminal: Terminal) -> list[str]:
    tail = [line for line in step.log_tail.splitlines() if line.strip()][-_LOG_LINES:]
    # A log that ends in the traceback that stands above says nothing more.
    last = (step.traceback or step.error).strip().splitlines()[-1:]
    if tail and last and tail[-1].strip() == last[0].strip():
        start = next((i for i, line in enumerate(tail) if line.startswith("Traceback")), len(tail) - 1)
        tail = tail[:start]
    lines = [terminal.paint(f"  log: {step.log}", "dim")] if step.log else []
    return lines + [terminal.paint(f"  | {line}", "dim") for line in tail]


def _indented(text: str) -> list[str]:
    return [f"  {line}".rstrip() for line in text.strip().splitlines()]


def _steps(count: int) -> str:
    return f"{count} step" if count == 1 else f"{count} steps"
