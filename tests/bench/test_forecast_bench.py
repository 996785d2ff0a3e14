"""The benchmark of the forecast: the published ladder's figures, and its shape with no laptop run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_published_ladder_predicts_what_was_published():
    words = [sys.executable, str(ROOT / "bench" / "forecast.py"), "--seeds", "", "--json"]
    found = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert found["laptop"] == []
    ladder = found["published"]
    assert ladder["prediction"] == pytest.approx(2.0415, abs=5e-5)
    assert ladder["with_fourth"] == pytest.approx(2.040, abs=5e-4)
    assert ladder["low"] < ladder["prediction"] < ladder["high"]
