"""What a change costs: numbers of both sides, totals, what is left to run, results run and predicted."""

import dataclasses
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from executor.comparing.compare import Diff, diff
from executor.comparing.costs import Costs, ToRun, costs, still_to_run
from executor.comparing.side import Side, SideStep
from executor.keys.identity import hash_json, without_names
from executor.render.costs import costs_json, costs_markdown, costs_text
from executor.render.terminal import Terminal

GOLDEN = Path(__file__).parent / "golden"
UNKNOWN: Any = "unknown"


def golden(name: str, text: str) -> None:
    """`UPDATE_GOLDEN=1 pytest tests/executor/test_costs.py` writes them anew. Only text has a width."""
    if os.environ.get("UPDATE_GOLDEN"):
        (GOLDEN / name).write_text(text)
    assert text == (GOLDEN / name).read_text()
    assert name.endswith(".md") or max(map(len, text.splitlines())) <= 80


def side(label: str = "x", **declared: tuple[Any, ...]) -> Side:
    """name=(value, inputs, numbers) or with `amends` as a fourth; the value is all that a step's config holds."""
    steps: dict[str, SideStep] = {}
    for name, (value, inputs, numbers, *amends) in declared.items():
        config = {
            "$type": "steps.Config",
            "value": value,
            "inputs": [{"$input": {"step": i, "key": steps[i].key, "part": "", "at": None}} for i in inputs],
        }
        payload = {"function": "steps.work", "version": "", "config": config, "code": {}}
        steps[name] = SideStep(
            key=hash_json(without_names(payload)),
            payload=payload,
            numbers=None if numbers is UNKNOWN else numbers,
            amends=amends[0] if amends else "",
        )
    return Side(label=label, steps=steps)


def compared(a: Side, b: Side, **more: Any) -> Costs:
    return costs(diff(a, b), a, b, **more)


def run(parameters: int, days: float) -> dict[str, float]:
    return {"parameters_total": parameters, "tokens": 1000, "days": days, "devices": 8}


BASE: dict[str, Any] = {
    "data": ("d", (), {}),
    "small": (1, ("data",), run(10, 0.5)),
    "law": ("l", ("small",), {}),
    "big": (3, ("data",), run(100, 4.0)),
}


def changed(found: Costs) -> dict[str, dict[str, tuple[Any, Any]]]:
    return {step.step: {change.name: (change.old, change.new) for change in step.numbers} for step in found.steps}


def test_only_numbers_that_differ_are_listed_and_sums_are_of_all_steps() -> None:
    found = compared(side(**BASE), side(**{**BASE, "big": (4, ("data",), run(200, 5.0))}))
    assert changed(found) == {"big": {"parameters_total": (100, 200), "days": (4.0, 5.0)}}
    assert {c.name: (c.old, c.new) for c in found.totals} == {"tokens": (2000, 2000), "days": (4.5, 5.5)}
    assert found.steps[0].kind == "changed" and not found.steps[0].is_same and found.unknown == ()


def test_a_change_without_numbers_costs_nothing() -> None:
    found = compared(side(**BASE), side(**{**BASE, "big": (4, ("data",), run(100, 4.0))}))
    assert found == Costs() and costs_text(found, Terminal()) == "" and costs_markdown(found) == ""


def test_steps_of_one_side_only_come_with_all_their_numbers() -> None:
    more = {**BASE, "huge": (9, ("data",), run(900, 9.0))}
    found = compared(side(**BASE), side(**more))
    assert [(step.step, step.kind) for step in found.steps] == [("huge", "added")]
    assert changed(found)["huge"]["parameters_total"] == (None, 900)
    assert {c.name: (c.old, c.new) for c in found.totals}["days"] == (4.5, 13.5)
    found = compared(side(**more), side(**BASE))
    assert [(step.step, step.kind) for step in found.steps] == [("huge", "removed")]
    assert changed(found)["huge"]["days"] == (9.0, None)


def test_a_renamed_step_is_compared_with_what_it_was() -> None:
    renamed = {**{k: v for k, v in BASE.items() if k != "big"}, "large": (3, ("data",), run(100, 6.0))}
    found = compared(side(**BASE), side(**renamed))
    assert [(step.step, step.before, step.kind) for step in found.steps] == [("large", "big", "changed")]
    assert changed(found) == {"large": {"days": (4.0, 6.0)}}


def test_an_amendment_is_added_and_its_base_is_wanted_less_far() -> None:
    fork = {
        **BASE,
        "big": (3, ("data",), {**run(100, 1.0), "tokens": 250}),
        "fork": ("f", ("big",), {**run(100, 3.0), "tokens": 750}, "big"),
    }
    found = compared(side(**BASE), side(**fork))
    assert [(step.step, step.kind, step.amends, step.is_same) for step in found.steps] == [
        ("big", "changed", "", True),
        ("fork", "added", "big", False),
    ]
    assert all(total.old == total.new for total in found.totals)
    back = compared(side(**fork), side(**BASE))
    assert [(step.step, step.kind, step.amends) for step in back.steps] == [
        ("big", "changed", ""),
        ("fork", "removed", "big"),
    ]


def test_numbers_that_were_not_kept_are_said_once_and_nothing_is_guessed() -> None:
    old = {name: (value, inputs, UNKNOWN) for name, (value, inputs, _) in BASE.items()}
    found = compared(side(**old), side(**{**BASE, "big": (4, ("data",), run(200, 5.0))}))
    assert found.unknown == ("a",) and not found.steps and not found.totals
    assert costs_text(found, Terminal()).startswith("note: the numbers of a were not kept")
    without = {name: (value, inputs, {}) for name, (value, inputs, _) in BASE.items()}
    assert compared(side(**old), side(**without)).unknown == ()  # nothing to compare with


def test_one_step_whose_numbers_were_not_kept_is_left_out() -> None:
    found = compared(
        side(**{**BASE, "small": (1, ("data",), UNKNOWN)}),
        side(**{**BASE, "small": (2, ("data",), run(20, 1.0)), "big": (4, ("data",), run(200, 5.0))}),
    )
    assert set(changed(found)) == {"big"}


def test_what_is_left_to_run_counts_the_steps_that_are_not_there() -> None:
    actions = {"data": "reuse", "small": "reuse", "law": "maybe", "big": "run"}
    found = still_to_run(side(**BASE), actions)
    assert found == ToRun(actions={"maybe": 1, "run": 1}, numbers={"tokens": 1000, "days": 4.0}, of=4)
    assert still_to_run(side(**BASE), dict.fromkeys(actions, "reuse")).actions == {}


# Results


def results(**more: Any) -> list[tuple[str, str, Any, Any, bool]]:
    b = side(**{**BASE, "law": ("m", ("small",), {})})
    found = compared(side(**BASE), b, **more)
    return [(r.step, r.name, r.old, r.new, r.predicted) for r in found.results]


RESULT = {"headline": {"loss": 2.0, "words": "no number", "is": True}, "else": 3.0}


def test_headlines_of_steps_that_differ_stand_side_by_side() -> None:
    assert results(results_a={"law": RESULT}, results_b={"law": {"headline": {"loss": 1.5}}}) == [
        ("law", "loss", 2.0, 1.5, False)
    ]
    assert results(results_a={"law": RESULT}) == [("law", "loss", 2.0, None, False)]
    assert results(results_a={"big": RESULT, "law": {"loss": 1.0}}) == []  # the same step; no headline


def test_a_result_not_there_yet_is_predicted_from_the_other_sides() -> None:
    predict = {"law": lambda result: {"loss": result["headline"]["loss"] - 0.25}}
    assert results(results_a={"law": RESULT}, predict=predict) == [("law", "loss", 2.0, 1.75, True)]
    ran = {"law": {"headline": {"loss": 1.5}}}
    assert results(results_a={"law": RESULT}, results_b=ran, predict=predict) == [("law", "loss", 2.0, 1.5, False)]
    assert results(results_a={"law": RESULT}, predict={"law": lambda result: {}}) == [("law", "loss", 2.0, None, False)]


def test_nothing_is_predicted_where_other_inputs_are_read() -> None:
    """The law of one ladder says nothing about what another ladder would have given."""
    b = side(**{**BASE, "small": (2, ("data",), run(20, 1.0))})
    found = compared(
        side(**BASE), b, results_a={"law": RESULT}, predict={"law": lambda result: pytest.fail("must not be asked")}
    )
    assert [(r.step, r.old, r.new) for r in found.results] == [("law", 2.0, None)]


# Rendering

HERO = {
    "parameters_total": 535_480_000_000,
    "parameters_active": 22_762_000_000,
    "forward_flops_per_token": 49_912_000_000,
    "tokens": 14_404_000_000_000,
    "flops_total": 2.157e24,
    "devices": 704,
    "memory_per_device_bytes": 130 << 30,
    "wire_bytes_per_device": 1011 << 30,
    "step_seconds": 16.8,
    "days": 60.61,
    "device_hours": 1_024_100.0,
}


def shown() -> Costs:
    wider = {name: value * 1.25 if name != "devices" else value for name, value in HERO.items()}
    forecast = ("f", ("small",), {"ladder_loss": 2.0})
    a = side("recipes/a.py", **{**BASE, "hero": (1, ("data",), HERO), "forecast": forecast})
    b = side(
        "recipes/b.py",
        **{
            **BASE,
            "hero": (2, ("data",), wider),
            "forecast": ("g", ("small",), {"ladder_loss": 1.95}),
            "hero/fork": ("f", ("hero",), HERO, "hero"),
        },
    )
    return compared(
        a,
        b,
        results_a={"hero": {"headline": {"validation loss": 2.041}}, "forecast": RESULT},
        results_b={},
        predict={"forecast": lambda result: {"loss": 1.9}},
        to_run=still_to_run(b, {"data": "reuse", "small": "reuse", "law": "maybe", "big": "resume", "hero": "run"}),
        notes=("the store was slow",),
    )


def test_text_and_markdown() -> None:
    golden("costs.txt", costs_text(shown(), Terminal()))
    golden("costs.md", costs_markdown(shown()))


def test_json_keeps_exact_numbers() -> None:
    data = json.loads(json.dumps(costs_json(shown()), allow_nan=False))
    assert data["steps"][0]["step"] == "hero"
    total = HERO["parameters_total"]
    assert {"name": "parameters_total", "old": total, "new": total * 1.25} in data["steps"][0]["numbers"]
    assert data["to_run"]["actions"] == {"maybe": 1, "resume": 1, "run": 1} and data["to_run"]["steps"] == 3
    assert data["results"][-1] == {"step": "forecast", "name": "loss", "old": 2.0, "new": 1.9, "predicted": True}


def test_many_steps_are_cut_in_text_and_whole_in_json() -> None:
    many = {f"s{n:02d}": (n, (), run(n, 1.0)) for n in range(40)}
    more = {name: (value, inputs, {**numbers, "days": 2.0}) for name, (value, inputs, numbers) in many.items()}
    found = compared(side(**many), side(**more))
    assert "… 28 more steps in --json" in costs_text(found, Terminal())
    assert len(costs_json(found)["steps"]) == 40


def test_ten_thousand_steps_are_not_compared_with_each_other() -> None:
    """All pairs would take minutes; it is a third of a second, and the limit leaves room for a busy machine."""
    step = SideStep(key="k", payload={"config": {}}, numbers={})
    steps = {f"s{n}": step for n in range(10_000)}
    a, b = Side(label="a", steps=steps), Side(label="b", steps={**steps, "s0": dataclasses.replace(step, key="l")})
    began = time.process_time()
    assert costs(Diff(a="a", b="b"), a, b).steps == ()
    assert time.process_time() - began < 5
