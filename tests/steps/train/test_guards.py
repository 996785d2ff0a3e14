"""Each guard, provoked: when it speaks, when it keeps silent, and that it speaks once until it has come back."""

import dataclasses
import math
import re
from pathlib import Path

import pytest

from steps.train.guards import Band, Guard, GuardEvent, Watched, inspect, stall_seconds, standard_guards
from steps.train.history import Evaluation, History

EXPERTS = 16
EVEN = math.log(EXPERTS)
BANDS = {5 * mark: Band(loss=4.0, low=3.9, high=4.1) for mark in range(1, 21)}


def history_of(steps: int, **changes) -> History:
    """A run without events: falling loss, steady norms, even router."""
    usual = {
        "losses": [5.0 + 0.01 * (index % 2) for index in range(steps)],
        "gradient_norms": [1.0] * steps,
        "router_entropy": [EVEN] * steps,
        "router_bias": [1.0] * steps,
        "largest_device": [1.0] * steps,
        "largest_pair": [1.0] * steps,
        "sender_dropped": [0] * steps,
        "receiver_dropped": [1] * steps,
        "assignments": [100] * steps,
    }
    return History(**(usual | changes))


def evaluated(step: int, progress: float, loss: float) -> Evaluation:
    return Evaluation(step=step, progress=progress, tokens=step, macro_loss=loss, losses={}, bits_per_byte={})


def spoken(history: History, guards: dict[str, Guard] | None = None, **watched) -> list[GuardEvent]:
    taken = standard_guards() if guards is None else guards
    return inspect(taken, Watched(history=history, num_experts=EXPERTS, horizon_steps=1000, **watched))


def names(*arguments, **watched) -> list[str]:
    return [event.guard for event in spoken(*arguments, **watched)]


def ending(value: float, steps: int, usual: float, count: int = 1) -> list[float]:
    return [usual] * (steps - count) + [value] * count


def test_a_quiet_run_says_nothing():
    for steps in (1, 2, 40, 300):
        assert names(history_of(steps), seconds=[1.0] * steps) == []


PROVOKED = {
    "loss_spike": {"losses": ending(5.2, 60, 5.0, count=5)},
    "non_finite": {"losses": ending(math.nan, 60, 5.0)},
    "gradient_norm": {"gradient_norms": ending(5.1, 60, 1.0)},
    "drop_fraction": {"receiver_dropped": ending(8, 60, 7, count=1)},
    "router_entropy": {"router_entropy": [EVEN] * 40 + [0.9949 * EVEN] * 20},
    "router_bias": {"router_bias": ending(401.0, 60, 1.0)},
}


@pytest.mark.parametrize("guard", PROVOKED)
def test_what_a_step_measured_provokes_it_once(guard):
    history = history_of(60, **PROVOKED[guard])
    assert names(history) == [guard]
    longer = history_of(61, **{name: [*values, values[-1]] for name, values in PROVOKED[guard].items()})
    assert names(longer) == []


@pytest.mark.parametrize(
    ("figures", "values"),
    [
        ("losses", ending(5.2, 60, 5.0, count=4)),  # four high steps are no spike
        ("losses", [5.0] * 55 + [5.049] * 5),  # less than 0.05 nats
        ("gradient_norms", ending(4.9, 60, 1.0)),
        ("receiver_dropped", [7] * 60),
        ("router_entropy", [0.9951 * EVEN] * 60),
        ("router_bias", [399.0] * 60),
    ],
)
def test_just_inside_the_limit_it_is_silent(figures, values):
    assert names(history_of(60, **{figures: values})) == []


def test_a_spike_and_a_bad_gradient_point_at_their_batches():
    (spike,) = spoken(history_of(60, **PROVOKED["loss_spike"]))
    assert (spike.step, spike.offending, spike.action) == (60, (56, 57, 58, 59, 60), "note")
    assert spike.limit == pytest.approx(5.05)
    (bad,) = spoken(history_of(60, gradient_norms=ending(math.inf, 60, 1.0)), {"g": standard_guards()["non_finite"]})
    assert (bad.offending, bad.action, bad.facts()["value"]) == ((60,), "stop", "inf")


def test_gradient_trend_compares_two_tenths_of_the_horizon():
    rising = [1.0] * 100 + [1.5] * 100
    assert names(history_of(201, gradient_norms=[1.0, *rising[:-1], 1.6])) == ["gradient_trend"]
    assert names(history_of(200, gradient_norms=rising)) == []  # 1.5 times is allowed
    assert names(history_of(199, gradient_norms=[1.0] * 100 + [2.0] * 99)) == []  # the tenth is not over


def test_throughput_is_compared_with_the_attempts_own():
    slow = [1.0] * 100 + [1.4] * 26
    assert names(history_of(150), seconds=[1.0] * 124 + [1.4] * 26) == ["throughput"]
    assert names(history_of(151), seconds=[1.0] * 124 + [1.4] * 27) == []  # said already
    assert names(history_of(150), seconds=[*slow[:26], *[1.3] * 124]) == []


def test_an_evaluation_worse_than_the_one_before():
    worse = [evaluated(30, 0.03, 4.5), evaluated(60, 0.06, 4.6)]
    assert names(history_of(60, evals=worse)) == ["evaluation"]
    assert names(history_of(61, evals=worse)) == []  # an evaluation of an earlier step is no news
    assert names(history_of(60, evals=worse[::-1])) == []


def forecast_run(*losses: float) -> History:
    evaluations = [evaluated(50 * mark, 0.05 * mark, loss) for mark, loss in enumerate(losses, 1)]
    return history_of(50 * len(losses), evals=evaluations, gradient_norms=[1.0] * 50 * len(losses))


def test_the_forecasts_band_is_noted_once_and_pauses_at_the_second_mark():
    """The band is 3.9 to 4.1; 2% beyond it are allowed, to 3.822 and 4.182."""
    assert names(forecast_run(4.18), forecast=BANDS) == []
    (once,) = spoken(forecast_run(4.19), forecast=BANDS)
    assert (once.guard, once.action, once.limit) == ("forecast", "note", pytest.approx(4.182))
    (twice,) = spoken(forecast_run(4.20, 4.19), forecast=BANDS)
    assert (twice.guard, twice.action) == ("forecast_twice", "pause")
    assert "2 marks in a row" in twice.message and "+4.8% of 4.0000" in twice.message
    assert names(forecast_run(4.25, 4.20, 4.19), forecast=BANDS) == []  # acknowledged: silent until it has come back
    assert names(forecast_run(4.25, 4.20, 4.00, 3.99), forecast=BANDS) == []
    assert names(forecast_run(4.00, 3.82), forecast=BANDS) == ["forecast"]  # better than predicted is news too
    assert names(forecast_run(4.19)) == []  # no forecast


def test_further_evaluations_between_marks_do_not_break_a_row():
    history = forecast_run(4.20, 4.19)
    between = evaluated(77, 0.077, 4.195)
    history.evals.insert(1, between)
    assert names(history, forecast=BANDS) == ["forecast_twice"]


def test_the_severest_comes_first_and_off_is_off():
    history = history_of(60, **PROVOKED["drop_fraction"], **PROVOKED["non_finite"])
    assert names(history) == ["non_finite", "drop_fraction"]
    off = dataclasses.replace(standard_guards()["non_finite"], action="off")
    assert names(history, {"non_finite": off}) == []


def test_stall_waits_for_many_times_the_median_and_at_least_a_minute():
    guard = standard_guards()["stall"]
    assert stall_seconds(guard, [0.1] * 9) == 60.0
    assert stall_seconds(guard, [18.0] * 9) == 900.0
    assert stall_seconds(guard, []) is None
    assert stall_seconds(dataclasses.replace(guard, action="off"), [1.0]) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"watch": "drop_fraction", "action": "rollback"}, "must point at batches"),
        ({"watch": "stall", "action": "pause"}, "can only be noted"),
        ({"watch": "loss_spike", "window": 0}, "at least 1"),
    ],
)
def test_guards_that_cannot_work_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Guard(**({"threshold": 1.0} | changes))


def test_the_page_shows_the_guards_as_they_are():
    page = (Path(__file__).parents[3] / "docs/guards.md").read_text()
    shown = {
        name: (float(threshold), int(window), action)
        for name, threshold, window, action in re.findall(
            r"^\| `(\w+)` \| (\S+) \| (\d+) \| (\w+) \|", page, re.MULTILINE
        )
    }
    assert shown == {name: (guard.threshold, guard.window, guard.action) for name, guard in standard_guards().items()}
