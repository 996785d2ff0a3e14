"""The forecast step: what it writes from the rungs' histories."""

import dataclasses
import json
from pathlib import Path

import pytest

from steps.forecast import ForecastConfig, fit_forecast
from steps.published import (
    ASYMPTOTE,
    COMPLETE_RUNGS,
    HERO_FLOPS,
    LAW_EXPONENT,
    LAW_LOG_AMPLITUDE,
    OFFICIAL_PREDICTION,
    PARTIAL_RUNG,
    loss_by_published_ladder,
)
from steps.scaling import fit
from steps.scaling_method import METHODS, Method

PNG = b"\x89PNG\r\n\x1a\n"


def history(path: Path, *, hidden: int, flops: float, law, until: int = 20) -> str:
    """A rung's history whose loss at progress g is law(C g), measured at each 5% up to mark `until`."""
    evals = [
        {
            "step": n,
            "progress": n / 20,
            "tokens": n,
            "macro_loss": law(flops * n / 20),
            "losses": {},
            "bits_per_byte": {},
        }
        for n in range(1, until + 1)
    ]
    path.write_text(json.dumps({"run": {"hidden": hidden, "flops_without_lm_head": flops}, "evals": evals}))
    return str(path)


def law(flops: float) -> float:
    return 1.5 + 30 * flops**-0.1


def forecast_from(tmp_path: Path, rungs: list[str], target: int, method: Method = "per-checkpoint") -> dict:
    config = ForecastConfig(rungs=tuple(rungs), target_flops=target, method=method)
    result = fit_forecast(config, str(tmp_path))
    written = json.loads((tmp_path / "forecast.json").read_text())
    kept = ("final", "method", "asymptote", "extrapolation_factor", "backtest", "methods")
    assert {key: result[key] for key in kept} == {key: written[key] for key in kept}
    assert result["headline"] == written["final"]
    assert (tmp_path / "forecast.png").read_bytes().startswith(PNG)
    return written


def test_every_mark_is_predicted_on_an_exact_law(tmp_path: Path) -> None:
    rungs = [
        history(tmp_path / f"{h}.json", hidden=h, flops=flops, law=law)
        for h, flops in ((80, 4e11), (48, 1e11), (64, 2e11))  # in any order
    ]
    written = forecast_from(tmp_path, rungs, target=10**12)
    assert [mark["progress"] for mark in written["marks"]] == [n / 20 for n in range(1, 21)]
    for mark in written["marks"]:
        expected = law(1e12 * mark["progress"])
        assert [mark["loss"], mark["low"], mark["high"]] == pytest.approx([expected] * 3, rel=1e-9)
        assert [point["hidden"] for point in mark["points"]] == [48, 64, 80]
    assert written["final"]["loss"] == written["marks"][-1]["loss"]
    assert written["extrapolation_factor"] == pytest.approx(2.5)
    backtest = written["backtest"]
    assert (backtest["hidden"], backtest["factor"]) == (80, 2.0)
    assert backtest["predicted"] == pytest.approx(law(4e11))
    assert backtest["relative_error"] == pytest.approx(0, abs=1e-9)


def test_published_ladder_through_the_step(tmp_path: Path) -> None:
    """Only the ends are public, so each rung's curve is flat; the last mark is what counts."""
    rungs = [
        history(tmp_path / f"{rung.name}.json", hidden=0, flops=rung.flops, law=lambda _, rung=rung: rung.loss)
        for rung in (*COMPLETE_RUNGS, PARTIAL_RUNG)
    ]
    assert forecast_from(tmp_path, rungs[:3], int(HERO_FLOPS))["final"]["loss"] == pytest.approx(2.0415, abs=5e-5)
    assert forecast_from(tmp_path, rungs, int(HERO_FLOPS))["final"]["loss"] == pytest.approx(2.040, abs=5e-4)


def test_the_result_predicts_another_target_as_a_fit_for_it_would(tmp_path: Path) -> None:
    rungs = tuple(
        history(tmp_path / f"{h}.json", hidden=h, flops=flops, law=lambda flops: law(flops) + 0.01 * (flops % 7))
        for h, flops in ((48, 1e11), (64, 2e11), (80, 4e11))
    )
    ran = fit_forecast(ForecastConfig(rungs=rungs, target_flops=10**12), str(tmp_path))
    other = ForecastConfig(rungs=rungs, target_flops=3 * 10**12)
    told = other.predicted(json.loads(json.dumps(ran)))  # as a record gives it
    assert told == {"loss": pytest.approx(fit_forecast(other, str(tmp_path))["final"]["loss"], rel=1e-12)}
    assert told["loss"] < ran["final"]["loss"]
    assert dataclasses.replace(other, asymptote=1.4).predicted(ran) == {}
    assert dataclasses.replace(other, extrapolate_offset=0.0).predicted(ran) == {}
    assert other.predicted({"final": ran["final"]}) == {}  # of before results kept their law


def test_the_published_law_is_the_fit_of_the_complete_rungs() -> None:
    rungs = COMPLETE_RUNGS
    fitted = fit([rung.flops for rung in rungs], [rung.loss for rung in rungs], asymptote=ASYMPTOTE)
    assert pytest.approx((fitted.log_amplitude, fitted.exponent), rel=1e-12) == (LAW_LOG_AMPLITUDE, LAW_EXPONENT)
    assert loss_by_published_ladder(HERO_FLOPS) == pytest.approx(OFFICIAL_PREDICTION, abs=0.003)
    estimated = {"published_ladder_loss": 2.0}
    config = ForecastConfig(rungs=("a", "b"), target_flops=1, estimated=estimated)
    assert config.numbers(None) == estimated


def test_a_partial_rung_is_extended_and_said_to_be(tmp_path: Path) -> None:
    rungs = [
        history(tmp_path / "a.json", hidden=48, flops=1e11, law=law),
        history(tmp_path / "b.json", hidden=64, flops=2e11, law=law, until=16),
    ]
    written = forecast_from(tmp_path, rungs, target=4 * 10**11)
    assert [(rung["reached"], rung["extended"]) for rung in written["rungs"]] == [(1.0, False), (0.8, True)]
    assert written["rungs"][1]["losses"][-1] == pytest.approx(law(2e11), rel=0.01)
    assert written["backtest"] is None


def test_one_rung_is_not_a_ladder() -> None:
    with pytest.raises(ValueError, match="2 or more rungs by per-checkpoint, found 1"):
        ForecastConfig(rungs=("a",), target_flops=1)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_finds_an_exact_law_and_says_what_the_others_found(method: Method, tmp_path: Path) -> None:
    sizes = ((48, 1e11), (64, 2e11), (80, 4e11), (96, 9e11))
    rungs = [history(tmp_path / f"{h}.json", hidden=h, flops=flops, law=law) for h, flops in sizes]
    written = forecast_from(tmp_path, rungs, 10**13, method)
    assert written["method"] == method and set(written["methods"]) == set(METHODS)
    for found in written["methods"].values():
        assert found["loss"] == pytest.approx(law(1e13), abs=1e-4)
        assert found["backtest"]["predicted"] == pytest.approx(law(9e11), abs=1e-4)
    assert written["asymptote"] == pytest.approx(1.5, abs=2e-3)
    assert [mark["loss"] for mark in written["marks"]][9] == pytest.approx(law(5e12), abs=1e-4)


def test_a_method_that_the_rungs_are_too_few_for_is_left_out_or_refused(tmp_path: Path) -> None:
    rungs = [history(tmp_path / f"{h}.json", hidden=h, flops=f, law=law) for h, f in ((48, 1e11), (64, 2e11))]
    written = forecast_from(tmp_path, rungs, 10**12)
    assert set(written["methods"]) == {"per-checkpoint", "shared-exponent"}
    with pytest.raises(ValueError, match="3 or more rungs by free-asymptote, found 2"):
        ForecastConfig(rungs=tuple(rungs), target_flops=10**12, method="free-asymptote")
    with pytest.raises(ValueError, match="expected one of per-checkpoint"):
        ForecastConfig(rungs=tuple(rungs), target_flops=10**12, method="by eye")  # pyright: ignore[reportArgumentType]
