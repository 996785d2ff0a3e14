"""How far a long reading has come, on stderr: one line that is redrawn on a terminal, a line now and then elsewhere."""

import time
from collections.abc import Callable
from typing import IO, Self

from executor.render.terminal import Terminal
from executor.render.values import bytes_text

_LIVE_SECONDS, _PLAIN_SECONDS = 0.2, 10.0


class Reading:
    """Call it with what is read, bytes so far and bytes in all; silent at first, so that short work shows nothing."""

    def __init__(self, stream: IO[str], terminal: Terminal, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._terminal, self._clock = stream, terminal, clock
        self._every = _LIVE_SECONDS if terminal.live else _PLAIN_SECONDS
        self._told = clock() + (0.5 if terminal.live else 0.0)
        self._shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def __call__(self, name: str, done: int, total: int) -> None:
        if self._clock() - self._told < self._every:
            return
        self._told = self._clock()
        text = f"reading {name}  {bytes_text(done)} of {bytes_text(total)}"
        if self._terminal.live:
            self._stream.write(f"\r\x1b[2K{text[: self._terminal.width - 1]}")
            self._shown = True
        else:
            self._stream.write(text + "\n")
        self._stream.flush()

    def clear(self) -> None:
        """Take the line away, before something else is written."""
        if self._shown:
            self._stream.write("\r\x1b[2K")
            self._stream.flush()
            self._shown = False
