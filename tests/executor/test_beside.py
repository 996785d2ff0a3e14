"""`marinade diff` as typed: costs against another recipe and the last run, results, metrics and pictures."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from executor.cli import main
from executor.storage.store import Store

RECIPE = """
@dataclasses.dataclass(frozen=True, kw_only=True)
class Train:
    width: int
    rate: float = 1.0
    steps: int = 20
    every: int = execution(1)
    start: Input | None = None
    begins: int = 0
    killed: str = execution("")

    def numbers(self, until):
        steps = min(until or self.steps, self.steps) - self.begins
        return {"parameters_total": self.width * 1000, "tokens": steps * 10, "days": steps / 4}

@dataclasses.dataclass(frozen=True, kw_only=True)
class Law:
    runs: tuple[Input, ...]
    target: int

    def predicted(self, result):
        return {"loss": result["headline"]["loss"] * result["target"] / self.target}

@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    run: Input
    law: Input

CHARTS = {
    "axis": {"column": "seen", "name": "tokens"},
    "final": [{"column": "loss"}],
    "drawn": [{"column": "loss", "name": "training loss"}],
}

def train(config, output):
    import json
    log = current().log_dir
    put(f"{log}/metrics.json", json.dumps({**CHARTS, "begins": config.begins * 10}))
    rows = []
    for step in range(config.begins + 1, config.steps + 1):
        loss = config.rate * config.width / step
        if step % config.every == 0 or step == config.steps:
            rows.append(json.dumps({"step": step, "seen": step * 10, "loss": loss}))
        if step == 10:
            put(f"{output}/half", "x")
            current().publish(10, "half")
    put(f"{log}/metrics.jsonl", "".join(row + "\\n" for row in rows))
    put(f"{output}/end", str(loss))
    return {"headline": {"final loss": loss}}

def law(config, output):
    put(f"{output}/law", str(config.target))
    return {"headline": {"loss": 2.0}, "target": config.target}

def report(config, output):
    put(f"{output}/report.md", "done")

@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    rung: int = 1
    target: int = 100
    big: Train = Train(width=8)
    swap: bool = False

    @classmethod
    def at_scale(cls, scale):
        return cls()

def build(settings: Settings) -> Experiment:
    rung = Step("rung", train, Train(width=settings.rung, steps=4))
    predicted = Step("law", law, Law(runs=(rung / "end",), target=settings.target))
    big = Step("big", train, settings.big)
    last = big
    if settings.swap:
        config = dataclasses.replace(settings.big, rate=0.5, start=big.at_step(10), begins=10)
        last = Step("big-swap", train, config, amends=big)
    end = Step("report", report, Report(run=last / "end", law=predicted / "law"))
    return Experiment(targets=(end,))
"""

Type = Callable[..., tuple[int, str]]


@pytest.fixture
def typed(project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Type:
    project.write("toy_recipe.py", RECIPE)
    monkeypatch.setenv("MARINADE_PREFIX", project.prefix)

    def type_in(*words: str) -> tuple[int, str]:
        project.forget()
        capsys.readouterr()
        code = main(words)
        said = capsys.readouterr()
        return code, said.out or said.err

    return type_in


TOY = "toy_recipe.py"


def data(found: tuple[int, str]) -> dict[str, Any]:
    return json.loads(found[1])


def changes(found: dict[str, Any]) -> dict[str, dict[str, tuple[Any, Any]]]:
    return {s["step"]: {n["name"]: (n["old"], n["new"]) for n in s["numbers"]} for s in found["costs"]["steps"]}


def test_the_last_run_kept_its_numbers(typed: Type, project) -> None:
    assert project.run().exit_code == 0
    code, text = typed("diff", TOY, "--set", "big.width=10")
    assert code == 1
    table = [line.split() for line in text[text.index("costs") :].splitlines()]
    assert table[1:5] == [["params"], ["big", "a", "8000"], ["b", "10K"], ["+25.0%"]]
    assert "b still has to run 2 of 4 steps (1 maybe, 1 run): 200 tokens, 5.00 days" in text
    found = data(typed("diff", TOY, "--set", "big.width=10", "--json"))
    assert changes(found) == {"big": {"parameters_total": (8000, 10000)}}
    assert found["costs"]["results"] == [
        {"step": "big", "name": "final loss", "old": 0.4, "new": None, "predicted": False}
    ]
    assert "results" in text and "not run" in text


def test_numbers_that_fail_do_not_stop_a_run_and_are_said_by_diff(typed: Type, project) -> None:
    broken = RECIPE.replace("steps = min(until or self.steps, self.steps) - self.begins", "steps = self.no_such_field")
    project.write(TOY, broken)
    assert project.run().exit_code == 0
    code, text = typed("diff", TOY)
    assert code == 1 and "Train.numbers failed" in text and "no_such_field" in text
    project.write(TOY, RECIPE)
    assert "the numbers of a were not kept" in typed("diff", TOY, "--set", "big.width=9")[1]


def test_nothing_changed_costs_nothing(typed: Type, project) -> None:
    project.run()
    code, text = typed("diff", TOY)
    assert code == 0 and text.rstrip().endswith("no difference: 4 steps of equal key")


def test_a_law_tells_what_another_target_would_give_until_that_has_run(typed: Type, project) -> None:
    project.run()
    found = data(typed("diff", TOY, "--set", "target=50", "--json"))
    law = {"step": "law", "name": "loss", "old": 2.0, "new": 4.0, "predicted": True}
    assert found["costs"]["results"] == [law]
    assert "4*" in typed("diff", TOY, "--set", "target=50")[1]
    other = data(typed("diff", TOY, "--set", "target=50", "--set", "rung=2", "--json"))
    assert {"step": "law", "name": "loss", "old": 2.0, "new": None, "predicted": False} in other["costs"]["results"]


def test_an_amendment_splits_the_cost_of_its_base(typed: Type, project) -> None:
    project.write(
        "swap_recipe.py",
        "from toy_recipe import *\nfrom toy_recipe import build as base\n"
        "def build(settings: Settings) -> Experiment:\n    return base(dataclasses.replace(settings, swap=True))\n",
    )
    found = data(typed("diff", TOY, "swap_recipe.py", "--json"))
    assert changes(found) == {
        "big": {"tokens": (200, 100), "days": (5.0, 2.5)},
        "big-swap": {"parameters_total": (None, 8000), "tokens": (None, 100), "days": (None, 2.5)},
    }
    assert found["costs"]["totals"] == [
        {"name": "tokens", "old": 240, "new": 240},
        {"name": "days", "old": 6.0, "new": 6.0},
    ]
    assert found["costs"]["to_run"]["actions"] == {"run": 5}
    project.run()
    project.run(name="swap_recipe.py")
    found = data(typed("diff", TOY, "swap_recipe.py", "--json"))
    assert found["costs"]["to_run"]["steps"] == 0


def two_runs(project) -> tuple[str, str]:
    first = project.run().steps["big"]
    second = project.run("big.rate=2.0", "big.every=3").steps["big"]
    return first.location, second.location


def test_two_artifacts_show_numbers_results_and_metrics(typed: Type, project, tmp_path: Path) -> None:
    a, b = two_runs(project)
    picture = tmp_path / "run.svg"
    code, text = typed("diff", a, b, "--picture", str(picture))
    assert code == 1 and picture.read_text().startswith("<?xml")
    assert "metrics, aligned on tokens" in text and "training loss" in text and "nothing is interpolated" in text
    found = data(typed("diff", a, b, "--json"))
    (metrics,) = found["metrics"]
    assert metrics["final"] == [{"column": "loss", "take": "last", "a": 0.4, "b": 0.8}]
    assert [mark["at"] for mark in metrics["marks"]] == [50, 100, 150, 200]
    assert metrics["marks"][0]["values"] == [{"column": "loss", "a": 1.6, "b": 16 / 3, "a_at": 50, "b_at": 30}]
    assert found["costs"]["results"][0]["new"] == 0.8
    assert found["costs"]["unknown"] == [] and found["costs"]["steps"] == []
    markdown = typed("diff", a, b, "--markdown", "--picture", str(picture))[1]
    assert f"![metrics, aligned on tokens]({picture})" in markdown and "| at tokens |" in markdown


def test_costs_of_two_artifacts_come_from_the_files_of_their_runs(typed: Type, project) -> None:
    a = project.run().steps["big"].location
    b = project.run("big.width=4").steps["big"].location
    assert changes(data(typed("diff", a, b, "--json"))) == {"big": {"parameters_total": (8000, 4000)}}
    files = sorted(Path(project.prefix, ".runs").iterdir())
    kept = json.loads(files[-1].read_text())
    kept["steps"]["big"]["key"] = "of another step that had the name"
    files[-1].write_text(json.dumps(kept))
    assert changes(data(typed("diff", a, b, "--json"))) == {}
    for file in files:
        file.unlink()
    found = data(typed("diff", a, b, "--json"))
    assert changes(found) == {} and found["costs"]["unknown"] == ["a", "b"]
    assert len(found["metrics"]) == 1
    assert typed("diff", a, b)[1].count("were not kept") == 1


def test_records_and_runs_are_compared_too(typed: Type, project) -> None:
    a, b = two_runs(project)
    records = [str(Path(place).parent / ".step" / "record.json") for place in (a, b)]
    assert len(data(typed("diff", *records, "--json"))["metrics"]) == 1
    runs = sorted(str(path) for path in Path(project.prefix, ".runs").glob("*.json"))
    found = data(typed("diff", *runs, "--json", "--metrics", "big"))
    assert [(m["step"], m["a"]["ends"], m["b"]["rows"]) for m in found["metrics"]] == [("big", 200, 7)]


def test_recipes_that_have_run_show_metrics_where_asked(typed: Type, project, tmp_path: Path) -> None:
    two_runs(project)
    project.write(
        "other_recipe.py",
        "from toy_recipe import *\nfrom toy_recipe import build as base\n"
        "def build(settings: Settings) -> Experiment:\n"
        "    return base(dataclasses.replace(settings, big=dataclasses.replace(settings.big, rate=2.0)))\n",
    )
    found = data(typed("diff", TOY, "other_recipe.py", "--json"))
    assert found["metrics"] == [] and found["measured"] == ["big"]
    assert "both sides have metrics of big: --metrics STEP" in typed("diff", TOY, "other_recipe.py")[1]
    picture = str(tmp_path / "x.png")
    code, text = typed("diff", TOY, "other_recipe.py", "--metrics", "b*", "--picture", picture)
    assert code == 1 and "metrics of big, aligned on tokens" in text and Path(picture).stat().st_size > 10_000


def test_an_interrupted_run_is_one_curve(typed: Type, project) -> None:
    """The attempt that only went to the milestone, and the one that went on, by what they wrote."""
    a, b = two_runs(project)
    folder = Path(a).parent / ".step" / "attempts"
    (name,) = [path.name for path in folder.iterdir()]
    record = json.loads((folder / name / "record.json").read_text())
    (folder / "0").mkdir()
    (folder / "0" / "record.json").write_text(json.dumps({**record, "attempt": "0", "status": "interrupted"}))
    for path in (folder / name / "record.json", Path(a).parent / ".step" / "record.json"):
        path.write_text(json.dumps({**record, "number": 2}))
    rows = (folder / name / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "0" / "metrics.jsonl").write_text("".join(rows[:12]))
    (folder / "0" / "metrics.json").write_text((folder / name / "metrics.json").read_text())
    (folder / name / "metrics.jsonl").write_text("".join(rows[10:]))
    said = json.loads((folder / name / "metrics.json").read_text())
    (folder / name / "metrics.json").write_text(json.dumps({**said, "begins": 100}))
    (metrics,) = data(typed("diff", a, b, "--json"))["metrics"]
    assert (metrics["a"]["rows"], metrics["a"]["attempts"], metrics["a"]["replaced_rows"]) == (20, 2, 2)
    assert metrics["a"]["begins"] == 0 and metrics["a"]["gaps"] == []


def test_artifacts_measured_along_different_axes_are_still_compared(typed: Type, project) -> None:
    a, b = two_runs(project)
    (file,) = Path(a).parent.glob(".step/attempts/*/metrics.json")
    file.write_text(file.read_text().replace('"seen"', '"step"'))
    code, text = typed("diff", a, b)
    assert code == 1 and "1 cause" in text and "note: metrics are not compared:" in text
    code, text = typed("diff", a, b, "--picture", "x.svg")
    assert code == 1 and "have no axis in common" in text


def test_what_cannot_be_shown_is_said(typed: Type, project) -> None:
    a, b = two_runs(project)
    assert typed("diff", a, b, "--picture", "x.gif")[0] == 2
    code, text = typed("diff", TOY, TOY, "--picture", "x.svg")
    assert code == 2 and "--metrics STEP" in text
    code, text = typed("diff", TOY, TOY, "--metrics", "nothing")
    assert code == 2 and "no step of that name is on both sides" in text
    code, text = typed("diff", TOY, TOY, "--metrics", "report")
    assert code == 2 and "wrote no metrics" in text


def test_a_store_that_cannot_be_read_does_not_end_a_diff(typed: Type, project, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: Any) -> None:
        raise OSError("the network is down")

    project.run()
    monkeypatch.setattr(Store, "records", unreachable)
    code, text = typed("diff", TOY, "--set", "big.width=9")
    assert code == 1 and "+12.5%" in text
    assert "note: what has run and what is left to run is not known: the network is down" in text


def test_the_code_of_a_run_is_shown_whether_it_finished_or_not(typed: Type, project) -> None:
    def report(line: str) -> None:
        project.write("toy_recipe.py", RECIPE.replace('    put(f"{output}/report.md", "done")', line))

    finished, failed = '    put(f"{output}/report.md", "done")', '    put(f"{output}/report.md", config.nothing)'
    for line, exit_code in ((finished, 0), (failed, 1)):
        report(line)
        assert typed("run", "toy_recipe.py", "--inline")[0] == exit_code
        run = max(Path(project.prefix, ".runs").glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
        report('    put(f"{output}/report.md", "other")')
        for asked in (("toy_recipe.py",), (str(run), "toy_recipe.py")):
            code, text = typed("diff", *asked)
            assert code == 1 and f"-{line}" in text and '+    put(f"{output}/report.md", "other")' in text, text
            assert "the text of" not in text and "@@ -0,0" not in text, text
