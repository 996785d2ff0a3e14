"""What a whole process costs: CPU seconds of it and of the children it waited for, and seconds on the wall.

    run = measure([sys.executable, "recipe.py"], folder=folder, environment={}, limit_seconds=60.0)
    run.cpu_seconds

Wall time depends on who else uses the machine; CPU time does so far less, and is what the cases are compared by.
"""

import dataclasses
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


class MeasuringFailed(Exception):
    """The measured process did not do its work; the message says what it printed last."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measurement:
    """One figure of the benchmark. `details` stands beside it in JSON and in the table's last column."""

    case: str
    tool: str
    steps: int
    cpu_seconds: float
    wall_seconds: float
    details: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "case": self.case,
            "tool": self.tool,
            "steps": self.steps,
            "cpu_seconds": round(self.cpu_seconds, 4),
            "wall_seconds": round(self.wall_seconds, 4),
            **self.details,
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """One process, ended well."""

    cpu_seconds: float
    wall_seconds: float
    output: str
    peak_mib: float = 0.0


def measure(
    command: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    limit_seconds: float = 900.0,
    expected: int = 0,
) -> Run:
    """Run a command to its end. Raises MeasuringFailed when it ends otherwise than `expected` or takes too long."""
    given = {**os.environ, **environment}
    given.pop("PYTHONDONTWRITEBYTECODE", None)  # compiling every module again is not what users wait for
    with tempfile.TemporaryFile() as output:
        began = time.perf_counter()
        process = subprocess.Popen(command, cwd=folder, env=given, stdout=output, stderr=subprocess.STDOUT)
        timer = threading.Timer(limit_seconds, process.kill)
        timer.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
        finally:
            timer.cancel()
        wall_seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read().decode(errors="replace")
    if process.returncode != expected:
        why = f"took longer than {limit_seconds:.0f} s" if wall_seconds >= limit_seconds else "failed"
        raise MeasuringFailed(f"{' '.join(command)} {why} (exit code {process.returncode}):\n{text[-2000:]}")
    return Run(
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        wall_seconds=wall_seconds,
        output=text,
        peak_mib=usage.ru_maxrss / 1024,
    )


def least(runs: Sequence[Run]) -> Run:
    """The run that was disturbed least."""
    return min(runs, key=lambda run: run.cpu_seconds)
