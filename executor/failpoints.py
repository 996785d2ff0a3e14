"""Named places between taking a lease and committing a record, where a test ends or suspends the real process.

    MARINADE_FAILPOINT=commit-sealed        SIGKILL to this process when it gets there
    MARINADE_FAILPOINT=commit-sealed:STOP   another signal instead

Invariant: without the variable nothing happens; `NAMES` lists every place, so that tests can try each of them.
"""

import os
import signal

NAMES = (
    "lease-taken",
    "content-indexed",
    "attempt-recorded",
    "source-written",
    "function-entered",
    "milestone-listed",
    "milestone-published",
    "function-returned",
    "files-digested",
    "log-uploaded",
    "attempt-finished",
    "commit-sealed",
    "record-written",
    "recipe-indexed",
)
"""In the order in which an attempt comes to them."""
AT_ONCE = ("content-indexed", "attempt-recorded", "source-written")
"""Of these any may come first."""
_wanted, _, _signal = os.environ.get("MARINADE_FAILPOINT", "").partition(":")


def reached(name: str) -> None:
    """This process has come to a place that has a name."""
    if name == _wanted:
        os.kill(os.getpid(), signal.Signals[f"SIG{_signal or 'KILL'}"])
