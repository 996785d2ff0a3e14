"""An exception of a step in words: the step, what was found, and what to do where that is known."""

import errno
import traceback

from executor.errors import MarinadeError
from executor.secrets import redact
from executor.worker.task import Task


def trace_of(failure: BaseException) -> str:
    """The traceback as text, without secrets."""
    return redact("".join(traceback.format_exception(failure)))


def in_words(task: Task, failure: BaseException) -> str:
    """The failure in one line that names the step, without secrets."""
    return redact(_words(task, failure))


def _words(task: Task, failure: BaseException) -> str:
    if isinstance(failure, OSError) and failure.errno in (errno.ENOSPC, errno.EDQUOT):
        at = f" while writing {failure.filename}" if failure.filename else ""
        return (
            f"step {task.name}: no space left on device{at}; free some space for {task.prefix} and run again, "
            "finished steps are kept"
        )
    text = str(failure)
    if isinstance(failure, MarinadeError) and text:
        return text if task.name in text else f"step {task.name}: {text}"
    if isinstance(failure, MemoryError):
        text = text or "out of memory"
    kind = type(failure).__name__
    return f"step {task.name}: {kind}: {text}" if text else f"step {task.name}: {kind}"
