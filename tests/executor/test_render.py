"""What people read, as golden files: `UPDATE_GOLDEN=1 pytest tests/executor/test_render.py` writes them anew."""

import dataclasses
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from executor.comparing.changed import ChangedRecipe
from executor.comparing.code_diff import CodeDiff, code_diff
from executor.comparing.compare import Cause, Diff, Inherited, Note
from executor.comparing.fields import Change
from executor.driver.status import AttemptStatus, Status, StepStatus
from executor.history.lineage import trace, why
from executor.keys.reason import Reason
from executor.planning.estimate import Estimate, StepEstimate
from executor.planning.plan import Plan, PlannedStep
from executor.render import as_json
from executor.render.diff import diff_text
from executor.render.diff_markdown import changed_markdown, diff_markdown
from executor.render.estimate import estimate_text
from executor.render.lineage import lineage_text, why_text
from executor.render.plan import plan_text
from executor.render.status import status_text
from executor.render.terminal import Terminal
from executor.render.values import change_text, count_text, duration_text, value_text
from executor.step import Step
from executor.storage.record import InputRecord, Record

GOLDEN = Path(__file__).parent / "golden"
PLAIN = Terminal()


def golden(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()
    for line in text.splitlines():
        assert len(line) <= 80 or " " not in line.strip(), f"{name}: more than 80 columns: {line}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Nothing:
    pass


def work(config: Nothing, output: str) -> None:
    """A step that does nothing."""


def planned(name: str, action: Any, *reasons: Reason, **more: Any) -> PlannedStep:
    key = (name.encode().hex() * 8)[:64]
    return PlannedStep(step=Step(name, work, Nothing()), name=name, key=key, action=action, reasons=reasons, **more)


WEIGHTS = {f"topic_{number}": 1 / 19 for number in range(19)}
PLAN = Plan(
    recipe="recipes/hero.py",
    scale="laptop",
    prefix="/data/artifacts",
    steps=(
        planned("corpus", "reuse"),
        planned("tokenizer", "reuse"),
        *(planned(f"tokens/{domain}", "reuse") for domain in ("code", "docstrings", "prose")),
        *(planned(f"ladder/d{width}", "run", Reason(kind="input", step="tokens/code")) for width in (48, 64, 80, 96)),
        planned(
            "hero/pretrain",
            "resume",
            Reason(kind="config", path="mixture.stages.0.weights", old=WEIGHTS, new={**WEIGHTS, "topic_3": 0.2}),
            stop_at=300,
            notes=("pinned code drifted: steps.train.loop.train_step",),
        ),
        planned("hero/midtrain", "run", Reason(kind="config", path="midtrain.learning_rate", old=None, new=0.001)),
        planned("hero/sft", "run", Reason(kind="input", step="hero/midtrain")),
        planned("hero/data", "maybe", Reason(kind="unreachable", path="url", new="gs://b/x: timed out")),
        planned(
            "hero/eval",
            "maybe",
            *(Reason(kind="unreachable", path=f"data.{i}", step=f"raw/{i % 3}", new="gs://b/x") for i in range(6)),
            Reason(kind="new"),
        ),
        planned("hero/report", "run", Reason(kind="new")),
        planned("hero/export", "halted", Reason(kind="failed", new="loss spike at step 120")),
        planned(
            "a/step/with/a/name/that/is/rather/long/indeed",
            "run",
            Reason(kind="code", path="steps.evaluate.choose"),
            Reason(kind="version", path="version", old="", new="2"),
        ),
    ),
)


def test_plan() -> None:
    golden("plan.txt", plan_text(PLAN, PLAIN))


def test_plan_compact() -> None:
    golden("plan_compact.txt", plan_text(PLAN, PLAIN, compact=True))


def test_a_long_plan_is_folded_and_a_short_one_is_not() -> None:
    steps = tuple(planned(f"tokens/d{number}", "run", Reason(kind="new")) for number in range(500))
    text = plan_text(dataclasses.replace(PLAN, steps=steps), PLAIN)
    assert len(text.splitlines()) < 10 and "500 steps: new" in text
    assert plan_text(PLAN, PLAIN).count("reuse") == 6


def test_plan_json() -> None:
    golden("plan.json", as_json.dumps(as_json.plan_json(dataclasses.replace(PLAN, steps=PLAN.steps[9:11]))) + "\n")


TOKENIZER = code_diff(
    {"f": "\n".join(["def f(rows):", *(f"    x{i} = rows[{i}]" for i in range(9)), "    return ```x```"])},
    {"f": "\n".join(["def f(rows):", *(f"    x{i} = rows[{i + 1}]" for i in range(9)), "    return " + "y" * 90])},
    "f",
)
NOT_KEPT = CodeDiff(missing="the text of a was not kept")

DIFF = Diff(
    a="recipes/hero.py",
    b="recipes/hero_swap.py",
    causes=(
        Cause(
            step="hero/pretrain-swap",
            amends="hero/pretrain",
            changes=(
                Change(kind="input", path="start", old=None, new="hero/pretrain@108000", at=("start",)),
                Change(kind="config", path="mixture.stages.0.weights.code", old=0.125, new=0.25),
                Change(kind="config", path="mixture.stages.1", old=None, new={"start": 9, "weights": WEIGHTS}),
            ),
        ),
        Cause(
            step="tokenizer",
            changes=(
                Change(kind="code", path="steps.tokenizer.train_tokenizer", old="a" * 64, new="b" * 64, code=TOKENIZER),
                Change(kind="code", path="steps.words.split", new="b" * 64, op="added", code=NOT_KEPT),
                Change(kind="config", path="stages[start=8]", old=1, new=0, op="moved", at=("stages", 1), to=0),
                Change(kind="config", path="stages[start=9]", old={"start": 9}, op="removed", at=("stages", 2)),
                Change(kind="config", path="words." + "long_name_" * 9, new=1.5, op="added", at=("words", "x")),
                Change(
                    kind="config",
                    path="optimizer",
                    old={"$type": "steps.Adam", "lr": 0.1},
                    new={"$type": "steps.Lion", "lr": 0.1},
                ),
                Change(
                    kind="config", path="prompt", old="x" * 200 + "old" + "y" * 200, new="x" * 200 + "new" + "y" * 200
                ),
            ),
        ),
    ),
    inherited=(
        Inherited(step="tokens/code", causes=("tokenizer",)),
        Inherited(step="hero/midtrain", causes=("tokenizer", "hero/pretrain-swap")),
        Inherited(step="hero/sft", causes=("tokenizer", "hero/pretrain-swap")),
        Inherited(step="hero/eval", causes=("tokenizer", "hero/pretrain-swap")),
    ),
    added=("tokens/math",),
    removed=("hero/export",),
    renamed=(("eval", "hero/eval"),),
    identical=14,
    notes=(
        Note(step="hero/pretrain", kind="execution", changes=(Change(kind="config", path="workers", old=8, new=16),)),
        Note(
            step="hero/pretrain",
            kind="pinned",
            changes=(Change(kind="code", path="steps.loop.step", old="1", new="2"),),
        ),
    ),
)


def test_diff() -> None:
    golden("diff.txt", diff_text(DIFF, PLAIN))


def test_diff_markdown() -> None:
    path = GOLDEN / "diff.md"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(diff_markdown(DIFF))
    assert diff_markdown(DIFF) == path.read_text()


def test_no_line_of_a_diff_is_wider_than_the_terminal() -> None:
    long = "steps." + "long_name" * 20
    change = Change(kind="config", path=long, old={"a": long}, new=[long, 1])
    more = dataclasses.replace(
        DIFF,
        a=long,
        causes=(*DIFF.causes, Cause(step=long, changes=(change,), amends=long)),
        added=(long,),
        renamed=((long, long),),
        notes=(*DIFF.notes, Note(step=long, kind="execution", changes=(change,))),
    )
    for full in (False, True):
        lines = diff_text(more, PLAIN, full=full).splitlines()
        assert max(map(len, lines)) == 80


def test_full_cuts_nothing() -> None:
    names = tuple(f"step-{number}" for number in range(500))
    many = dataclasses.replace(DIFF, added=names)
    short, whole = diff_text(many, PLAIN), diff_text(many, PLAIN, full=True)
    assert "460 more (--full)" in " ".join(short.split()) and "step-499" not in short and "more lines (--full)" in short
    assert "step-499" in whole and "(--full)" not in whole and "…" not in whole
    assert whole.count("x" * 30) and "return ```x```" in whole


def test_markdown_shows_what_fits_of_a_cause_with_thousands_of_changes() -> None:
    many = tuple(Change(kind="config", path=f"weights.domain_{n}", old=0.1, new=0.2) for n in range(3_000))
    text = diff_markdown(dataclasses.replace(DIFF, causes=(Cause(step="hero/pretrain", changes=many),)))
    rows = [line for line in text.splitlines() if line.startswith("|") and "weights.domain_" in line]
    assert len(text) < 65_536 and 500 < len(rows) < 3_000 and "`weights.domain_0`" in rows[0]
    assert "fit into a comment" in text


def test_markdown_fits_into_a_comment() -> None:
    causes = tuple(
        dataclasses.replace(DIFF.causes[1], step=f"step-{n}", changes=DIFF.causes[1].changes[n % 7 :]) for n in range(7)
    )
    wide = tuple(
        Cause(step=f"s{n}", changes=(Change(kind="config", path="x" * 500, old=n, new="y" * 400),)) for n in range(300)
    )
    text = diff_markdown(dataclasses.replace(DIFF, causes=(*causes, *wide)), full=True)
    assert 40_000 < len(text) < 65_536 and "do not fit into a comment" in text
    assert text.count("<details>") == text.count("</details>")
    assert len(diff_markdown(dataclasses.replace(DIFF, a="z" * 100_000))) < 65_536


def test_two_scales_of_many_recipes_fit_into_a_comment() -> None:
    long = dataclasses.replace(DIFF, added=tuple(f"step-{number}-{'x' * 60}" for number in range(3000)))
    for count in (1, 7, 90):
        found = [ChangedRecipe(recipe=f"recipes/r{n}.py", diff=long) for n in range(count)]
        found.append(ChangedRecipe(recipe="recipes/bad.py", diff=None, problem="no good " * 5000))
        text = changed_markdown("main against HEAD", found, full=True)
        assert len(text) < 32_000 and text.count("<details>") == text.count("</details>")


def test_diff_json_has_the_promised_shape() -> None:
    data = json.loads(as_json.dumps(as_json.diff_json(DIFF)))
    promised = ["a", "b", "causes", "inherited", "added", "removed", "renamed", "identical", "notes"]
    assert list(data) == [*promised, "rewired", "shares_nothing"]
    assert data["causes"][0]["changes"][0] == {
        "kind": "input",
        "path": "start",
        "old": None,
        "new": "hero/pretrain@108000",
        "op": "changed",
        "at": ["start"],
    }
    assert data["inherited"][0] == {"step": "tokens/code", "from": ["tokenizer"]}


def test_no_difference_and_nothing_in_common() -> None:
    assert "no difference: 3 steps of equal key" in diff_text(Diff(a="a", b="b", identical=3), PLAIN)
    nothing = Diff(a="a", b="b", added=("x",), removed=("y", "z"), shares_nothing=True)
    for text in (diff_text(nothing, PLAIN), diff_markdown(nothing)):
        assert "he two share nothing: a has 2 steps, b has 1 step" in text and "removed" not in text
    assert "no step in common" in diff_text(Diff(a="a", b="b", added=("x",), removed=("y",)), PLAIN)


def test_colour_only_where_it_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert Terminal.of(Screen()).color and "\x1b[" in diff_text(DIFF, Terminal.of(Screen()))
    assert not Terminal.of(io.StringIO()).color
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in diff_text(DIFF, Terminal.of(Screen()))
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not Terminal.of(Screen()).color and not Terminal.of(Screen()).live


HERO = {
    "parameters_total": 535_477_106_688,
    "parameters_active": 22_762_487_808,
    "forward_flops_per_token": 49_912_086_528,
    "tokens": 14_404_000_000_000,
    "flops_total": 2.69602e24,
    "devices": 704,
    "memory_per_device_bytes": 150 << 30,
    "step_seconds": 6.5,
    "days": 36.25,
    "device_hours": 612_480,
}
ESTIMATE = Estimate(
    recipe="recipes/hero.py",
    scale="full",
    steps=(
        StepEstimate(name="tokens/code", numbers={"tokens": 875_520, "documents": 380}),
        StepEstimate(name="ladder/d768", numbers={**HERO, "parameters_total": 1_591_848_448, "step_seconds": 0.032}),
        StepEstimate(name="hero/pretrain", numbers=HERO, wanted_until=108_000),
    ),
)


def test_estimate() -> None:
    golden("estimate.txt", estimate_text(ESTIMATE, PLAIN))


def test_estimate_json_keeps_exact_numbers() -> None:
    data = json.loads(as_json.dumps(as_json.estimate_json(ESTIMATE)))
    assert data["steps"]["hero/pretrain"] == {**HERO, "wanted_until": 108_000}


def test_status() -> None:
    steps = (
        StepStatus(name="corpus", state="succeeded", action="reuse", started="2026-12-01T02:10:31.5Z", seconds=3.2),
        StepStatus(
            name="hero/pretrain",
            state="running",
            action="wait",
            where="node7 process 412",
            started="2026-12-01T02:11:00Z",
        ),
        StepStatus(
            name="hero/eval",
            state="failed",
            action="run",
            started="2026-12-01T02:12:00Z",
            seconds=75,
            error="ValueError: the task file has 3 columns, 4 are needed",
            log="/data/artifacts/hero/eval-abc/.step/attempts/01/log.txt",
            attempts=(
                AttemptStatus(
                    number=2,
                    attempt="02",
                    status="failed",
                    host="node7",
                    pid=412,
                    started="2026-12-01T02:12:00Z",
                    seconds=75,
                    error="step hero/eval: ValueError: the task file has 3 columns, 4 are needed",
                    traceback='Traceback (most recent call last):\n  File "/p/steps/evaluate.py", line 7, in evaluate\n'
                    "    raise ValueError(...)\nValueError: the task file has 3 columns, 4 are needed",
                    log="/data/artifacts/hero/eval-abc/.step/attempts/02/log.txt",
                    log_tail="reading tasks\n3 columns",
                ),
                AttemptStatus(number=1, attempt="01", status="interrupted", error="interrupted", log="/data/log.txt"),
            ),
        ),
        StepStatus(
            name="hero/sft", state="halted", action="halted", error="loss spike", log="/data/log.txt", seconds=7200
        ),
        StepStatus(name="hero/report", state="never run", action="run"),
    )
    text = status_text(
        Status(recipe="recipes/hero.py", scale="laptop", prefix="/data", last_run="2026-12-01T02:10:30Z", steps=steps),
        PLAIN,
    )
    golden("status.txt", text)


def record(name: str, *inputs: InputRecord, **more: Any) -> Record:
    return Record(
        name=name,
        address=f"{name}-0123456789abcdef",
        attempt="01",
        status="succeeded",
        recipe_key="k" * 64,
        content_key="c" * 64,
        digest="sha256:" + name.encode().hex().ljust(64, "0"),
        payload={"function": "steps.work", "config": {"$type": "steps.C", "x": {"$tuple": [1]}}},
        inputs=inputs,
        started="2026-12-01T02:10:31.500Z",
        wall_seconds=3.25,
        **more,
    )


def read_from(*records: Record) -> Any:
    by_location = {f"/a/{found.address}/{found.attempt}": found for found in records}

    def read(location: str) -> Record:
        for start, found in by_location.items():
            if location == start or location.startswith(start + "/"):
                return found
        raise FileNotFoundError(f"{location} has no record")

    return read


def reads(name: str, path: str, part: str = "", **more: Any) -> InputRecord:
    location = f"/a/{name}-0123456789abcdef/01" + (f"/{part}" if part and part[0] != "@" else "")
    return InputRecord(path=path, step=name, part=part, recipe_key="k", digest="d", location=location, **more)


CORPUS = record("corpus")
TOKENS = record("tokens/code", reads("corpus", "documents", "code"))
FORECAST = record("forecast", reads("tokens/code", "tokens"))
PRETRAIN = record(
    "hero/pretrain",
    reads("tokens/code", "mixture.tokens.code"),
    reads("forecast", "guards.forecast", execution_only=True),
    reads("gone", "start", "@300"),
    provenance={"recipe": "recipes/hero.py", "arguments": ["--scale", "laptop"], "commit": "0123abc", "dirty": False},
)


def test_lineage() -> None:
    lineage = trace("/a/x", PRETRAIN, read_from(CORPUS, TOKENS, FORECAST, PRETRAIN))
    golden("lineage.txt", lineage_text(lineage, PLAIN))
    data = json.loads(as_json.dumps(as_json.lineage_json(lineage)))
    assert [item["name"] for item in data["ancestors"]] == ["hero/pretrain", "tokens/code", "forecast", "corpus"]
    assert [i["source"] for i in data["ancestors"][0]["inputs"]] == [1, 2, None]
    assert data["provenance"]["commit"] == "0123abc" and len(data["missing"]) == 1


def test_why_takes_the_shortest_path() -> None:
    lineage = trace("/a/x", PRETRAIN, read_from(CORPUS, TOKENS, FORECAST, PRETRAIN))
    path = why(lineage, "corpus")
    assert [step.record.name for step in path] == ["hero/pretrain", "tokens/code", "corpus"]
    golden("why.txt", why_text(path, PLAIN))
    assert why(lineage, "/a/corpus-0123456789abcdef/01")[-1].record == CORPUS
    with pytest.raises(Exception, match="corpus, forecast, tokens/code"):
        why(lineage, "nothing")


@pytest.mark.parametrize(
    ("value", "width", "text"),
    [
        (None, 40, "None"),
        (1e-5, 40, "1e-05"),
        ("two words", 40, '"two words"'),
        ("", 40, '""'),
        ({"$tuple": [1, 2]}, 40, "(1, 2)"),
        ({"$type": "steps.opt.Adam", "lr": 0.1}, 40, "Adam(lr=0.1)"),
        ({"a": 1, "b": [1, 2]}, 40, "{a: 1, b: [1, 2]}"),
        (list(range(100)), 24, "[0, 1, 2, 3, … 96 more]"),
        ({"$enum": "steps.Mode.FAST"}, 40, "steps.Mode.FAST"),
        ({"$secret": "TOKEN"}, 40, "$TOKEN"),
    ],
)
def test_values(value: Any, width: int, text: str) -> None:
    assert value_text(value, width) == text


def test_what_changed_inside_a_long_text_is_shown() -> None:
    text = change_text("a" * 300 + "OLD" + "b" * 300, "a" * 300 + "NEW" + "b" * 300)
    assert "OLD" in text and "NEW" in text and len(text) < 80


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (96, "96"),
        (535_477_106_688, "535.48B"),
        (2.69602e24, "2.696e24"),
        (18.005e12, "18.005T"),
        (0.5, "0.5"),
        (12_345, "12.345K"),
    ],
)
def test_counts(number: float, text: str) -> None:
    assert count_text(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.26, "0.3 s"), (42, "42 s"), (185, "3:05"), (8049, "2:14:09"), (36.2 * 86400, "36 d 04 h")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
