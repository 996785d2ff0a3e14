"""`fingerprint` is pinned, equal in every process and for every way of starting, and fast."""

import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from executor import IdentityError, Input, Secret, Step, added, execution, fingerprint
from executor.keys.code import Valued
from executor.keys.graph import Graph

GOLDEN = Path(__file__).parent / "golden"
ROOT = Path(__file__).parents[2]
AS_IMPORT = "import json, fingerprint_values as values; print(json.dumps(values.DIGESTS))"


@pytest.mark.parametrize(("seed", "start"), [("1", ["fingerprint_values.py"]), ("2", ["-c", AS_IMPORT])])
def test_golden_digests_in_every_process(seed, start):
    """cachier#18, prefect#12229: PYTHONHASHSEED 1 and 2; run as a script and imported."""
    found = subprocess.run(
        [sys.executable, *start],
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        cwd=GOLDEN,
    )
    assert json.loads(found.stdout) == json.loads((GOLDEN / "fingerprints.json").read_text())


def test_golden_digests_all_differ():
    digests = json.loads((GOLDEN / "fingerprints.json").read_text())
    assert len(set(digests.values())) == len(digests) >= 40


@dataclasses.dataclass(frozen=True)
class Layer:
    rate: float
    name: str
    width: int
    betas: tuple[float, ...] = (0.9, 0.95)
    is_gated: bool = True


@dataclasses.dataclass(frozen=True)
class Block:
    layer: Layer
    weights: dict[str, float]
    sizes: list[int]


def test_ten_thousand_leaves_in_a_tenth_of_a_second():
    """Beside json.dumps of the same tree, both in CPU time, which a busy machine does not stretch."""
    config = tuple(
        Block(Layer(n / 7, f"x{n}", n), {f"k{k}": n / (k + 1) for k in range(10)}, list(range(9))) for n in range(400)
    )
    tree = [dataclasses.asdict(block) for block in config]

    def seconds(work) -> float:
        measured = []
        for _ in range(5):
            started = time.process_time()
            work()
            measured.append(time.process_time() - started)
        return min(measured)

    ours, dumps = seconds(lambda: fingerprint(config)), seconds(lambda: json.dumps(tree))
    print(f"fingerprint {ours * 1e3:.1f} ms, json.dumps {dumps * 1e3:.1f} ms, ratio {ours / dumps:.1f}")
    assert ours < 0.1


@dataclasses.dataclass(frozen=True)
class Schedule:
    rate: float = 0.1
    advice: Input | None = execution(None)
    token: Secret | None = execution(None)

    def at(self, step: int) -> float:
        return self.rate


@dataclasses.dataclass(frozen=True)
class Plain:
    width: int = 1


@dataclasses.dataclass(frozen=True)
class Grown:
    width: int = 1
    schedule: Schedule | None = added(default=Schedule(), born=Schedule())
    metric: object = added(default=abs, born=abs)


@dataclasses.dataclass(frozen=True)
class Seeded:
    start: Input | None = added(default=None, born=Step("never", print, Plain()))


def work(config, output):
    return None


def test_a_field_at_its_born_value_brings_no_code_along():
    def code(config) -> tuple:
        graph = Graph.of([Step("a", work, config)])
        return tuple(thing for thing in graph.things["a"] if thing != Valued(type(config)))

    assert code(Grown()) == code(Plain()) == (work,)
    assert code(Grown(schedule=Schedule(0.2))) == (work, Valued(Schedule))
    assert code(Grown(metric=work)) == (work, work)
    assert code(Grown(schedule=None)) == (work,)


def test_a_class_that_also_stands_elsewhere_is_code_all_the_same():
    @dataclasses.dataclass(frozen=True)
    class Both:
        first: Schedule
        second: Schedule = added(default=Schedule(), born=Schedule())

    Both.__qualname__ = "Both"
    globals()["Both"] = Both
    try:
        assert Valued(Schedule) in Graph.of([Step("a", work, Both(Schedule(0.2)))]).things["a"]
    finally:
        del globals()["Both"]


def test_what_is_no_identity_stays_with_a_field_at_its_born_value():
    """An input of an execution-only field in it is pulled; a secret in it is hidden in logs."""
    advice = Step("advice", work, Plain())
    config = Grown(schedule=Schedule(advice=advice, token=Secret("HF_TOKEN")))
    graph = Graph.of([Step("a", work, config)])
    assert graph.payloads["a"]["config"] == {"$type": f"{__name__}.Grown", "width": 1}
    assert [(one.path, one.execution_only) for one in graph.inputs["a"]] == [("schedule.advice", True)]
    assert graph.secrets["a"] == ("HF_TOKEN",)


def test_a_born_value_that_holds_an_input_is_an_error():
    with pytest.raises(IdentityError, match=r"start: added\(born=\.\.\.\) holds an input.*write born=None"):
        fingerprint(Seeded())
