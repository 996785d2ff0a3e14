"""Guards at work in the loop: a pause that goes on, a rollback that skips, a stop that saves.

Nothing of this size goes wrong by itself, so what is measured is changed on its way into the history.
"""

import dataclasses
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

from executor.errors import StepHalted
from steps.train import loop
from steps.train.config import CheckpointConfig, EvaluationConfig
from steps.train.guards import Guard
from steps.train.history import History

PAUSE = Guard(watch="gradient_norm", threshold=50.0, window=3, action="pause")
SLOW = Guard(watch="throughput", threshold=1e-6, window=2)
BACK = Guard(watch="non_finite", threshold=0.0, action="rollback", most_rollbacks=2)


@pytest.fixture
def measured_as(monkeypatch):
    """Put a wrong figure into the history of one step, each time it is trained or only the first time."""

    def install(step: int, figures: str, value: float, always: bool = True) -> None:
        append, times = loop._append, []

        def changed(history, measured):
            append(history, measured)
            if history.steps == step and (always or not times):
                times.append(step)
                getattr(history, figures)[-1] = value

        monkeypatch.setattr(loop, "_append", changed)

    return install


def rows_of(log_dir: Path) -> list[dict]:
    return [json.loads(line) for line in (log_dir / "metrics.jsonl").read_text().splitlines()]


def test_a_pause_is_saved_and_a_rerun_goes_on_from_it(config_of, run, unbroken, tmp_path, measured_as):
    config = config_of(guards={"norm": PAUSE, "slow": SLOW})
    measured_as(6, "gradient_norms", 1e6)
    notes = []
    with pytest.raises(StepHalted, match=r"guard norm paused it at step 6: .*this step's checkpoint is saved"):
        run(config, tmp_path / "first", log_dir=str(tmp_path / "log"), on_note=notes.append)
    (note,) = notes
    assert (note["guard"], note["watch"], note["step"], note["value"]) == ("norm", "gradient_norm", 6, 1e6)
    assert rows_of(tmp_path / "log")[-1]["guard/norm"] == 1e6
    history = run(config, tmp_path / "second", earlier_attempts=(str(tmp_path / "first"),))
    assert history.losses == unbroken[1].losses  # and it does not pause again
    assert history.evals == unbroken[1].evals


def test_a_rollback_skips_the_batch_and_says_which(config_of, run, unbroken, tmp_path, measured_as):
    config = config_of(guards={}, rollbacks={"back": BACK}, checkpoint=CheckpointConfig(rolling_seconds=0))
    measured_as(7, "losses", math.nan)
    notes = []
    history = run(config, tmp_path / "out", log_dir=str(tmp_path / "log"), on_note=notes.append)
    assert history.rollbacks == [{"guard": "back", "step": 7, "skipped": [7]}]
    assert history.losses[:6] == unbroken[1].losses[:6]
    assert (history.losses[6], history.assignments[6]) == (history.losses[5], 0)
    assert history.losses[7] != unbroken[1].losses[7] and math.isfinite(history.losses[-1])
    assert history.steps == 12
    assert [note["message"] for note in notes][1] == ("guard back: back to step 6; the batches of steps 7 are skipped")
    steps = [row["step"] for row in rows_of(tmp_path / "log")]
    assert steps == sorted(set(steps)) and steps[-1] == 12
    # Killed behind the rollback and started again, it is the same run: what was skipped came with the checkpoint.
    (tmp_path / "killed").mkdir()
    run(config, tmp_path / "killed", stop_at=9)
    assert run(config, tmp_path / "again", earlier_attempts=(str(tmp_path / "killed"),)) == history


def test_too_many_rollbacks_fail_the_step(config_of, run, tmp_path, monkeypatch):
    config = config_of(guards={}, rollbacks={"back": BACK}, checkpoint=CheckpointConfig(rolling_seconds=0))
    append = loop._append

    def broken(history, measured):
        append(history, measured)
        if history.steps > 2:
            history.losses[-1] = math.nan

    monkeypatch.setattr(loop, "_append", broken)
    with pytest.raises(FloatingPointError, match=r"went back 2 times already \(most_rollbacks=2\)"):
        run(config, tmp_path / "out")


def test_a_rollback_without_a_checkpoint_to_go_back_to_fails(config_of, run, tmp_path, measured_as):
    measured_as(1, "losses", math.nan)
    with pytest.raises(FloatingPointError, match=r"no checkpoint before steps \[1\] may be trained from again"):
        run(config_of(guards={}, rollbacks={"back": BACK}), tmp_path)


class Stopped(BaseException):
    """What the engine raises in a step that ends itself."""


def test_a_run_asked_to_stop_saves_the_step_it_is_at(config_of, run, unbroken, tmp_path):
    grace, asked = [], []

    def progress(done, total, unit, metrics):
        asked.extend([True] if done == 5 else [])

    def stop():
        raise Stopped

    with pytest.raises(Stopped):
        run(
            config_of(),
            tmp_path / "first",
            on_progress=progress,
            is_stopping=lambda: bool(asked),
            on_grace=grace.append,
            on_stop=stop,
        )
    assert set(grace) == {60.0}
    assert (tmp_path / "first" / "rolling" / "step-5" / "metadata.json").exists()
    assert run(config_of(), tmp_path / "second", earlier_attempts=(str(tmp_path / "first"),)) == unbroken[1]


def test_a_hung_step_ends_its_process(tmp_path):
    """The watchdog says where the threads stand, and ends the process with a code of its own."""
    script = """
import threading, time
from steps.train.config import WatchdogConfig
from steps.train.guards import Guard
from steps.train.watchdog import Watchdog
def hung():
    said = lambda guard, seconds, limit: print(guard, flush=True)
    dog = Watchdog(WatchdogConfig(step_seconds=1, startup_seconds=60), {}, said)
    dog.beat(0.1)
    time.sleep(60)
thread = threading.Thread(target=hung)
thread.start()
thread.join()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 70
    assert re.search(r"no step ended for \d+ s, 1 s are allowed: this process is hung and ends", done.stderr)
    assert "in hung" in done.stderr


def test_microbatches_give_the_gradients_of_the_whole_batch(config_of, run, tmp_path):
    """Summed in another order, so close and not equal; there is room for every assignment."""
    base = config_of()
    large = config_of(
        batch_size=32, until_step=4, evaluation=EvaluationConfig(marks=1),
        model=dataclasses.replace(base.model, capacity_factor=4.0),
    )  # fmt: skip
    whole = run(large, tmp_path / "whole")
    parts = run(dataclasses.replace(large, microbatches=4), tmp_path / "parts")
    assert parts.assignments == whole.assignments and sum(whole.sender_dropped + whole.receiver_dropped) == 0
    assert parts.losses == pytest.approx(whole.losses, abs=1e-4)
    assert parts.gradient_norms == pytest.approx(whole.gradient_norms, rel=1e-3)
    assert parts.router_bias == pytest.approx(whole.router_bias, abs=2e-3)  # a bin is 1/1000 wide and more
    assert parts.losses != whole.losses


def test_microbatches_smaller_than_the_mesh_are_refused(config_of, run, tmp_path):
    with pytest.raises(ValueError, match=r"a multiple of 8 devices, found 2; change one of them"):
        run(config_of(microbatches=4), tmp_path)


def test_skipping_counts_the_step_and_nothing_else():
    history = History(
        losses=[2.0], gradient_norms=[1.0], router_entropy=[1.1], router_bias=[0.5], sender_dropped=[3],
        receiver_dropped=[4], assignments=[64], largest_device=[1.0], largest_pair=[1.5],
    )  # fmt: skip
    history.skip()
    assert history.steps == 2 and history.losses == [2.0, 2.0] and history.router_bias == [0.5, 0.5]
    assert (history.assignments, history.sender_dropped, history.receiver_dropped) == ([64, 0], [3, 0], [4, 0])
    read = History.from_json(history.to_json({}))
    assert read == dataclasses.replace(history) and read.skipped == frozenset()
