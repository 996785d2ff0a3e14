"""The command line as scripts and people meet it: exit codes, JSON, messages, what is imported."""

import dataclasses
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from executor.cli import main
from executor.driver.events import Planned, StepFailed, StepFinished, StepProgress, StepStarted
from executor.planning.plan import Plan
from executor.render.progress import PlainProgress
from executor.render.terminal import Terminal

RECIPE = """
import dataclasses
import sys

from executor import Experiment, Input, Step, current, execution, main, resolved


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    words: tuple[str, ...]
    workers: int = execution(2)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig:
    text: Input
    learning_rate: float | None = None
    weights: dict[str, float] = dataclasses.field(default_factory=dict)
    start: Input | None = None
    fail: bool = False

    def numbers(self, until):
        return {"tokens": 1_000_000, "flops_total": 2.5e18, "days": 0.25, "device_hours": 6, "parameters_total": 123}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportConfig:
    runs: dict[str, Input]


def collect(config, output):
    with open(output + "/words.txt", "w") as file:
        file.write(" ".join(config.words))


def train(config, output):
    print("training starts")
    if config.fail:
        raise ValueError("the learning rate is no good")
    with open(resolved(config.text)) as file:
        text = file.read()
    for step in range(1, 5):
        current().progress(step, 4, loss=1 / step)
        if step == 2:
            with open(output + "/half", "w") as file:
                file.write(text)
            current().publish(2, "half")
    with open(output + "/loss", "w") as file:
        file.write(f"{config.learning_rate} {sorted(config.weights.items())}")


def report(config, output):
    with open(output + "/report.md", "w") as file:
        file.write("# What came of it\\n\\n" + "".join(f"- {name}\\n" for name in config.runs))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Midtrain:
    learning_rate: float | None = None
    fail: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    words: tuple[str, ...] = ("x", "y")
    workers: int = 2
    midtrain: Midtrain = Midtrain()
    swap: bool = False

    @classmethod
    def at_scale(cls, scale):
        if scale not in ("laptop", "full"):
            raise ValueError(f"the scales are laptop and full, not {scale}")
        return cls(words=("x",) * (2 if scale == "laptop" else 2000))


def build(settings: Settings) -> Experiment:
    text = Step("corpus", collect, CorpusConfig(words=settings.words, workers=settings.workers)) / "words.txt"
    pretrain = Step("hero/pretrain", train, TrainConfig(text=text, weights={"code": 0.25, "prose": 0.75}))
    last = pretrain
    if settings.swap:
        config = dataclasses.replace(
            pretrain.config, weights={"code": 0.5, "math": 0.5}, start=pretrain.at_step(2)
        )
        last = Step("hero/pretrain-swap", train, config, amends=pretrain)
    midtrain = Step(
        "hero/midtrain",
        train,
        TrainConfig(
            text=text,
            start=last / "loss",
            learning_rate=settings.midtrain.learning_rate,
            fail=settings.midtrain.fail,
        ),
    )
    end = Step("hero/report", report, ReportConfig(runs={"pretrain": last / "loss", "midtrain": midtrain / "loss"}))
    return Experiment(targets=(end,), report=end / "report.md", hypothesis="it works")


if __name__ == "__main__":
    main(build)
"""

SWAP = """
import dataclasses

from executor import Experiment, main
from tinyrecipes.tiny import Settings, build as base


def build(settings: Settings) -> Experiment:
    return base(dataclasses.replace(settings, swap=True))


if __name__ == "__main__":
    main(build)
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("project")
    (root / "pyproject.toml").write_text("")
    package = root / "tinyrecipes"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "tiny.py").write_text(RECIPE)
    (package / "tiny_swap.py").write_text(SWAP)
    return root


@dataclasses.dataclass(frozen=True, kw_only=True)
class Typed:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def marinade(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Typed]:
    monkeypatch.chdir(project)
    monkeypatch.setenv("MARINADE_PREFIX", str(tmp_path / "artifacts"))

    def type_in(*words: str) -> Typed:
        capsys.readouterr()
        try:
            code = main(words)
        except SystemExit as stop:  # argparse
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return Typed(code=code, out=captured.out, err=captured.err)

    return type_in


TINY, TINY_SWAP = "tinyrecipes/tiny.py", "tinyrecipes/tiny_swap.py"
STEPS = ["corpus", "hero/pretrain", "hero/midtrain", "hero/report"]


def actions(typed: Typed) -> dict[str, str]:
    return {step["name"]: step["action"] for step in typed.json["steps"]}


def test_plan_run_and_nothing_to_do(marinade: Callable[..., Typed], tmp_path: Path) -> None:
    plan = marinade("plan", TINY, "--json", "--exit-code")
    assert plan.code == 3 and actions(plan) == dict.fromkeys(STEPS, "run")
    assert plan.json["counts"] == {"run": 4} and plan.json["scale"] == "laptop" and plan.json["recipe"] == TINY
    assert plan.json["prefix"] == str(tmp_path / "artifacts")
    assert [step["reasons"][0]["kind"] for step in plan.json["steps"]] == ["new"] * 4

    run = marinade("run", TINY, "--inline")
    assert run.code == 0
    assert (
        run.out.index("plan of tinyrecipes/tiny.py") < run.out.index("# What came of it") < run.out.index("lies under")
    )
    assert "4 of 4 steps done" in run.out and "done     hero/pretrain" in run.err
    assert "training starts" in run.err and "training starts" not in run.out

    again = marinade("run", TINY, "--inline")
    assert again.code == 0 and again.err == ""
    first, second = again.out.splitlines()
    assert first.startswith("nothing to do: 4 steps up to date (") and second.endswith("/report.md")
    assert marinade("plan", TINY, "--exit-code").code == 0


def test_a_set_field_is_named_and_reruns_what_follows_only(marinade: Callable[..., Typed]) -> None:
    assert marinade("run", TINY, "--inline").code == 0
    changed = ("--set", "midtrain.learning_rate=0.001")
    plan = marinade("plan", TINY, "--json", *changed)
    assert [actions(plan)[name] for name in STEPS[:3]] == ["reuse", "reuse", "run"]
    assert plan.json["steps"][2]["reasons"] == [
        {"kind": "config", "path": "learning_rate", "old": None, "new": 0.001, "step": ""}
    ]
    assert "learning_rate None -> 0.001" in marinade("plan", TINY, *changed).out
    run = marinade("run", TINY, "--inline", "--json", *changed)
    assert run.code == 0 and run.json["exit_code"] == 0
    assert {name: step["status"] for name, step in run.json["steps"].items()} == {
        "corpus": "reused",
        "hero/pretrain": "reused",
        "hero/midtrain": "succeeded",
        "hero/report": "succeeded",
    }
    assert Path(run.json["report"]).read_text().startswith("# What came of it")


def test_a_failing_step_says_why_and_where_and_what_next(marinade: Callable[..., Typed]) -> None:
    run = marinade("run", TINY, "--inline", "--set", "midtrain.fail=true")
    assert run.code == 1
    ending = run.err[run.err.index("FAILED hero/midtrain") :]
    assert "ValueError: the learning rate is no good" in ending and "tinyrecipes/tiny.py" in ending
    assert "executor/worker/attempt.py" not in ending
    assert "| training starts" in ending and "did not run (1): hero/report" in ending
    log = next(line.split("log: ")[1] for line in ending.splitlines() if "log: " in line)
    assert "training starts" in Path(log).read_text()
    assert "to go on from what was finished: marinade run" in ending.replace("\n", " ") or "marinade" in ending
    assert "# What came of it" not in run.out

    status = marinade("status", TINY, "--set", "midtrain.fail=true")
    assert status.code == 0 and "failed     hero/midtrain" in status.out and "no good" in status.out
    states = marinade("status", TINY, "--json", "--set", "midtrain.fail=true").json["steps"]
    assert [step["state"] for step in states] == ["succeeded", "succeeded", "failed", "waiting"]
    assert states[2]["log"] == log and "no good" in states[2]["error"]
    assert marinade("run", TINY, "--inline").code == 0


def test_status_keeps_and_shows_every_failure(marinade: Callable[..., Typed]) -> None:
    failing = ("--set", "midtrain.fail=true")
    for _ in range(2):
        assert marinade("run", TINY, "--inline", *failing).code == 1
    shown = marinade("status", TINY, *failing).out
    assert "attempt 2 failed" in shown and "attempt 1" not in shown and f"on {socket.gethostname()} process" in shown
    assert 'raise ValueError("the learning rate is no good")' in shown and "executor/worker/attempt.py" not in shown
    assert "| training starts" in shown and "log.txt" in shown and "ValueError: the learning rate is no good" in shown
    asked = marinade("status", TINY, "hero/mid*", *failing).out
    assert asked.index("attempt 2 failed") < asked.index("attempt 1 failed") and "hero/pretrain" not in asked
    (step,) = marinade("status", TINY, "hero/midtrain", "--json", *failing).json["steps"]
    assert [attempt["number"] for attempt in step["attempts"]] == [2, 1]
    for attempt in step["attempts"]:
        assert (
            attempt["status"] == "failed" and attempt["host"] == socket.gethostname() and attempt["pid"] == os.getpid()
        )
        assert attempt["error"].endswith("the learning rate is no good") and "Traceback" not in attempt["error"]
        assert attempt["traceback"].startswith("Traceback (most recent call last):")
        assert attempt["log_tail"] == "training starts" and "training starts" in Path(attempt["log"]).read_text()
    every = marinade("status", TINY, "--json", *failing).json["steps"]
    assert [len(step["attempts"]) for step in every] == [1, 1, 2, 0]
    unknown = marinade("status", TINY, "hero/sft")
    assert unknown.code == 2 and "the steps are corpus, hero/pretrain" in unknown.err


def test_accept_verify_and_gc_as_they_are_typed(marinade: Callable[..., Typed]) -> None:
    assert marinade("run", TINY, "--inline").code == 0
    changed = ("--set", "midtrain.learning_rate=0.001")
    refused = marinade("accept", TINY, "hero/midtrain", "--reason", " ", *changed)
    assert refused.code == 2 and "--reason is empty" in refused.err
    assert marinade("accept", TINY, "hero/midtrain", *changed).code == 2
    accepted = marinade("accept", TINY, "hero/midtrain", "--reason", "the rate is not used", *changed)
    assert accepted.code == 0 and "config learning_rate  None -> 0.001" in accepted.out
    assert "reason: the rate is not used" in accepted.out
    plan = marinade("plan", TINY, "--json", *changed)
    assert plan.json["counts"] == {"reuse": 4}
    assert plan.json["steps"][2]["notes"] == ["accepted: the rate is not used"]
    assert "note: accepted: the rate is not used" in marinade("plan", TINY, *changed).out
    again = marinade("accept", TINY, "hero/midtrain", "--reason", "x", *changed)
    assert again.code == 2 and "nothing to accept: hero/midtrain is already up to date" in again.err
    assert marinade("verify", TINY, *changed).out.count("ok  ") == 4
    assert marinade("verify", TINY, "--json").json["ok"]
    found = marinade("gc", TINY, "--keep", "0")
    assert found.code == 0 and "kept: 4 reached by a given recipe" in found.out and "nothing to delete" in found.out
    found = marinade("gc", TINY, "--set", "words=[a]", "--keep", "0")
    assert "nothing was deleted: --delete deletes them" in found.out and "made by" in found.out
    found = marinade("gc", TINY, "--set", "words=[a]", "--keep", "0", "--delete")
    assert "deleted 4 artifacts" in found.out
    assert marinade("plan", TINY, "--json").json["counts"] == {"run": 4}
    for wrong in ("-1", "nan", "inf", "month"):
        assert marinade("gc", TINY, f"--keep={wrong}").code == 2


def plain(listed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Causes or notes with what every change has; how it is applied has tests of its own."""
    fields = ("kind", "path", "old", "new")
    return [one | {"changes": [{name: c[name] for name in fields} for c in one["changes"]]} for one in listed]


def test_diff_of_a_recipe_and_its_amendment(marinade: Callable[..., Typed]) -> None:
    found = marinade("diff", TINY, TINY_SWAP, "--json")
    assert found.code == 1
    assert plain(found.json["causes"]) == [
        {
            "step": "hero/pretrain-swap",
            "amends": "hero/pretrain",
            "changes": [
                {"kind": "config", "path": "weights.code", "old": 0.25, "new": 0.5},
                {"kind": "config", "path": "weights.prose", "old": 0.75, "new": None},
                {"kind": "config", "path": "weights.math", "old": None, "new": 0.5},
                {"kind": "input", "path": "start", "old": None, "new": "hero/pretrain@2"},
            ],
        }
    ]
    assert found.json["inherited"] == [
        {"step": "hero/midtrain", "from": ["hero/pretrain-swap"]},
        {"step": "hero/report", "from": ["hero/pretrain-swap"]},
    ]
    assert found.json["added"] == found.json["removed"] == [] and found.json["identical"] == 2
    assert "amends hero/pretrain" in marinade("diff", TINY, TINY_SWAP).out
    assert marinade("diff", TINY, TINY_SWAP, "--markdown").out.startswith("### `tinyrecipes/tiny.py`")
    same = marinade("diff", TINY, TINY, "--scale", "full")
    assert same.code == 0 and "no difference: 4 steps" in same.out


def test_diff_against_the_last_run_and_of_artifacts(marinade: Callable[..., Typed]) -> None:
    never = marinade("diff", TINY)
    assert never.code == 2 and "never run at scale laptop" in never.err
    run = marinade("run", TINY, "--inline", "--json")
    same = marinade("diff", TINY, "--json")
    assert same.code == 0 and same.json["notes"] == []
    slower = marinade("diff", TINY, "--set", "workers=9", "--json")
    assert slower.code == 0 and plain(slower.json["notes"]) == [
        {
            "step": "corpus",
            "kind": "execution",
            "changes": [{"kind": "config", "path": "workers", "old": 2, "new": 9}],
        }
    ]
    found = marinade("diff", TINY, "--set", "midtrain.learning_rate=0.5", "--json")
    assert found.code == 1 and [cause["step"] for cause in found.json["causes"]] == ["hero/midtrain"]
    location = run.json["steps"]["hero/report"]["location"]
    assert marinade("diff", location, TINY).code == 0
    assert marinade("diff", location, TINY_SWAP).code == 1
    assert marinade("diff", location, location).code == 0
    assert marinade("diff", location).code == 2
    revision = marinade("diff", f"{TINY}@HEAD~1", TINY)
    assert revision.code == 2 and "is in no git repository" in revision.err


def test_lineage_and_why(marinade: Callable[..., Typed], tmp_path: Path) -> None:
    run = marinade("run", TINY_SWAP, "--inline", "--json")
    assert run.code == 0
    location = run.json["steps"]["hero/report"]["location"]
    address = os.path.relpath(os.path.dirname(location), tmp_path / "artifacts")
    by_address, by_path = marinade("lineage", address, "--json"), marinade("lineage", location, "--json")
    assert by_address.code == by_path.code == 0
    assert by_address.json["ancestors"] == by_path.json["ancestors"]
    names = [item["name"] for item in by_address.json["ancestors"]]
    assert names[0] == "hero/report" and set(names) == {*STEPS, "hero/pretrain-swap"}
    assert by_address.json["provenance"]["recipe"] == TINY_SWAP
    assert by_address.json["missing"] == []
    inside = run.json["steps"]["hero/pretrain"]["location"] + "/half"
    assert marinade("lineage", inside, "--json").json["name"] == "hero/pretrain"
    assert "hero/pretrain@2 (start)" in marinade("lineage", address).out
    why = marinade("why", address, "corpus", "--json")
    assert why.code == 0 and [step["name"] for step in why.json["path"]][0::2] == ["hero/report", "corpus"]
    assert marinade("why", address, "nothing").code == 2
    missing = marinade("lineage", "no/such-thing")
    assert missing.code == 2 and str(tmp_path / "artifacts") in missing.err


def test_estimate_and_dag(marinade: Callable[..., Typed]) -> None:
    found = marinade("estimate", TINY_SWAP, "--scale", "full", "--json")
    assert found.code == 0
    assert found.json["steps"]["hero/midtrain"] == {
        "tokens": 1_000_000,
        "flops_total": 2.5e18,
        "days": 0.25,
        "device_hours": 6,
        "parameters_total": 123,
    }
    assert found.json["steps"]["hero/pretrain"]["wanted_until"] == 2
    assert "7.5e18" in marinade("estimate", TINY_SWAP, "--scale", "full").out
    assert marinade("dag", TINY_SWAP).out.startswith("hero/report\n├─ hero/pretrain-swap")
    mermaid = marinade("dag", TINY_SWAP, "--mermaid").out
    assert mermaid.startswith("flowchart TD\n") and "-->|at step 2|" in mermaid and "amended by" in mermaid
    assert '"hero/pretrain" -> "hero/pretrain-swap" [label="at step 2"];' in marinade("dag", TINY_SWAP, "--dot").out
    assert marinade("dag", TINY, "--json").json["targets"] == ["hero/report"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("plan", "tinyrecipes/none.py"), "no such recipe"),
        (("plan", TINY, "--set", "midtrain.learning_rat=1"), "learning_rate"),
        (("plan", TINY, "--set", "midtrain.learning_rate=fast"), "midtrain.learning_rate"),
        (("plan", TINY, "--set", "midtrain"), "path=value"),
        (("plan", TINY, "--scale", "huge"), "laptop and full"),
        (("run", TINY, "--inline", "--only", "hero/sft"), "hero/midtrain"),
        (("run", TINY, "--max-parallel", "0"), "whole number"),
        (("plan", TINY, "--sett", "x=1"), "--sett"),
        (("frobnicate", TINY), "frobnicate"),
        ((), "COMMAND"),
    ],
)
def test_what_does_not_fit_is_one_message_and_2(marinade: Callable[..., Typed], words: Any, says: str) -> None:
    found = marinade(*words)
    assert found.code == 2 and says in found.err and "Traceback" not in found.err and found.out == ""


def test_a_broken_recipe_shows_its_own_frames(marinade: Callable[..., Typed], project: Path) -> None:
    (project / "tinyrecipes" / "broken.py").write_text("import tinyrecipes.nothing_here\n")
    found = marinade("plan", "tinyrecipes/broken.py")
    assert found.code == 2 and "tinyrecipes/broken.py cannot be imported" in found.err
    assert "No module named 'tinyrecipes.nothing_here'" in found.err and "executor/" not in found.err


def python(project: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name != "MARINADE_PREFIX"}
    return subprocess.run(
        [sys.executable, *words], cwd=project, env={**kept, **environment}, capture_output=True, text=True, timeout=120
    )


def test_a_recipe_run_as_a_script_is_marinade_run(
    project: Path, tmp_path: Path, marinade: Callable[..., Typed]
) -> None:
    prefix = str(tmp_path / "artifacts")
    script = python(project, TINY, "--inline", "--prefix", prefix)
    assert script.returncode == 0, script.stderr
    assert "# What came of it" in script.stdout
    assert marinade("run", TINY).out.startswith("nothing to do: 4 steps")
    failing = python(project, TINY, "--inline", "--prefix", prefix, "--set", "midtrain.fail=true")
    assert failing.returncode == 1 and f"python {TINY} --inline --prefix" in failing.stderr
    assert python(project, TINY, "--set", "nothing=1").returncode == 2


def test_planning_and_cached_runs_import_nothing_heavy(project: Path, tmp_path: Path) -> None:
    prefix = str(tmp_path / "artifacts")
    assert python(project, TINY, "--inline", "--prefix", prefix).returncode == 0
    heavy = {"ray", "jax", "numpy", "rich", "levanter", "fsspec", "draccus", "matplotlib"}
    for words in (["plan", TINY], ["run", TINY], ["estimate", TINY], ["diff", TINY, TINY_SWAP]):
        code = (
            f"import sys; from executor.cli import main; main(sys.argv[1:]); print(sorted({heavy} & set(sys.modules)))"
        )
        found = python(project, "-c", code, *words, "--prefix", prefix)
        assert found.stdout.splitlines()[-1] == "[]", (words, found.stdout, found.stderr)


def test_a_reader_that_goes_away_is_no_error(project: Path) -> None:
    code = "import sys; from executor.cli import main; sys.exit(main(sys.argv[1:]))"
    script = f'{sys.executable} -c "{code}" dag {TINY} --json; echo $? >&2'
    found = subprocess.run(
        ["bash", "-c", f"({script}) | true"], cwd=project, capture_output=True, text=True, timeout=60
    )
    assert "Traceback" not in found.stderr and "Broken" not in found.stderr


def test_plain_progress_speaks_seldom() -> None:
    class Lines(list[str]):
        def write(self, text: str) -> None:
            self.append(text)

        def flush(self) -> None: ...

    lines, clock = Lines(), [0.0]
    progress = PlainProgress(lines, Terminal(), clock=lambda: clock[0])  # type: ignore[arg-type]
    progress(StepStarted(name="a", attempt="1", host="h", pid=1))
    for number in range(1, 1001):
        clock[0] += 1.0
        progress(StepProgress(name="a", done=number, total=1000, unit="steps", metrics={"loss": 1 / number}))
    progress(StepFinished(name="a", status="succeeded", location="/x", seconds=1000, result=None))
    progress(StepFailed(name="b", error="ValueError: no", traceback="Traceback", log="/log"))
    assert 8 <= len(lines) <= 30
    middle = next(line for line in lines if "500/1000" in line)
    assert "(50%)" in middle and "loss 0.002" in middle and "1 steps/s" in middle and "ETA 8:20" in middle
    assert lines[-2].endswith("done     a  16:40\n") and "FAILED   b  ValueError: no; log /log" in lines[-1]


def test_the_live_table_shows_running_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    from executor.render.live import LiveProgress

    stream = io.StringIO()
    live = LiveProgress(stream, Terminal(width=100, live=True), total=3)
    try:
        live(StepStarted(name="hero/pretrain", attempt="1", host="h", pid=1))
        live(StepProgress(name="hero/pretrain", done=30, total=600, unit="steps", metrics={"loss": 5.25}))
        live(StepFinished(name="corpus", status="succeeded", location="/x", seconds=3.2, result=None))
        live(StepFailed(name="ladder/d48", error="ValueError: no", traceback="Traceback"))
        from rich.console import Console

        console = Console(file=io.StringIO(), width=100)
        with console.capture() as capture:
            console.print(live._table())
    finally:
        live.close()
    table = capture.get()
    assert "hero/pretrain" in table and "30/600 steps" in table and "loss 5.25" in table
    assert "2 of 3 steps, 1 running, 1 failed" in table
    assert "done" in stream.getvalue() and "ValueError: no" in stream.getvalue()


def test_nothing_is_shown_for_a_plan_with_nothing_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    from executor.commands.run import _View

    view = _View(sys.stdout)
    view(Planned(plan=Plan(recipe="r", scale="s", prefix="/p", steps=()), run_id="1"))
    view.close()
    assert capsys.readouterr().out == "" and not view.began


def test_a_prefix_that_cannot_be_read_is_one_line(marinade: Callable[..., Typed], tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    found = marinade("plan", TINY, "--prefix", str(tmp_path / "loop"))
    assert found.code == 1 and len(found.err.splitlines()) == 1
    assert found.err.startswith(f"error: {tmp_path}/loop") and "--prefix" in found.err


def test_a_partial_run_hides_no_step_from_diff(marinade: Callable[..., Typed]) -> None:
    assert marinade("run", TINY, "--inline", "--until", "corpus").code == 0
    found = marinade("diff", TINY, "--json")
    assert found.code == 0 and found.json["identical"] == len(STEPS)
