"""Being asked to end is one thing, whoever asks: SIGTERM and SIGHUP stop a run as cleanly as Ctrl-C does."""

import signal
import threading
from typing import Any


class terminated_as_interrupt:
    """SIGTERM and SIGHUP raise KeyboardInterrupt in the main thread, for as long as this holds."""

    def __enter__(self) -> None:
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGHUP):
                self._before[number] = signal.signal(number, _interrupt)

    def __exit__(self, *_: Any) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt
