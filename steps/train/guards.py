"""Guards: rules that watch a run, as data, and what each does when it finds something.

    {"drops": Guard(watch="drop_fraction", threshold=0.07, window=20), ...}

A guard speaks when what it watches goes over its threshold, and again only after it has come back. All but throughput
and stall read the history alone, so that a run that was killed finds the same again. docs/guards.md has the table.
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
        """As JSON; a value that is no number there is text."""
        found = dataclasses.asdict(self) | {"offending": list(self.offending)}
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
    """Events of the step that `watched.history` ends with, the severest first.

    Which guards are over their threshold is kept in the history.
    """
    history, events = watched.history, []
    for name, guard in guards.items():
        reading = None if guard.action == "off" else _RULES[guard.watch](guard, watched)
        if reading is None:
            continue
        was_over = name in history.guards
        if not reading.over:
            history.guards.pop(name, None)
        elif not was_over:
            history.guards[name] = history.steps
            events.append(
                GuardEvent(
                    guard=name,
                    watch=guard.watch,
                    action=guard.action,
                    step=history.steps,
                    value=reading.value,
                    limit=reading.limit,
                    message=f"step {history.steps}: {reading.words}",
                    offending=reading.offending,
                )
            )
    return sorted(events, key=lambda event: _SEVEREST.index(event.action))


def _forecast(guard: Guard, watched: Watched) -> _Reading | None:
    evaluations = _just_evaluated(watched.history)
    marks = [
        (one, watched.forecast[mark]) for one in evaluations if (mark := mark_of(one.progress)) in watched.forecast
    ]
    if not marks or marks[-1][0] is not evaluations[-1]:
        return None
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


def _evaluation(guard: Guard, watched: Watched) -> _Reading | None:
    evaluations = _just_evaluated(watched.history)
    if len(evaluations) < 2:
        return None
    before, latest = evaluations[-2].macro_loss, evaluations[-1].macro_loss
    limit = before * (1 + guard.threshold)
    words = f"validation loss {latest:.4f} is above that of the evaluation before it, {before:.4f}"
    return _Reading(over=latest > limit, value=latest, limit=limit, words=words)


def _loss_spike(guard: Guard, watched: Watched) -> _Reading | None:
    losses, window = watched.history.losses, guard.window
    before, latest = losses[-window * (_SPIKE_REFERENCE + 1) : -window], losses[-window:]
    if len(before) < window * _SPIKE_REFERENCE // 2:
        return None
    limit = statistics.fmean(before) + max(_LEAST_SPIKE_NATS, guard.threshold * statistics.pstdev(before))
    steps = watched.history.steps
    return _Reading(
        over=min(latest) > limit,
        value=min(latest),
        limit=limit,
        words=f"the loss of the last {window} steps was never below {min(latest):.4f}; the {len(before)} before them "
        f"allow {limit:.4f}",
        offending=tuple(range(steps - window + 1, steps + 1)),
    )


def _non_finite(guard: Guard, watched: Watched) -> _Reading:
    history = watched.history
    latest = {"loss": history.losses[-1], "gradient norm": history.gradient_norms[-1]}
    bad = {name: value for name, value in latest.items() if not math.isfinite(value)}
    name, value = next(iter(bad.items()), ("loss", history.losses[-1]))
    return _Reading(
        over=bool(bad), value=value, limit=math.inf, words=f"the {name} is {value}", offending=(history.steps,)
    )


def _gradient_norm(guard: Guard, watched: Watched) -> _Reading | None:
    *before, latest = watched.history.gradient_norms[-guard.window - 1 :]
    if len(before) < guard.window // 2:
        return None
    median = statistics.median(before)
    limit = guard.threshold * median
    words = f"gradient norm {latest:.3g} is {latest / median:.1f} times the median of {len(before)} steps, {median:.3g}"
    return _Reading(over=latest > limit, value=latest, limit=limit, words=words, offending=(watched.history.steps,))


def _gradient_trend(guard: Guard, watched: Watched) -> _Reading | None:
    norms, window = watched.history.gradient_norms, max(1, guard.window * watched.horizon_steps // 100)
    if len(norms) < 2 * window:
        return None
    before, latest = statistics.fmean(norms[-2 * window : -window]), statistics.fmean(norms[-window:])
    return _Reading(
        over=latest > guard.threshold * before,
        value=latest,
        limit=guard.threshold * before,
        words=f"the mean gradient norm rose from {before:.3g} to {latest:.3g} within {2 * window} steps",
    )


def _drop_fraction(guard: Guard, watched: Watched) -> _Reading | None:
    if watched.history.steps < guard.window:
        return None
    dropped = watched.history.drop_fraction(guard.window)
    words = f"{dropped:.1%} of the assignments of {_steps(guard.window)} were dropped; allowed: {guard.threshold:.1%}"
    return _Reading(over=dropped > guard.threshold, value=dropped, limit=guard.threshold, words=words)


def _router_entropy(guard: Guard, watched: Watched) -> _Reading | None:
    if watched.history.steps < guard.window:
        return None
    entropy = statistics.fmean(watched.history.router_entropy[-guard.window :])
    even = math.log(watched.num_experts)
    words = (
        f"the router's entropy, {entropy:.4f} nats over {_steps(guard.window)}, is {entropy / even:.1%} of ln E; "
        f"{guard.threshold:.1%} are the least"
    )
    return _Reading(over=entropy < guard.threshold * even, value=entropy, limit=guard.threshold * even, words=words)


def _router_bias(guard: Guard, watched: Watched) -> _Reading | None:
    latest = watched.history.router_bias[-guard.window :]
    if len(latest) < guard.window:
        return None
    value = min(latest)
    words = f"a router bias is {value:.4g} from zero, {guard.threshold:g} is allowed"
    return _Reading(over=value > guard.threshold, value=value, limit=guard.threshold, words=words)


def _throughput(guard: Guard, watched: Watched) -> _Reading | None:
    seconds = watched.seconds
    if len(seconds) < 3 * guard.window:
        return None
    usual, latest = statistics.median(seconds), statistics.median(seconds[-guard.window :])
    share = usual / latest
    words = f"{share:.0%} of this attempt's usual throughput over {_steps(guard.window)} ({latest:.3g} s a step)"
    return _Reading(over=share < guard.threshold, value=share, limit=guard.threshold, words=words)


def _stall(guard: Guard, watched: Watched) -> None:
    """A step that does not end is not seen after it: steps.train.watchdog watches from another thread."""


def stall_seconds(guard: Guard, seconds: Sequence[float]) -> float | None:
    """After how long without an end a step counts as stalled; None while nothing is known of its like."""
    if guard.action == "off" or not seconds:
        return None
    return max(LEAST_STALL_SECONDS, guard.threshold * statistics.median(seconds))


_RULES: dict[Watch, Callable[[Guard, Watched], _Reading | None]] = {
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
