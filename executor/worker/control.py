"""Stopping a step that runs in another thread: asked first, then abandoned.

`stop()` raises Interrupted inside the step at its next Python instruction; a step that saves before it ends
(`StepContext.save_on_stop`) is only told, and given time. One that sits in compiled code does not notice; after a while
its attempt is recorded as interrupted and its lease released from here, and the process ends.
"""

import ctypes
import threading
from collections.abc import Callable

STOP_SECONDS = 5.0
"""How long a step has to end that saves nothing."""


AT_ONCE_SECONDS = 0.5
"""The same for one that is not to save any more."""


class Interrupted(BaseException):
    """Raised inside a step's function when its attempt has to stop."""


class Control:
    """The switch of one attempt; `reason` is what its record says of a stop."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._lost = threading.Event()
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._thread: int | None = None
        self._abandon: Callable[[], None] = lambda: None
        self.grace_seconds = 0.0
        self.reason = "interrupted"

    def stopped(self) -> bool:
        return self._stop.is_set()

    def begin(self, abandon: Callable[[], None]) -> None:
        """From here until `end`, this thread can be interrupted."""
        with self._lock:
            self._abandon = abandon
            self._thread = threading.get_ident()
        self.check()

    def end(self) -> None:
        with self._lock:
            self._thread = None

    def check(self) -> None:
        """Raise Interrupted if asked to stop: called where a step gives the engine a moment."""
        if self._lost.is_set() or (self._stop.is_set() and not self.grace_seconds):
            self.end_now()

    def end_now(self) -> None:
        """Raise Interrupted: called in the step's own thread."""
        self.end()
        raise Interrupted

    def save_on_stop(self, seconds: float) -> None:
        """The step looks at `stopped` itself and ends within so many seconds."""
        self.grace_seconds = seconds

    def lose(self) -> None:
        """The lease is lost: stop the function."""
        self._lost.set()
        self._raise()

    def stop(self) -> None:
        self._stop.set()
        if not self.grace_seconds:
            self._raise()

    def finished(self) -> None:
        """The attempt is over and recorded."""
        self._ended.set()

    def ends_within(self, seconds: float) -> bool:
        """Whether the attempt ends by itself in so many seconds."""
        return self._ended.wait(seconds)

    def stop_in_time(self, *, patient: bool) -> bool:
        """Stop; True when the attempt ended by itself in time, else it is abandoned.

        Patience is what a step takes that saves first; without it the step is interrupted wherever it is.
        """
        self.stop()
        if not patient:
            self._raise()
        if self.ends_within(max(STOP_SECONDS, self.grace_seconds) if patient else AT_ONCE_SECONDS):
            return True
        self._abandon()
        return False

    def _raise(self) -> None:
        with self._lock:
            if self._thread is not None:
                thread, self._thread = self._thread, None
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(Interrupted))
