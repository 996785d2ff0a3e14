"""Processes by more than their number: which machine, which process, started when.

A process number alone is given again to others; with the machine, its boot and the start time it stands for one
process for ever, so that a watcher can tell a dead holder from a live one without comparing clocks.
"""

import dataclasses
import functools
import os
import socket
import subprocess
from pathlib import Path


@dataclasses.dataclass(frozen=True, kw_only=True)
class Process:
    """One process: host name for people, machine identity, number and start time (opaque text)."""

    host: str
    machine: str
    pid: int
    started: str


@functools.cache
def machine() -> str:
    """Identity of this boot of this machine (and of the process namespace, which containers have of their own)."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return f"{socket.gethostname()}/{os.uname().sysname if hasattr(os, 'uname') else os.name}"


def start_time(pid: int) -> str | None:
    """When a process of this machine started, None where there is no such process (or only its remains)."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return None
        found = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
        return found.stdout.strip() or None
    except ProcessLookupError:
        return None
    fields = status.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]


def this_process() -> Process:
    return Process(host=socket.gethostname(), machine=machine(), pid=os.getpid(), started=start_time(os.getpid()) or "")


def is_alive(process: Process) -> bool | None:
    """Whether the process still runs; None where this machine cannot tell."""
    if process.machine != machine():
        return None
    return start_time(process.pid) == process.started


def children(pid: int) -> list[int]:
    """All processes below one, children before grandchildren (empty where the system does not say)."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        try:
            tasks = list(Path(f"/proc/{parent}/task").iterdir())
        except OSError:
            continue
        for task in tasks:
            try:
                numbers = [int(number) for number in (task / "children").read_text().split()]
            except OSError:
                continue
            found += numbers
            waiting += numbers
    return found
