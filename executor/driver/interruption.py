"""Being asked to end is one thing, whoever asks: SIGTERM and SIGHUP stop a run as cleanly as Ctrl-C does."""

import signal
import threading
from typing import Any

from executor.worker.control import Control


class terminated_as_interrupt:
    """SIGTERM and SIGHUP raise KeyboardInterrupt in the main thread, for as long as this holds."""

    NUMBERS: tuple[int, ...] = (signal.SIGTERM, signal.SIGHUP)

    def __enter__(self) -> None:
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number in self.NUMBERS:
                self._before[number] = signal.signal(number, self._handle)

    def __exit__(self, *_: Any) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: Any) -> None:
        raise KeyboardInterrupt


class stopped_by_signals(terminated_as_interrupt):
    """The same while a step runs in this thread; one that saves before it ends is only told, the first time."""

    NUMBERS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)

    def __init__(self, control: Control) -> None:
        self._control = control

    def _handle(self, number: int, frame: Any) -> None:
        if not self._control.grace_seconds or self._control.stopped():
            raise KeyboardInterrupt
        self._control.stop()
