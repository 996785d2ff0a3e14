# ruff: noqa: E501 - recipes as text
"""A key changes though nothing changed: each report of another tool, as a small scenario with the key it is owed."""

import dataclasses
import enum
import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from executor import IdentityError, Store, fingerprint
from executor.keys.graph import Graph
from executor.planning.planner import make_plan


@dataclasses.dataclass(frozen=True)
class Model:
    name: str = "bert"
    rate: float = 1e-5
    sizes: dict = dataclasses.field(default_factory=dict)
    loose: object = None


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    size: int = 1


@dataclasses.dataclass
class Lazy:
    size: int = 1

    @functools.cached_property
    def squares(self) -> list[int]:
        return [n * n for n in range(self.size)]


class Color(enum.Enum):
    RED = 1


class Opaque:
    """Known only by its address."""


RECIPE = """
    import sys
    from executor.keys.graph import Graph

    @dataclasses.dataclass(frozen=True)
    class Config:
        names: frozenset = frozenset({"alpha", "beta", "gamma", "delta"})
        nested: dict = dataclasses.field(default_factory=lambda: {"b": {"y": 1, "x": 2}, "a": [1]})
        rate: float = 1e-5
        source: Input | None = None

    def helper(x):
        return x + 1

    def work(config, output):
        put(f"{output}/a", f"{helper(1)}")

    @dataclasses.dataclass(frozen=True)
    class Settings(Scales):
        rate: float = 1e-5

    def build(settings: Settings):
        first = Step("first", work, Config(rate=settings.rate))
        return Experiment(targets=(Step("second", work, Config(source=first)),))

    if __name__ == "__main__":
        print(*Graph.of(build(Settings()).targets).keys.values())
    """


def keys(project, text: str = RECIPE, *overrides: str) -> list[str]:
    project.write("toy_recipe.py", text)
    return [step.key for step in project.plan(*overrides).values()]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(
            Model(sizes={"a": {"x": 1, "y": [2]}, "b": 3}),
            Model(sizes={"b": 3, "a": {"y": [2], "x": 1}}),
            id="flyte#2924",
        ),
        pytest.param(["bert"] * 2, ["bert", "".join(["be", "rt"])], id="tango#602"),
        pytest.param([np.float64(0.5)] * 2, [np.float64(0.5), np.float64(0.5)], id="joblib#393"),
        pytest.param({"b", "a", "c"}, {"c", "b", "a"}, id="ludwig#3195: a set of column names"),
        pytest.param(Color.RED, Color(1), id="dask#9209: enum"),
        pytest.param(range(0, 10, 3), range(0, 12, 3), id="dask#9209: range"),
        pytest.param(Slotted(2), Slotted(size=2), id="dask#9209: slots"),
        pytest.param(Model(rate=1e-5), Model(rate=0.00001), id="dvc#8466: 0.00001"),
        pytest.param(Model(rate=1e-5), Model(rate=json.loads(json.dumps(1e-5))), id="dvc#8466: JSON"),
        pytest.param(Model(rate=1e-5), Model(rate=yaml.safe_load(yaml.safe_dump(1e-5))), id="dvc#8466: YAML"),
    ],
)
def test_equal_by_value(first, second):
    assert fingerprint(first) == fingerprint(second)


def test_a_lazy_property_read_before_hashing():
    """open-instruct PR#1802."""
    fresh, read = Lazy(3), Lazy(3)
    assert read.squares == [0, 1, 4] and "squares" in vars(read)
    assert fingerprint(read) == fingerprint(fresh)


def test_what_is_known_by_its_address_only_is_an_error_that_names_the_field():
    """dask#9209."""
    with pytest.raises(IdentityError, match=r"loose\.0: .*Opaque has no stable form"):
        fingerprint(Model(loose=[Opaque()]))


def test_no_pickle_bytes_in_a_key():
    """cloudpickle#385: a blank line before a function, and the order in which strings were interned."""
    first, second = ["x" * 20, "y" * 20], ["".join("x" for _ in range(20)), sys.intern("y" * 20)]
    assert fingerprint([first, first[0]]) == fingerprint([second, "x" * 20])


@pytest.mark.parametrize("seed", ["1", "2"])
def test_another_process_run_as_a_script(project, seed):
    """flyte#6775, cachier#18, prefect#12229: PYTHONHASHSEED, and classes and functions of `__main__`."""
    expected = keys(project)
    found = subprocess.run(
        [sys.executable, str(project.root / "toy_recipe.py")],
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
    )
    assert found.stdout.split() == expected


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("    def work(", "    def unrelated():\n        return 0\n\n    def work(", id="datasets#1779: moved down"),
        pytest.param("    def helper(", "\n\n    def helper(", id="cloudpickle#385: a blank line"),
        pytest.param("return x + 1", "# more\n        return x + 1", id="snakemake#3819: comment"),
        pytest.param("return x + 1", '"""Adds one."""\n        return x + 1', id="snakemake#3819: docstring"),
        pytest.param("return x + 1", "return (\n            x +\n            1)", id="snakemake#3819: formatting"),
        pytest.param("def helper(x)", "def helper(x: int) -> int", id="snakemake#3819: annotation"),
        pytest.param('Step("first"', 'Step("renamed"', id="hamilton#1250: renamed"),
        pytest.param("rate: float = 1e-5\n        source", "rate: float = 1e-5\n        z: float = added(default=0.0, born=0.0)\n        source", id="hamilton#1250: a field at the value it was born with"),
        pytest.param("rate: float = 1e-5\n        source", "rate: float = 1e-5\n        retries: int = execution(3)\n        source", id="zenml#3880: an option of execution"),
        pytest.param('Config(source=first))', 'Config(source=first), resources=Resources(cpus=2, memory_gib=4))', id="zenml#3880: resources"),
    ],
)  # fmt: skip
def test_edits_that_change_nothing_rerun_nothing(project, old, new):
    before = keys(project)
    project.run()
    assert old in RECIPE
    assert keys(project, RECIPE.replace(old, new)) == before
    assert {step.action for step in project.plan().values()} == {"reuse"}


@pytest.mark.parametrize("text", ["1e-5", "0.00001", "1.0e-5"])
def test_one_number_in_several_spellings(project, text):
    """dvc#8466: typed on the command line; still a float."""
    project.write("toy_recipe.py", RECIPE)
    step = project.plan(f"rate={text}")["first"]
    assert step.key == project.plan()["first"].key
    assert isinstance(step.payload["config"]["rate"], float)


@pytest.mark.parametrize("prefix", ["memory://bucket/store", "memory://another-region/a b", "elsewhere"])
def test_another_place(project, prefix):
    """datasets#2496, marin#5216: the cache folder moved; another bucket or region."""
    expected = keys(project)
    plan = make_plan(project.recipe().experiment(), Store(prefix), recipe="toy_recipe.py", scale="laptop")
    assert [step.key for step in plan.steps] == expected


def test_the_graph_alone_has_the_keys_of_the_plan(project):
    project.write("toy_recipe.py", RECIPE)
    graph = Graph.of(project.recipe().experiment().targets)
    assert list(graph.keys.values()) == keys(project)
