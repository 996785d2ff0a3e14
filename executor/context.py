"""What a step's function can ask of the engine while it runs.

    context = current()
    context.progress(step, total, loss=loss)
    context.publish(at=step, part=f"checkpoints/step-{step}")
    context.note("the gradient norm is high", step=step, norm=norm)

Outside of the engine (a test that calls a step's function directly) everything is there and does nothing.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from executor.errors import MarinadeError
from executor.step import Input, Milestone, Output, Step


def _no_progress(done: float, total: float, unit: str, metrics: dict[str, Any]) -> None:
    pass


def _no_publish(at: int, part: str, result: dict[str, Any] | None) -> None:
    pass


def _no_note(event: dict[str, Any]) -> None:
    pass


def _never() -> bool:
    return False


def _no_grace(seconds: float) -> None:
    pass


def _no_stop() -> None:
    raise MarinadeError("a step stops only where the engine asked it to")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepContext:
    """The attempt that is running in this process.

    Attributes:
        name, attempt, output: of the step; `output` is the folder to write to.
        earlier_attempts: output folders of earlier attempts of the same work, newest first; resume from complete
            checkpoints in them.
        stop_at: the milestone this attempt is asked to end at, None for the whole step.
        milestones: all milestones wanted of this step; publish at least these.
        unpublished: those of them (and of `stop_at`) that no earlier attempt published: do not resume from beyond the
            first, and publish it again where an earlier attempt had just got there.
        log_dir: folder beside the artifact, outside its digest: metrics, timings; empty where another process of the
            same step writes them.
        process, processes: which one of a step's processes this is, of how many; only process 0 reports, publishes and
            writes what all would write alike.
        coordinator: host:port where they meet; empty where there is one.
    """

    name: str = ""
    attempt: str = ""
    output: str = ""
    earlier_attempts: tuple[str, ...] = ()
    stop_at: int | None = None
    milestones: tuple[int, ...] = ()
    unpublished: tuple[int, ...] = ()
    log_dir: str = ""
    process: int = 0
    processes: int = 1
    coordinator: str = ""
    on_progress: Callable[[float, float, str, dict[str, Any]], None] = _no_progress
    on_publish: Callable[[int, str, dict[str, Any] | None], None] = _no_publish
    on_note: Callable[[dict[str, Any]], None] = _no_note
    on_grace: Callable[[float], None] = _no_grace
    is_stopping: Callable[[], bool] = _never
    on_stop: Callable[[], None] = _no_stop

    def progress(self, done: float, total: float, unit: str = "steps", **metrics: Any) -> None:
        """How far the step is, and its latest metrics; cheap, shown about once a second."""
        self.on_progress(done, total, unit, metrics)

    def publish(self, at: int, part: str, result: dict[str, Any] | None = None) -> None:
        """Make `output/part` the milestone `at`, complete and never to change, for steps that depend on it."""
        self.on_publish(at, part, result)

    def note(self, message: str, **facts: Any) -> None:
        """Something that people should know: shown at once, and among the `events` of the attempt's record."""
        self.on_note({"message": message, **facts})

    def save_on_stop(self, seconds: float) -> None:
        """From now on the step ends itself when it is asked to: it looks at `stopping`, has so many seconds to save
        what it did, and calls `stop`."""
        self.on_grace(seconds)

    def told_to_others(self) -> "StepContext":
        """The data in it, for another process of the same step: it reports to nobody."""
        return StepContext(
            name=self.name,
            attempt=self.attempt,
            output=self.output,
            earlier_attempts=self.earlier_attempts,
            stop_at=self.stop_at,
            milestones=self.milestones,
            unpublished=self.unpublished,
        )

    @property
    def stopping(self) -> bool:
        """Whether the step was asked to end."""
        return self.is_stopping()

    def stop(self) -> None:
        """End the attempt as interrupted; does not return."""
        self.on_stop()


_OUTSIDE = StepContext()
_running: StepContext | None = None


def current() -> StepContext:
    """The context of the step that runs in this process; an empty one outside of the engine."""
    return _running or _OUTSIDE


def enter(context: StepContext | None) -> None:
    """Set the context of this process (one step at a time)."""
    global _running
    _running = context


def resolved(value: Input) -> str:
    """The location that an input field was resolved to."""
    if isinstance(value, str):
        return value
    if isinstance(value, Step | Output | Milestone):
        name = value.name if isinstance(value, Step) else value.step.name
        raise MarinadeError(
            f"the input from step {name} is not resolved: this function was called outside of the engine; "
            "run its step, or put a location in its place"
        )
    raise MarinadeError(f"an input is a step, an output, a milestone or a location, not {type(value).__name__}")
