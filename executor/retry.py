"""What is tried again, how often and how long: one table of the kinds of failure, with a tenacity policy for each.

    crashed         the worker process died alone                     a few times
    out_of_memory   the machine had no memory left for it             once: a neighbour may have been the cause
    node_lost       the machine is gone, or was preempted             as often as it happens, within a budget of time
    not_placed      its hosts did not come free together             as often as it happens
    storage         the object store answered 429 or 5xx, or not      as often as it happens, within a budget of time
    exception       the step's function raised                        as often as the step says (retries=...)

Every start is an attempt of its own, with its number and its end on record.
"""

import dataclasses
import time
from typing import Any, Literal

Failure = Literal["crashed", "out_of_memory", "node_lost", "not_placed", "storage", "exception"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Policy:
    """When a step that failed in one way is started again.

    Attributes:
        times: how often at most; None for no limit in count.
        budget_seconds: how long after the step's first failure of this kind; None for no limit in time.
        longest_wait_seconds: waits grow at random up to this.
        words: what happened, for people.
    """

    times: int | None
    budget_seconds: float | None
    longest_wait_seconds: float
    words: str


POLICIES: dict[Failure, Policy] = {
    "crashed": Policy(
        times=3,
        budget_seconds=None,
        longest_wait_seconds=60.0,
        words="the worker process of this step died (killed from outside, crashed, or ended by the kernel for lack of "
        "memory)",
    ),
    "out_of_memory": Policy(
        times=1,
        budget_seconds=None,
        longest_wait_seconds=60.0,
        words="the machine ran out of memory and the worker of this step was ended",
    ),
    "node_lost": Policy(
        times=None,
        budget_seconds=6 * 3600.0,
        longest_wait_seconds=60.0,
        words="the node that ran this step was lost or preempted",
    ),
    "not_placed": Policy(
        times=None,
        budget_seconds=None,
        longest_wait_seconds=120.0,
        words="the hosts of this step did not come free together; those it held are given back",
    ),
    "storage": Policy(
        times=None,
        budget_seconds=3600.0,
        longest_wait_seconds=120.0,
        words="the store does not answer, or asks for patience",
    ),
    "exception": Policy(times=0, budget_seconds=None, longest_wait_seconds=60.0, words="the step's function raised"),
}

CALL_BUDGET_SECONDS = 120.0
"""How long one call to an object store is tried again before it counts as a failure of class `storage`."""


def storage_retrying() -> Any:
    """tenacity policy for one call to an object store."""
    import tenacity

    return tenacity.Retrying(
        retry=tenacity.retry_if_exception(is_passing),
        wait=tenacity.wait_random_exponential(multiplier=0.2, max=20),
        stop=tenacity.stop_after_delay(CALL_BUDGET_SECONDS),
        reraise=True,
    )


def is_passing(error: BaseException) -> bool:
    """True for storage errors that are gone when one tries again: 429, 5xx, connections broken or timed out."""
    if isinstance(
        error, FileNotFoundError | FileExistsError | PermissionError | IsADirectoryError | NotADirectoryError
    ):
        return False
    number = _http_status(error)
    if number is None:
        return isinstance(error, ConnectionError | TimeoutError)
    return number == 429 or 500 <= number < 600


def classify(error: BaseException, *, own: bool) -> Failure:
    """The kind of an exception that ended an attempt; `own` where the step's function raised it.

    A step's connections may be to anything, so only an answer of 429 or 5xx from somewhere counts as a store's there.
    """
    return "storage" if is_passing(error) and not (own and _http_status(error) is None) else "exception"


def _http_status(error: BaseException) -> int | None:
    code = getattr(error, "code", None) or getattr(error, "status", None)
    return int(code) if isinstance(code, int | str) and str(code).isdigit() else None


@dataclasses.dataclass(kw_only=True)
class Restarts:
    """The restarts of one step in one run; `retries` is what the step says of its exceptions."""

    retries: int = 0
    counts: dict[Failure, int] = dataclasses.field(default_factory=dict)
    since: dict[Failure, float] = dataclasses.field(default_factory=dict)

    def delay(self, failure: Failure) -> float | None:
        """Seconds to wait before the next start, None when this step is given up."""
        import tenacity

        policy = POLICIES[failure]
        times = self.retries if failure == "exception" else policy.times
        self.counts[failure] = self.counts.get(failure, 0) + 1
        state = tenacity.RetryCallState(retry_object=None, fn=None, args=(), kwargs={})  # type: ignore[arg-type]
        state.attempt_number = self.counts[failure]
        state.start_time = self.since.setdefault(failure, time.monotonic())
        state.outcome_timestamp = time.monotonic()
        limits = []
        if times is not None:
            limits.append(tenacity.stop_after_attempt(times + 1))
        if policy.budget_seconds is not None:
            limits.append(tenacity.stop_after_delay(policy.budget_seconds))
        if tenacity.stop_any(*limits)(state):
            return None
        return float(tenacity.wait_random_exponential(multiplier=0.5, max=policy.longest_wait_seconds)(state))
