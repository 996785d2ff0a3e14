"""The live table of a run on a terminal: one row for each step that runs, finished ones as lines above it."""

import time
from typing import IO, Any

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from executor.driver import events
from executor.render.progress import Running, finished_word, last_line
from executor.render.terminal import Terminal
from executor.render.values import duration_text

_BAR = 12


class LiveProgress:
    """A listener that redraws a table on a terminal (stderr).

    Columns: step, elapsed, bar, count, latest metrics, rate, time left; what does not fit is left out from the right.
    """

    def __init__(self, stream: IO[str], terminal: Terminal, total: int) -> None:
        self._console = Console(
            file=stream, width=terminal.width, no_color=not terminal.color, highlight=False, soft_wrap=False
        )
        self._total = total
        self._finished = 0
        self._failed = 0
        self._started = time.time()
        self._running: dict[str, Running] = {}
        self._waiting: dict[str, str] = {}
        self._live = Live(
            get_renderable=self._table,
            console=self._console,
            refresh_per_second=4,
            transient=True,
            redirect_stdout=False,
        )
        self._live.start()

    def __call__(self, event: Any) -> None:
        now = time.time()
        match event:
            case events.StepStarted():
                self._waiting.pop(event.name, None)
                self._running[event.name] = Running(name=event.name, started=now, host=event.host)
            case events.StepWaiting():
                self._waiting[event.name] = event.reason
            case events.StepProgress():
                self._running.setdefault(event.name, Running(name=event.name, started=now)).update(event, now)
            case events.StepNoted():
                self._print("note", event.name, event.message, "yellow")
            case events.StepReused():
                self._end(event.name, "reuse", "", "green")
            case events.StepFinished():
                step = self._running.get(event.name)
                metrics = step.metrics_text() if step else ""
                good = event.status in ("succeeded", "stopped_at_milestone")
                self._end(
                    event.name,
                    finished_word(event.status),
                    duration_text(event.seconds),
                    "green" if good else "yellow",
                    metrics,
                )
            case events.StepFailed():
                self._running.pop(event.name, None)
                if event.retrying:
                    self._print("retry", event.name, last_line(event), "yellow")
                else:
                    # Without a traceback it is no failure of the step: halted by a guard, or interrupted.
                    self._failed += bool(event.traceback)
                    word = "FAILED" if event.traceback else "stopped"
                    self._end(event.name, word, last_line(event), "bold red")

    def close(self) -> None:
        self._live.stop()

    def _end(self, name: str, word: str, rest: str, style: str, more: str = "") -> None:
        self._running.pop(name, None)
        self._waiting.pop(name, None)
        self._finished += 1
        self._print(word, name, f"{rest}  {more}".rstrip(), style)

    def _print(self, word: str, name: str, rest: str, style: str) -> None:
        line = Text.assemble("  ", (f"{word:<7}", style), f"  {name}  ", (rest, "dim" if style == "green" else style))
        line.truncate(self._console.width, overflow="ellipsis")
        self._console.print(line)

    def _table(self) -> Table:
        now = time.time()
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True, overflow="ellipsis", max_width=28)
        table.add_column(no_wrap=True, justify="right")
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, justify="right")
        table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        room = max(self._console.height - 3, 4)
        for step in list(self._running.values())[:room]:
            bar = ProgressBar(total=step.total, completed=step.done, width=_BAR) if step.total else Text("")
            left = f"ETA {duration_text(step.seconds_left)}" if step.seconds_left is not None else ""
            words = "  ".join(word for word in (step.metrics_text(2), step.rate_text(), left) if word)
            table.add_row(
                Text(step.name, style="cyan"), duration_text(now - step.started), bar, step.count_text(), Text(words)
            )
        for name, reason in list(self._waiting.items())[: max(room - len(self._running), 0)]:
            table.add_row(Text(name, style="yellow"), "", Text("waits"), "", Text(reason))
        words = [f"{self._finished} of {self._total} steps", f"{len(self._running)} running"]
        words += [f"{self._failed} failed"] if self._failed else []
        if not self._running and not self._finished:
            words.append("starting workers")
        footer = Table.grid()
        footer.add_row(table)
        footer.add_row(Text(f"{', '.join(words)}, {duration_text(now - self._started)}", style="dim"))
        return footer
