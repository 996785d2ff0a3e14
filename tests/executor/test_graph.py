"""Order, names and cycles."""

import dataclasses

import pytest

from executor import Input, MarinadeError, Step
from executor.keys.graph import Graph


@dataclasses.dataclass(frozen=True)
class Config:
    number: int = 0
    source: Input | None = None


def work(config, output):
    return None


def test_two_equal_steps_are_one():
    one, same = Step("a", work, Config(1)), Step("a", work, Config(1))
    graph = Graph.of([Step("b", work, Config(source=one)), Step("c", work, Config(source=same))])
    assert list(graph.steps) == ["a", "b", "c"]


def test_two_different_steps_of_one_name_show_both_places():
    one, other = Step("a", work, Config(1)), Step("a", work, Config(2))
    with pytest.raises(MarinadeError, match=r"(?s)named a.*b: source.*c: source.*number: 1 and 2"):
        Graph.of([Step("b", work, Config(source=one)), Step("c", work, Config(source=other))])


def test_a_cycle_is_shown():
    first = Step("a", work, Config())
    second = Step("b", work, Config(source=first))
    object.__setattr__(first.config, "source", second)
    with pytest.raises(MarinadeError, match="a -> b -> a"):
        Graph.of([first])


@pytest.mark.parametrize("name", ["", "a//b", "../a", "a b", ".", "a/..", "/a"])
def test_names_are_paths(name):
    with pytest.raises(MarinadeError, match="no name for a step"):
        Graph.of([Step(name, work, Config())])


def test_a_chain_of_ten_thousand_steps_plans(tmp_path):
    from executor import Experiment
    from executor.planning.planner import make_plan
    from executor.storage.store import Store

    step = None
    for number in range(10_000):
        step = Step(f"s{number}", work, Config(number, step))
    assert step is not None
    plan = make_plan(Experiment(targets=(step,)), Store(str(tmp_path)), recipe="r.py", scale="laptop")
    assert plan.counts() == {"run": 10_000}
    assert [found.name for found in plan.steps[:2]] == ["s0", "s1"]
