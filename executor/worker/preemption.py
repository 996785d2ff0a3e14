"""Being asked to end by the machine: its node is preempted, the time that a batch system gave is up."""

import os
import signal
import threading
from collections.abc import Callable


def on_preemption(act: Callable[[], None]) -> None:
    """Call `act`, in a thread of its own, at the first SIGTERM; call this in the main thread.

    Python runs handlers of signals in its main thread, which in a worker may sit in Ray's own loop for hours. What goes
    through the wake-up descriptor is there at once.
    """
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)

    def listen() -> None:
        while signal.SIGTERM not in os.read(read, 64):
            pass
        act()

    threading.Thread(target=listen, daemon=True, name="preemption").start()
