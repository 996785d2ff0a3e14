"""Guards: rules that watch a run, as data, and what each does when it finds something.

    {"drops": Guard(watch="drop_fraction", threshold=0.07, window=20), ...}

A guard speaks when what it watches goes over its threshold, and again only after it has come back. Whether it was over
before is read from the history too: guards keep no state of their own, and a run that was killed finds the same again.
Only throughput and stall read the clock. docs/guards.md has the table.
"""

import dataclasses
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from steps.train.history import Evaluation, History

Watch = Literal[
    "forecast",
    "loss_spike",
    "non_finite",
    "gradient_norm",
    "gradient_trend",
    "drop_fraction",
    "router_entropy",
    "router_bias",
    "throughput",
    "stall",
    "evaluation",
]

Action = Literal["off", "note", "pause", "rollback", "stop"]
"""What follows besides the event: nothing; the step ends as halted, to go on when a person says so; back to the last
checkpoint before the offending batches, which are skipped; the step fails."""

_SKIPPABLE = ("loss_spike", "non_finite", "gradient_norm")
_SEVEREST: tuple[Action, ...] = ("stop", "rollback", "pause", "note")
_SPIKE_REFERENCE = 11
_LEAST_SPIKE_NATS = 0.05
LEAST_STALL_SECONDS = 60.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Guard:
    """One rule.

    Attributes:
        watch: what is read.
        threshold: in the unit of `watch` (docs/guards.md).
        window: steps that are read together; marks for `forecast`, percent of the horizon for `gradient_trend`.
        action: what follows.
        most_rollbacks: after so many in one run the next one fails the step instead.
    """

    watch: Watch
    threshold: float
    window: int = 1
    action: Action = "note"
    most_rollbacks: int = 3

    def __post_init__(self) -> None:
        if self.window < 1:
            raise ValueError(f"a guard's window is at least 1, found {self.window} for {self.watch}")
        if self.watch == "stall" and self.action not in ("off", "note"):
            raise ValueError(f"a stalled step can only be noted, found action={self.action!r}; the watchdog ends it")
        if self.action == "rollback" and self.watch not in _SKIPPABLE:
            raise ValueError(
                f"a guard that rolls back and skips batches must point at batches: expected watch in {_SKIPPABLE}, "
                f"found {self.watch!r}; take action='pause' or 'note'"
            )


def standard_guards() -> dict[str, Guard]:
    """The alerts of the real run (docs/hero.md, section 7), made free of its size."""
    return {
        "forecast": Guard(watch="forecast", threshold=0.02),
        "forecast_twice": Guard(watch="forecast", threshold=0.02, window=2, action="pause"),
        "loss_spike": Guard(watch="loss_spike", threshold=6.0, window=5),
        "non_finite": Guard(watch="non_finite", threshold=0.0, action="stop"),
        "gradient_norm": Guard(watch="gradient_norm", threshold=5.0, window=100),
        "gradient_trend": Guard(watch="gradient_trend", threshold=1.5, window=10),
        "drop_fraction": Guard(watch="drop_fraction", threshold=0.07, window=20),
        "router_entropy": Guard(watch="router_entropy", threshold=0.995, window=20),
        "router_bias": Guard(watch="router_bias", threshold=400.0),
        "throughput": Guard(watch="throughput", threshold=0.75, window=50),
        "stall": Guard(watch="stall", threshold=50.0),
        "evaluation": Guard(watch="evaluation", threshold=0.0),
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Band:
    """What the forecast says of one mark: the loss, and its range, in nats per token."""

    loss: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Watched:
    """What guards read after a step.

    Attributes:
        history: up to that step.
        num_experts: of a layer.
        horizon_steps: of the run.
        forecast: percent of the horizon -> the band there; empty without a forecast.
        seconds: of the steps of this attempt, the latest last; steps with an evaluation or a checkpoint too.
    """

    history: History
    num_experts: int
    horizon_steps: int
    forecast: Mapping[int, Band] = dataclasses.field(default_factory=dict)
    seconds: Sequence[float] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class GuardEvent:
    """A guard spoke.

    Attributes:
        guard: its name.
        step: the training step it spoke after.
        value, limit: what was found and what was allowed, in the unit of its message.
        offending: the steps whose batches a rollback skips.
    """

    guard: str
    watch: Watch
    action: Action
    step: int
    value: float
    limit: float
    message: str
    offending: tuple[int, ...] = ()

    def facts(self) -> dict[str, Any]:
        """All but the message, as JSON; a value that is no number there is text."""
        found = dataclasses.asdict(self) | {"offending": list(self.offending)}
        del found["message"]
        return found if math.isfinite(self.value) else found | {"value": str(self.value)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Reading:
    """What a rule found: whether it is over the limit, and in which words."""

    over: bool
    value: float
    limit: float
    words: str = ""
    offending: tuple[int, ...] = ()


def inspect(guards: Mapping[str, Guard], watched: Watched) -> list[GuardEvent]:
    """Events of the step that `watched.history` ends with, the severest first."""
    step, events = watched.history.steps, []
    for name, guard in guards.items():
        rule = _RULES[guard.watch]
        reading = None if guard.action == "off" else rule(guard, watched, 0)
        if reading is None or not reading.over:
            continue
        before = rule(guard, watched, 1)
        if before is not None and before.over:
            continue
        events.append(
            GuardEvent(
                guard=name,
                watch=guard.watch,
                action=guard.action,
                step=step,
                value=reading.value,
                limit=reading.limit,
                message=f"step {step}: {reading.words}",
                offending=reading.offending,
            )
        )
    return sorted(events, key=lambda event: _SEVEREST.index(event.action))


def _last[T](values: Sequence[T], count: int, ago: int) -> Sequence[T]:
    """The last `count` of the values as they were `ago` steps ago."""
    end = len(values) - ago
    return values[max(0, end - count) : max(0, end)]


def _forecast(guard: Guard, watched: Watched, ago: int) -> _Reading | None:
    evaluations, known = _just_evaluated(watched.history), watched.forecast
    marks = [(one, known[mark]) for one in evaluations if (mark := mark_of(one.progress)) in known]
    if len(marks) <= ago or marks[-1][0] is not evaluations[-1]:
        return None
    marks = marks[: len(marks) - ago]
    latest, band = marks[-1]
    outside = [_outside(one.macro_loss, its, guard.threshold) for one, its in marks[-guard.window :]]
    again = f" at {guard.window} marks in a row" if guard.window > 1 else ""
    low, high = band.low * (1 - guard.threshold), band.high * (1 + guard.threshold)
    return _Reading(
        over=len(outside) == guard.window and all(outside),
        value=latest.macro_loss,
        limit=high if latest.macro_loss > band.loss else low,
        words=f"validation loss {latest.macro_loss:.4f} lies outside the forecast's band, {low:.4f} to {high:.4f} "
        f"({latest.macro_loss / band.loss - 1:+.1%} of {band.loss:.4f}){again}",
    )


def _outside(loss: float, band: Band, slack: float) -> bool:
    return not band.low * (1 - slack) <= loss <= band.high * (1 + slack)


def _evaluation(guard: Guard, watched: Watched, ago: int) -> _Reading | None:
    evaluations = _just_evaluated(watched.history)
    if len(evaluations) < 2 + ago:
        return None
    before, latest = evaluations[-2 - ago].macro_loss, evaluations[-1 - ago].macro_loss
    limit = before * (1 + guard.threshold)
    words = f"validation loss {latest:.4f} is above that of the evaluation before it, {before:.4f}"
    return _Reading(over=latest > limit, value=latest, limit=limit, words=words)


def _loss_spike(guard: Guard, watched: Watched, ago: int) -> _Reading | None:
    window, steps = guard.window, watched.history.steps - ago
    latest = _last(watched.history.losses, window, ago)
    before = _last(watched.history.losses, window * _SPIKE_REFERENCE, ago + window)
    if len(before) < window * _SPIKE_REFERENCE // 2:
        return None
    mean = statistics.fmean(before)
    deviation = math.sqrt(statistics.fmean([(loss - mean) ** 2 for loss in before]))
    limit = mean + max(_LEAST_SPIKE_NATS, guard.threshold * deviation)
    return _Reading(
        over=min(latest) > limit,
        value=min(latest),
        limit=limit,
        words=f"the loss of the last {_steps(window)} was never below {min(latest):.4f}; the {len(before)} before "
        f"allow {limit:.4f}",
        offending=tuple(range(steps - window + 1, steps + 1)),
    )


def _non_finite(guard: Guard, watched: Watched, ago: int) -> _Reading | None:
    history = watched.history
    if history.steps <= ago:
        return None
    latest = {"loss": history.losses[-1 - ago], "gradient norm": history.gradient_norms[-1 - ago]}
    name, value = next(((name, value) for name, value in latest.items() if not math.isfinite(value)), ("", 0.0))
    steps = (history.steps - ago,)
    return _Reading(over=bool(name), value=value, limit=math.inf, words=f"the {name} is {value}", offending=steps)


def _gradient_norm(guard: Guard, watched: Watched, ago: int) -> _Reading | None:
    latest = _last(watched.history.gradient_norms, 1, ago)
    before = _last(watched.history.gradient_norms, guard.window, ago + 1)
    if len(before) < max(1, guard.window // 2):
        return None
    median, norm = statistics.median(before), latest[0]
    limit = guard.threshold * median
    words = f"gradient norm {norm:.3g}; the median of the {len(before)} steps before is {median:.3g}"
    return _Reading(over=norm > limit, value=norm, limit=limit, words=words, offending=(watched.history.steps - ago,))


def _gradient_trend(guard: Guard, watched: Watched, ago: int) -> _Reading | None:
    norms, window = watched.history.gradient_norms, max(1, guard.window * watched.horizon_steps // 100)
    if len(norms) < 2 * window + ago:
        return None
    before, latest = statistics.fmean(_last(norms, window, ago + window)), statistics.fmean(_last(norms, window, ago))
    return _Reading(
        over=latest > guard.threshold * before,
        value=latest,
        limit=guard.threshold * before,
        words=f"the mean gradient norm rose from {before:.3g} to {latest:.3g} within {2 * window} steps",
    )


def _drop_fraction(guard: Guard, watched: Watched, ago: int) -> _Reading | None:
    history, window = watched.history, guard.window
    assignments = _last(history.assignments, window, ago)
    if len(assignments) < window:
        return None
    lost = sum(_last(history.sender_dropped, window, ago)) + sum(_last(history.receiver_dropped, window, ago))
    dropped = lost / max(1, sum(assignments))
    words = f"{dropped:.1%} of the assignments of {_steps(window)} were dropped; allowed: {guard.threshold:.1%}"
    return _Reading(over=dropped > guard.threshold, value=dropped, limit=guard.threshold, words=words)


def _router_entropy(guard: Guard, watched: Watched, ago: int) -> _Reading | None:
    latest = _last(watched.history.router_entropy, guard.window, ago)
    if len(latest) < guard.window:
        return None
    entropy, even = statistics.fmean(latest), math.log(watched.num_experts)
    words = (
        f"the router's entropy over {_steps(guard.window)} is {entropy:.4f} nats, {entropy / even:.2%} of ln E; "
        f"the least: {guard.threshold:.2%}"
    )
    return _Reading(over=entropy < guard.threshold * even, value=entropy, limit=guard.threshold * even, words=words)


def _router_bias(guard: Guard, watched: Watched, ago: int) -> _Reading | None:
    latest = _last(watched.history.router_bias, guard.window, ago)
    if len(latest) < guard.window:
        return None
    value = min(latest)
    words = f"a router bias is {value:.4g} from zero; allowed: {guard.threshold:g}"
    return _Reading(over=value > guard.threshold, value=value, limit=guard.threshold, words=words)


def _throughput(guard: Guard, watched: Watched, ago: int) -> _Reading | None:
    seconds = watched.seconds
    if len(seconds) < 3 * guard.window + ago:
        return None
    latest = statistics.median(_last(seconds, guard.window, ago))
    share = statistics.median(seconds) / latest
    words = f"{share:.0%} of this attempt's usual throughput over {_steps(guard.window)} ({latest:.3g} s a step)"
    return _Reading(over=share < guard.threshold, value=share, limit=guard.threshold, words=words)


def _stall(guard: Guard, watched: Watched, ago: int) -> None:
    """A step that does not end is not seen after it: steps.train.watchdog watches from another thread."""


def stall_seconds(guard: Guard, seconds: Sequence[float]) -> float | None:
    """After how long without an end a step counts as stalled; None while nothing is known of its like."""
    if guard.action == "off" or not seconds:
        return None
    return max(LEAST_STALL_SECONDS, guard.threshold * statistics.median(seconds))


_RULES: dict[Watch, Callable[[Guard, Watched, int], _Reading | None]] = {
    "forecast": _forecast,
    "loss_spike": _loss_spike,
    "non_finite": _non_finite,
    "gradient_norm": _gradient_norm,
    "gradient_trend": _gradient_trend,
    "drop_fraction": _drop_fraction,
    "router_entropy": _router_entropy,
    "router_bias": _router_bias,
    "throughput": _throughput,
    "stall": _stall,
    "evaluation": _evaluation,
}


def mark_of(progress: float) -> int:
    """Progress as whole percent, which marks of forecast and evaluation are compared by."""
    return round(progress * 100)


def _just_evaluated(history: History) -> list[Evaluation]:
    """The evaluations, where the last of them is of this very step; else none."""
    return history.evals if history.evals and history.evals[-1].step == history.steps else []


def _steps(count: int) -> str:
    return "one step" if count == 1 else f"{count} steps"
