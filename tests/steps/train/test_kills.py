"""A training process killed (SIGKILL) behind each of its steps and in the middle of each kind of save: the next one
ends with the same history, bit for bit."""

import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from steps.train.config import CheckpointConfig
from steps.train.history import History

ROOT = Path(__file__).resolve().parents[3]
RUN = """
import os, pickle, signal, sys, threading
from pathlib import Path
from executor.context import StepContext, enter
config, output, earlier, moment, files = pickle.load(open(sys.argv[1], "rb"))

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def look():
    while True:
        for folder in Path(output).glob(moment):
            found = [path for path in folder.rglob("*") if path.is_file()]
            if len(found) >= files and not (folder / "metadata.json").exists():
                die()

def progress(done, *rest):
    if moment == f"step {done}":
        die()

if files:
    threading.Thread(target=look, daemon=True).start()
enter(StepContext(name="t", output=output, earlier_attempts=earlier, on_progress=progress))
from steps.train.step import train
train(config, output)
"""

STEPS = [(f"step {step}", 0) for step in range(1, 13)]
SAVES = [(f"{kind}/step-*", files) for kind in ("rolling", "checkpoints") for files in (1, 5)]


def run(tmp_path, config, output: Path, earlier: tuple[str, ...] = (), moment: str = "", files: int = 0) -> int:
    output.mkdir()
    (tmp_path / "call").write_bytes(pickle.dumps((config, str(output), earlier, moment, files)))
    return subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path / "call")], env=os.environ | {"PYTHONPATH": str(ROOT)}
    ).returncode


@pytest.mark.slow
@pytest.mark.parametrize(("moment", "files"), STEPS + SAVES)
def test_killed_at_any_moment_it_ends_as_if_nothing_had_happened(moment, files, config_of, unbroken, tmp_path):
    """A rolling checkpoint after every step; `files` of a half-written one are there when it is killed."""
    config = config_of(checkpoint=CheckpointConfig(permanent_every=4, rolling_seconds=0.0))
    first = tmp_path / "first"
    assert run(tmp_path, config, first, (), moment, files) == -signal.SIGKILL
    assert not (first / "history.json").exists()
    assert run(tmp_path, config, tmp_path / "second", (str(first),)) == 0
    assert History.read(str(tmp_path / "second" / "history.json")) == unbroken[1]
