"""The command line as a user calls it: a process of its own, which must stay light."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

_PROGRAM = """
import sys
from executor.cli import main
code = main()
heavy = {"ray", "jax", "levanter", "wandb", "gcsfs"} & set(sys.modules)
assert not heavy, heavy
sys.exit(code)
"""


@pytest.fixture(scope="session")
def marinade() -> Callable[..., str]:
    """`marinade(*arguments, expect=0)`: standard output, after checking the exit code and what was imported."""

    def call(*arguments: str, expect: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == expect, done.stderr
        return done.stdout

    return call
