"""What happens in a run, as plain timestamped lines: for logs, pipes and CI.

    02:10:31  start    tokenizer
    02:10:34  done     tokenizer  3.2 s
    02:11:02  run      hero/pretrain  120/600 steps (20%)  loss 5.321  9.1 steps/s  ETA 0:53

A step speaks at each tenth of its way, seldom enough to be read.
"""

import dataclasses
import time
from collections.abc import Callable
from typing import IO, Any

from executor.driver import events
from executor.render.terminal import Terminal
from executor.render.values import duration_text, metric_text

_METRICS = 3
_LEAST_SECONDS = 5.0
_LONGEST_SECONDS = 60.0


@dataclasses.dataclass(kw_only=True)
class Running:
    """A step that has started: what it last told."""

    name: str
    started: float
    host: str = ""
    done: float = 0
    total: float = 0
    unit: str = ""
    metrics: dict[str, Any] = dataclasses.field(default_factory=dict)
    first_done: float | None = None
    first_time: float = 0.0
    last_time: float = 0.0
    told_tenth: int = 0
    told_time: float = 0.0

    def update(self, event: events.StepProgress, now: float) -> None:
        if self.first_done is None:
            # The rate counts from the first report: what comes before it is start-up and compilation.
            self.first_done, self.first_time = event.done, now
        self.done, self.total, self.unit = event.done, event.total, event.unit
        self.metrics = dict(event.metrics)
        self.last_time = now

    @property
    def fraction(self) -> float:
        return min(self.done / self.total, 1.0) if self.total else 0.0

    @property
    def rate(self) -> float:
        """Units per second since the first report, 0 while unknown."""
        if self.first_done is None or self.last_time <= self.first_time:
            return 0.0
        return (self.done - self.first_done) / (self.last_time - self.first_time)

    @property
    def seconds_left(self) -> float | None:
        return (self.total - self.done) / self.rate if self.rate > 0 and self.total else None

    def count_text(self) -> str:
        if not self.total:
            return f"{metric_text(self.done)} {self.unit}".strip() if self.done else ""
        return f"{metric_text(self.done)}/{metric_text(self.total)} {self.unit}".strip()

    def metrics_text(self, most: int = _METRICS) -> str:
        return "  ".join(f"{name} {metric_text(value)}" for name, value in list(self.metrics.items())[:most])

    def rate_text(self) -> str:
        if self.rate <= 0:
            return ""
        unit = self.unit or "units"
        return f"{self.rate:.3g} {unit}/s" if self.rate >= 0.1 else f"{duration_text(1 / self.rate)} per {unit}"


class PlainProgress:
    """A listener that writes lines to a stream (stderr)."""

    def __init__(self, stream: IO[str], terminal: Terminal, clock: Callable[[], float] = time.time) -> None:
        self._stream, self._terminal, self._clock = stream, terminal, clock
        self._running: dict[str, Running] = {}

    def __call__(self, event: Any) -> None:
        now = self._clock()
        match event:
            case events.StepStarted():
                self._running[event.name] = Running(name=event.name, started=now, host=event.host, told_time=now)
                self._line("start", event.name)
            case events.StepWaiting():
                self._line("wait", event.name, event.reason)
            case events.StepProgress():
                self._progress(event, now)
            case events.StepNoted():
                self._line("note", event.name, event.message, "yellow")
            case events.StepReused():
                self._line("reuse", event.name, "the same content was there already")
            case events.StepFinished():
                self._running.pop(event.name, None)
                self._line(finished_word(event.status), event.name, duration_text(event.seconds))
            case events.StepFailed():
                self._running.pop(event.name, None)
                tail = "; trying again" if event.retrying else f"; log {event.log}" if event.log else ""
                # Without a traceback it is no failure of the step: halted by a guard, or interrupted.
                word = "FAILED" if event.traceback else "stopped"
                self._line(word, event.name, last_line(event) + tail, "red", "bold")

    def close(self) -> None:
        """Nothing to put away: every line stands."""

    def _progress(self, event: events.StepProgress, now: float) -> None:
        step = self._running.setdefault(event.name, Running(name=event.name, started=now, told_time=now))
        step.update(event, now)
        tenth, silent = int(step.fraction * 10 + 1e-9), now - step.told_time
        if not (tenth > step.told_tenth and silent >= _LEAST_SECONDS) and silent < _LONGEST_SECONDS:
            return
        step.told_tenth, step.told_time = tenth, now
        count = step.count_text() + (f" ({step.fraction:.0%})" if step.total else "")
        left = f"ETA {duration_text(step.seconds_left)}" if step.seconds_left is not None else ""
        self._line(
            "run", event.name, "  ".join(part for part in (count, step.metrics_text(), step.rate_text(), left) if part)
        )

    def _line(self, word: str, name: str, rest: str = "", *styles: str) -> None:
        moment = time.strftime("%H:%M:%S", time.localtime(self._clock()))
        text = f"{moment}  {self._terminal.paint(f'{word:<7}', *styles)}  {name}" + (f"  {rest}" if rest else "")
        self._stream.write(text.rstrip() + "\n")
        self._stream.flush()


def finished_word(status: str) -> str:
    return {"succeeded": "done", "stopped_at_milestone": "partly", "interrupted": "stopped"}.get(status, status)


def last_line(event: events.StepFailed) -> str:
    """The end of an error's text, without the step's name, which stands beside it."""
    lines = [line for line in event.error.strip().splitlines() if line.strip()]
    return lines[-1].strip().removeprefix(f"step {event.name}: ") if lines else ""
