"""Checkpoints of a run: rolling ones to resume from, permanent ones published as milestones.

The arrays go through Levanter's checkpointer, which writes in the background and marks a checkpoint complete by its
`metadata.json`, written last; the history of the run lies beside them. A half-written checkpoint is never chosen.
"""

import datetime
import os
import time
from collections.abc import Callable

import fsspec
from levanter.checkpoint import Checkpointer, CheckpointRetention, discover_latest_checkpoint, load_checkpoint

from steps.model.transformer import Params, RouterState
from steps.train.history import History
from steps.train.state import TrainState

PERMANENT = "checkpoints"
ROLLING = "rolling"
HISTORY = "history.json"


class RunCheckpoints:
    """Saves the checkpoints of one attempt.

    A permanent checkpoint is reported to `published(step, part)` once it is complete. Of several processes each saves
    its arrays, and the one that `leads` what is not an array.
    """

    def __init__(
        self, output: str, rolling_seconds: float, published: Callable[[int, str], None], *, leads: bool = True
    ) -> None:
        self._leads = leads
        self._output = output
        self._rolling_seconds = rolling_seconds
        self._published = published
        self._last_save = time.monotonic()
        self._saved: set[int] = set()
        self._permanent: set[int] = set()
        self._levanter = Checkpointer(
            f"{output}/{PERMANENT}",
            datetime.timedelta(days=36500),
            [],
            temporary_base_path=f"{output}/{ROLLING}",
        )

    def save_permanent(self, state: TrainState, step: int, history: str) -> None:
        """Start saving the permanent checkpoint of `step`; a no-op when this attempt has it."""
        if step in self._permanent:
            return
        self._saved.add(step)
        self._permanent.add(step)
        part = f"{PERMANENT}/step-{step}"
        self._write_history(part, history)
        self._levanter.save_checkpoint(state, step, f"step-{step}", commit_callback=lambda: self._published(step, part))
        self._last_save = time.monotonic()

    @property
    def is_due(self) -> bool:
        """Whether the last save is old enough for the rolling checkpoint to be replaced."""
        return time.monotonic() - self._last_save >= self._rolling_seconds

    def save_rolling(self, state: TrainState, step: int, history: str) -> None:
        """Start replacing the rolling checkpoint; a no-op when this attempt has saved this step."""
        if step in self._saved:
            return
        self._saved.add(step)
        self._write_history(f"{ROLLING}/step-{step}", history)
        self._levanter.request_checkpoint(CheckpointRetention.TEMPORARY)
        self._levanter.on_step(tree=state, step=step)
        self._last_save = time.monotonic()

    @property
    def last_permanent(self) -> int:
        """The last step whose permanent checkpoint was begun here, or 0."""
        return max(self._permanent, default=0)

    def go_back(self, attempts: tuple[str, ...], at_most: int) -> str | None:
        """The newest checkpoint of at most this step, of this attempt or earlier ones, to train again from there."""
        self.wait()
        self._saved = {step for step in self._saved if step <= at_most} | self._permanent
        return newest_checkpoint((self._output, *attempts), at_most)

    def remove_beyond(self, step: int) -> None:
        """Remove the rolling checkpoints beyond a step."""
        if not self._leads:
            return
        filesystem, path = fsspec.core.url_to_fs(f"{self._output}/{ROLLING}")
        for folder in filesystem.ls(path, detail=False) if filesystem.exists(path) else []:
            if checkpoint_step(folder) > step:
                filesystem.rm(folder, recursive=True)

    def wait(self) -> None:
        """Until the saves under way are complete."""
        self._levanter.wait_until_finished()

    def finish(self) -> None:
        """Wait for saves under way, then remove the rolling checkpoints; the permanent ones supersede them."""
        self.wait()
        filesystem, path = fsspec.core.url_to_fs(f"{self._output}/{ROLLING}")
        if self._leads and filesystem.exists(path):
            filesystem.rm(path, recursive=True)

    def _write_history(self, part: str, text: str) -> None:
        if not self._leads:
            return
        filesystem, path = fsspec.core.url_to_fs(f"{self._output}/{part}/{HISTORY}")
        filesystem.makedirs(os.path.dirname(path), exist_ok=True)
        filesystem.pipe_file(path, text.encode())


def newest_checkpoint(attempts: tuple[str, ...], at_most: int | None) -> str | None:
    """The complete checkpoint with the highest step among the folders of earlier attempts, or None.

    `at_most` is the first step whose checkpoint is still owed: what lies beyond it is passed over.
    """
    roots = [f"{attempt}/{kind}" for attempt in attempts for kind in (PERMANENT, ROLLING)]
    return discover_latest_checkpoint(*roots, max_step=at_most) if roots else None


def checkpoint_step(checkpoint: str) -> int:
    """The training step of a checkpoint folder, read from its name."""
    return int(checkpoint.rstrip("/").rsplit("step-", 1)[-1])


def restore(checkpoint: str, like: TrainState) -> tuple[TrainState, History]:
    """State and history of a checkpoint, each array laid out as in `like`."""
    state = load_checkpoint(like, checkpoint)
    return state, History.read(f"{checkpoint}/{HISTORY}")


def restore_weights(checkpoint: str, like: tuple[Params, RouterState]) -> tuple[Params, RouterState]:
    """Only parameters and router bias of a checkpoint, laid out as in `like`."""
    loaded = load_checkpoint({"params": like[0], "router": like[1]}, checkpoint)
    return loaded["params"], loaded["router"]
