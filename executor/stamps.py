"""Moments and identities: text for people to read, and names that are unique without asking anybody.

Nothing is decided by comparing them: hosts' clocks differ.
"""

import secrets
import time


def new_id() -> str:
    """Sorts by time; unique without asking anybody."""
    return (
        time.strftime("%Y%m%dT%H%M%S", time.gmtime())
        + f"{time.time() % 1:.3f}"[1:].replace(".", "")
        + secrets.token_hex(3)
    )


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + f"{time.time() % 1:.3f}"[1:] + "Z"
