"""The report: figures in, figures and words out; parts that are missing leave their section out."""

import json
from pathlib import Path

import pytest

from steps.report import ReportConfig, compare, write_report

BASELINES = {
    "byte_unigram_bits_per_byte": {"prose": 4.71, "code": 4.59},
    "unigram_bits_per_byte": {"prose": 3.09, "code": 2.88},
    "gzip_bits_per_byte": {"prose": 2.88, "code": 1.84},
}


def history(losses: list[float], *, hidden: int = 96) -> dict:
    count = len(losses)
    return {
        "run": {"hidden": hidden, "parameters_active": 350_000, "parameters_total": 9, "flops_without_lm_head": 2e12},
        "losses": [7.0, 6.0, 5.0, 4.0],
        "router_entropy": [2.77, 2.6, 2.7, 2.75],
        "largest_device": [1.5, 1.1, 1.2, 1.3],
        "sender_dropped": [1, 0, 0, 0],
        "receiver_dropped": [2, 1, 0, 0],
        "assignments": [100, 100, 100, 100],
        "evals": [
            {"step": n, "progress": n / count, "tokens": 1000 * n, "macro_loss": loss, "losses": {"prose": loss},
             "bits_per_byte": {"prose": loss / 2}}
            for n, loss in enumerate(losses, 1)
        ],
        "stages": [],
    }  # fmt: skip


def forecast() -> dict:
    points = [{"hidden": 48, "flops": 1e11, "loss": 5.0}, {"hidden": 64, "flops": 2e11, "loss": 4.8}]
    return {
        "marks": [
            {"progress": n / 4, "loss": 5.0 - n / 4, "low": 4.9 - n / 4, "high": 5.1 - n / 4, "points": points}
            for n in range(1, 5)
        ],
        "final": {"loss": 4.0, "low": 3.9, "high": 4.1},
        "method": "per-checkpoint",
        "asymptote": 1.5,
        "law": {"asymptote": 1.5, "log_amplitude": 3.0, "exponent": 0.07},
        "target_flops": 10**12,
        "rungs": [{"hidden": 48, "losses": [5.4, 5.3, 5.2, 5.1]}],
        "extrapolation_factor": 5.0,
        "methods": {
            "per-checkpoint": {
                "loss": 4.0,
                "low": 3.9,
                "high": 4.1,
                "backtest": {"hidden": 64, "predicted": 4.9, "actual": 4.8, "relative_error": 0.0208, "factor": 2.0},
            },
            "free-asymptote": {"loss": 4.05, "low": 4.05, "high": 4.05, "backtest": None},
        },
    }


def evaluation(stage: str, prose: float) -> dict:
    return {
        "stage": stage,
        "loss": {"prose": 4.0, "code": 3.0},
        "bits_per_byte": {"prose": prose, "code": 1.8},
        "multiple_choice": {"accuracy": 0.41, "chance": 0.25, "questions": 200},
        "baselines": BASELINES,
    }


def put(path: Path, value: dict) -> str:
    path.write_text(json.dumps(value))
    return str(path)


@pytest.fixture
def full(tmp_path: Path) -> ReportConfig:
    return ReportConfig(
        forecast=put(tmp_path / "forecast.json", forecast()),
        rungs={"d48": put(tmp_path / "d48.json", history([6.0, 5.0], hidden=48))},
        pretrain=put(tmp_path / "pretrain.json", history([9.0, 8.0])),
        midtrain=put(tmp_path / "midtrain.json", history([4.9, 4.6, 4.2, 4.2])),
        fine_tune=put(tmp_path / "sft.json", history([3.0])),
        evaluations={
            "pretrain": put(tmp_path / "e1.json", evaluation("pretrain", 2.3)),
            "midtrain": put(tmp_path / "e2.json", evaluation("midtrain", 2.2)),
        },
    )


def test_everything(full: ReportConfig, tmp_path: Path) -> None:
    result = write_report(full, str(tmp_path))
    report = json.loads((tmp_path / "report.json").read_text())
    assert result == {"final_loss": 4.2, "predicted": 4.0, "relative_error": pytest.approx(4.0 / 4.2 - 1)}
    assert report["hero"]["drops"] == {"sender": 1, "receiver": 3, "assignments": 400, "fraction": 0.01}
    assert report["hero"]["router_entropy"] == {"first": 2.77, "lowest": 2.6, "last": 2.75}
    assert report["fine_tune"] == {"steps": 4, "first": 7.0, "last": 4.0}
    assert report["steps"] == {}
    text = (tmp_path / "report.md").read_text()
    assert "**4.2000**" in text
    assert "**-4.76%** off" in text
    assert "5.0x" in text
    for row in ("| pretrain      | 2.300 | 1.800 |  41.0% |", "| gzip -9       | 2.880 | 1.840 |      - |", "25.0%"):
        assert row in text
    assert "dropped assignments: 1.000% of 400" in text
    assert "largest device, rows over the mean: 1.25 median, 1.50 largest, 1.30 last" in text
    assert "largest pair" not in text, "a run that did not measure it"
    assert max(map(len, text.splitlines())) <= 80
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")


def test_a_bad_forecast_and_a_bad_hero_are_said(full: ReportConfig, tmp_path: Path) -> None:
    put(tmp_path / "midtrain.json", history([9.0, 8.0, 8.0, 8.0]))
    result = write_report(full, str(tmp_path))
    assert result["relative_error"] == pytest.approx(-0.5)
    text = (tmp_path / "report.md").read_text()
    assert "**-50.00%** off" in text


@pytest.mark.parametrize("missing", ["forecast", "rungs", "midtrain", "fine_tune", "evaluations"])
def test_a_part_that_is_missing_leaves_its_section_out(full: ReportConfig, tmp_path: Path, missing: str) -> None:
    import dataclasses

    empty = {} if missing in ("rungs", "evaluations") else None
    write_report(dataclasses.replace(full, **{missing: empty}), str(tmp_path))
    text = (tmp_path / "report.md").read_text()
    heading = {
        "forecast": "## Forecast",
        "rungs": "## Ladder",
        "evaluations": "## Evaluation",
        "fine_tune": "fine-tuning",
    }
    if missing in heading:
        assert heading[missing] not in text
    else:
        assert "**8.0000**" in text  # pretrain's history stands in


def test_nothing_at_all_is_still_a_report(tmp_path: Path) -> None:
    assert write_report(ReportConfig(), str(tmp_path))["final_loss"] is None
    assert (tmp_path / "report.md").read_text().startswith("# Report")


def test_marks_without_a_measurement_stay_open() -> None:
    partial = history([4.9, 4.6, 4.2, 4.2])
    partial["evals"] = partial["evals"][:2]
    marks = compare(forecast(), partial)["marks"]
    assert [mark["actual"] for mark in marks] == [4.9, 4.6, None, None]
    assert marks[0]["relative_error"] == pytest.approx(4.75 / 4.9 - 1)
    assert marks[3]["relative_error"] is None


def test_baselines_only_where_they_were_measured(full: ReportConfig, tmp_path: Path) -> None:
    bare = {key: value for key, value in evaluation("a", 2.0).items() if key in ("stage", "loss", "bits_per_byte")}
    write_report(ReportConfig(evaluations={"a": put(tmp_path / "bare.json", bare)}), str(tmp_path))
    text = (tmp_path / "report.md").read_text()
    assert "| a | 2.000 | 1.800 |" in text
    assert "gzip" not in text and "choice" not in text


def test_wall_time_and_address_come_from_the_records(tmp_path: Path) -> None:
    from executor.storage.record import Record

    artifact = tmp_path / "hero" / "midtrain-abcdefghijklmnop"
    (artifact / "1").mkdir(parents=True)
    (artifact / ".step" / "attempts" / "1").mkdir(parents=True)
    record = Record(
        name="hero/midtrain", address="hero/midtrain-abcdefghijklmnop", attempt="1", status="succeeded",
        recipe_key="k", content_key="c", payload={}, started="2026-12-01T00:00:00Z", wall_seconds=126.0,
    ).to_json()  # fmt: skip
    (artifact / ".step" / "record.json").write_text(record)
    (artifact / ".step" / "attempts" / "1" / "record.json").write_text(record)
    location = put(artifact / "1" / "history.json", history([4.0]))
    write_report(ReportConfig(midtrain=location), str(tmp_path))
    steps = json.loads((tmp_path / "report.json").read_text())["steps"]
    assert steps["hero/midtrain"]["wall_seconds"] == 126.0
    assert "midtrain-abcdefghijklmnop" in steps["hero/midtrain"]["address"]
    text = (tmp_path / "report.md").read_text()
    assert "2.1 min" in text
    assert max(map(len, text.splitlines())) <= 80
