"""Where the wall time of a training attempt goes besides its steps: saving, and Python's garbage collector."""

import contextlib
import gc
import time
from collections.abc import Iterator
from typing import Any


class Timing:
    """Seconds since the last `take`; the collector is watched until `close`."""

    def __init__(self) -> None:
        self._saving = self._collecting = 0.0
        self._since = self._collection = time.monotonic()
        gc.callbacks.append(self._collected)

    @contextlib.contextmanager
    def saving(self) -> Iterator[None]:
        """What a save keeps the training from; the rest of it goes on in the background."""
        began = time.monotonic()
        yield
        self._saving += time.monotonic() - began

    def take(self, steps: int) -> dict[str, float]:
        """Rates under the hero run's names: `iteration_time` is wall time over the steps, all else included."""
        now = time.monotonic()
        row = {
            "throughput/iteration_time": (now - self._since) / steps,
            "throughput/checkpoint_time": self._saving,
            "throughput/gc_time": self._collecting,
        }
        self._since, self._saving, self._collecting = now, 0.0, 0.0
        return row

    def close(self) -> None:
        gc.callbacks.remove(self._collected)

    def _collected(self, phase: str, _: dict[str, Any]) -> None:
        if phase == "start":
            self._collection = time.monotonic()
        else:
            self._collecting += time.monotonic() - self._collection
