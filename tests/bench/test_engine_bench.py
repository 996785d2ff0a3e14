"""The benchmark of the engine works: small graphs, the figures it promises. How fast is for people to read."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
TABLE = """
from measuring import Measurement
from table import as_table
found = [("marinade", 0.3, 0.4), ("redun", 3.0, 4.0)]
print(as_table([
    Measurement(case="chain-cached", tool=tool, steps=200, cpu_seconds=cpu, wall_seconds=wall)
    for tool, cpu, wall in found
]))
"""
FIELDS = {"case", "tool", "steps", "cpu_seconds", "wall_seconds"}


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "bench" / "engine.py"), *arguments], capture_output=True, text=True, check=False
    )


def test_one_json_object_a_measurement():
    cases = ["import", "chain-first", "chain-cached", "fan-first", "fan-cached"]
    done = bench("--steps", "5,9", "--no-peers", "--repeat", "1", "--json", "--cases", ",".join(cases))
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(set(one) == FIELDS for one in found)
    assert {one["tool"] for one in found} == {"marinade"}
    measured = [(one["case"], one["steps"]) for one in found]
    assert sorted(measured) == sorted([("import", 0), *((case, steps) for case in cases[1:] for steps in (5, 9))])
    assert all(one["cpu_seconds"] > 0 and one["wall_seconds"] > 0 for one in found)


def test_a_table_with_a_line_for_each_target():
    done = subprocess.run([sys.executable, "-c", TABLE], cwd=ROOT / "bench", capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert [cell.strip() for cell in lines[3].split("|")][1:8] == (
        ["chain-cached", "200", "redun", "3.000", "4.000", "15.00", "10.00"]
    )
    assert lines[5:] == [
        "- met: chain-cached, 200 steps: under 0.5 s: 0.300 s, at most 0.500",
        "- met: chain-cached, 200 steps: half of redun: 0.300 s, at most 1.500",
    ]


def test_slow_store_counts_calls_and_rounds():
    done = subprocess.run(
        [sys.executable, str(ROOT / "bench" / "slow_store.py"), "--steps", "12", "--delay", "0.01"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["calls"] == sum(found["by_operation"].values()) > 12
    assert 0 < found["rounds"] < 12  # steps are looked up together, not one after the other
    assert found["wall_seconds"] >= 0.01 * found["rounds"]


@pytest.mark.parametrize("arguments", [("--cases", "chain-frist"), ("--steps", "many")])
def test_what_it_does_not_know_is_a_usage_error(arguments):
    assert bench(*arguments).returncode == 2
