"""What is tried again, how often and how long: tenacity policies and the classification of failures.

A Python exception of a step is not retried. A worker that vanished is: killed or crashed a few times, a lost node or
a preempted one without limit in count, within a stated budget of time.
"""

import dataclasses
import time
from typing import Any, Literal

Loss = Literal["crashed", "out_of_memory", "node_lost"]

CRASHES = 3
"""Restarts of one step whose worker process died without the node being lost."""
BUDGET_SECONDS = 6 * 3600.0
"""How long a step goes on being restarted after lost nodes."""


def storage_retrying() -> Any:
    """tenacity policy for one call to an object store."""
    import tenacity

    return tenacity.Retrying(
        retry=tenacity.retry_if_exception(is_passing),
        wait=tenacity.wait_random_exponential(multiplier=0.2, max=20),
        stop=tenacity.stop_after_delay(120),
        reraise=True,
    )


def is_passing(error: BaseException) -> bool:
    """True for storage errors that are gone when one tries again: 429, 5xx, connections broken or timed out."""
    if isinstance(
        error, FileNotFoundError | FileExistsError | PermissionError | IsADirectoryError | NotADirectoryError
    ):
        return False
    code = getattr(error, "code", None) or getattr(error, "status", None)
    try:
        number = int(code)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return isinstance(error, ConnectionError | TimeoutError)
    return number == 429 or 500 <= number < 600


@dataclasses.dataclass(kw_only=True)
class Restarts:
    """The restarts of one step in one run."""

    started: float = dataclasses.field(default_factory=time.monotonic)
    crashes: int = 0
    losses: int = 0

    def delay(self, loss: Loss) -> float | None:
        """Seconds to wait before the next start, None when this step is given up."""
        import tenacity

        if loss == "node_lost":
            self.losses += 1
        else:
            self.crashes += 1
        state = tenacity.RetryCallState(retry_object=None, fn=None, args=(), kwargs={})  # type: ignore[arg-type]
        state.attempt_number = self.losses if loss == "node_lost" else self.crashes
        state.start_time = self.started
        state.outcome_timestamp = time.monotonic()
        stop = (
            tenacity.stop_after_delay(BUDGET_SECONDS)
            if loss == "node_lost"
            else tenacity.stop_after_attempt(CRASHES + 1)
        )
        if stop(state):
            return None
        return float(tenacity.wait_random_exponential(multiplier=0.5, max=60)(state))


def loss_in_words(loss: Loss) -> str:
    if loss == "out_of_memory":
        return "the machine ran out of memory and the worker of this step was ended"
    if loss == "node_lost":
        return "the node that ran this step was lost"
    return (
        "the worker process of this step died (killed from outside, crashed, or ended by the kernel for lack of memory)"
    )
