"""The watchdog of a training step: a thread that sees that steps end, and says and ends it when they do not.

A collective that waits for a dead peer never returns and raises nothing, so the process itself has to go: whoever
started it sees it gone and starts the step again from the last checkpoint.
"""

import faulthandler
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping

from steps.train.config import WatchdogConfig
from steps.train.guards import Guard, stall_seconds

USUAL_STEPS = 1000
"""Steps whose durations are remembered."""

EXIT_CODE = 70


class Watchdog:
    """Watches from `start` until `close`.

    `seconds` are the durations of the last steps. `stalled(guard, seconds)` is called from the watchdog's thread, once
    for a step that takes unusually long; a process whose step takes longer than the config allows is ended.
    """

    def __init__(
        self, config: WatchdogConfig, guards: Mapping[str, Guard], stalled: Callable[[str, float, float], None]
    ) -> None:
        self.seconds: deque[float] = deque(maxlen=USUAL_STEPS)
        self._config = config
        self._guards = {name: guard for name, guard in guards.items() if guard.watch == "stall"}
        self._stalled = stalled
        self._said: set[str] = set()
        self._beat = time.monotonic()
        self._closed = threading.Event()
        # A step in the main thread is being debugged: it may stand still for as long as it likes.
        if threading.current_thread() is not threading.main_thread():
            threading.Thread(target=self._watch, daemon=True, name="step watchdog").start()

    def beat(self, seconds: float | None = None) -> None:
        """Something ended: a step, which took so many seconds, or an evaluation."""
        self._beat = time.monotonic()
        self._said.clear()
        if seconds is not None:
            self.seconds.append(seconds)

    def close(self) -> None:
        self._closed.set()

    def _watch(self) -> None:
        shortest = min(self._config.step_seconds, self._config.startup_seconds)
        while not self._closed.wait(min(1.0, shortest / 10)):
            silent = time.monotonic() - self._beat
            for name, guard in self._guards.items():
                limit = stall_seconds(guard, self.seconds)
                if limit is not None and silent > limit and name not in self._said:
                    self._said.add(name)
                    self._stalled(name, silent, limit)
            allowed = self._config.step_seconds if self.seconds else self._config.startup_seconds
            if silent > allowed:
                print(f"no step ended for {silent:.0f} s, {allowed:.0f} s are allowed: this process is hung and ends. "
                      "Its threads stand here:", file=sys.stderr, flush=True)  # fmt: skip
                faulthandler.dump_traceback(all_threads=True)
                os._exit(EXIT_CODE)
