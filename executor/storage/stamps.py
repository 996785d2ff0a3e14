"""Moments and identities: text for people to read, and names that are unique without asking anybody.

Nothing is decided by comparing them: hosts' clocks differ.
"""

import secrets
import time


def new_id() -> str:
    """Sorts by time; unique without asking anybody."""
    seconds, milliseconds = _moment()
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(seconds))}{milliseconds:03d}{secrets.token_hex(3)}"


def now() -> str:
    seconds, milliseconds = _moment()
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{milliseconds:03d}Z"


def _moment() -> tuple[int, int]:
    """Whole seconds and milliseconds of one reading of the clock, so that both are of the same second."""
    return divmod(time.time_ns() // 1_000_000, 1000)
