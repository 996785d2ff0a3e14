"""Why did it rerun, why is it an error: each report of another tool, and the words that are owed."""

import dataclasses
import json
from pathlib import Path

import pytest

from executor import Input, MarinadeError, Step
from executor.comparing.compare import diff
from executor.comparing.side import Side
from executor.keys.graph import Graph
from executor.keys.identity import hash_json, without_names
from executor.render.plan import reason_text

RECIPE = """
    @dataclasses.dataclass(frozen=True)
    class Config:
        rate: float = 0.1
        keep: bool = True
        source: Input | None = None

    def work(config, output):
        put(f"{output}/a", "same" if config.keep else f"{config.rate}")

    @dataclasses.dataclass(frozen=True)
    class Settings(Scales):
        rate: float = 0.1
        keep: bool = True

    def build(settings: Settings):
        step = Step("corpus", work, Config(settings.rate, settings.keep))
        for name in ("tokens", "train", "report"):
            step = Step(name, work, Config(source=step))
        return Experiment(targets=(step,))
    """


@pytest.fixture
def toy(project):
    project.write("toy_recipe.py", RECIPE)
    return project


def test_why_did_it_rerun(toy):
    """bazel#3026, bazel#18643: the field, old -> new."""
    toy.run()
    (reason,) = toy.plan("rate=0.2")["corpus"].reasons
    assert (reason.kind, reason.path, reason.old, reason.new) == ("config", "rate", 0.1, 0.2)
    assert reason_text(reason) == "rate 0.1 -> 0.2"


def test_the_record_has_all_that_the_key_has(toy):
    """nextflow#7202; over random recipes and edits in test_identity_properties.py."""
    outcome = toy.run()
    for step in outcome.steps.values():
        record = toy.store.record(step.address)
        assert hash_json(without_names(record.payload)) == record.recipe_key


def test_why_did_all_hashes_change(toy):
    """marin#2219: the first changed ancestor is the cause, all others inherit from it."""
    toy.run()
    last = toy.store.last_run("toy_recipe.py", "laptop")
    graph = Graph.of(toy.recipe().experiment("laptop", ["rate=0.2"]).targets)
    found = diff(Side.of_run("last", last.steps), Side.of_graph("now", graph))
    assert [(cause.step, [change.path for change in cause.changes]) for cause in found.causes] == [("corpus", ["rate"])]
    assert [(one.step, one.causes) for one in found.inherited] == [
        (name, ("corpus",)) for name in ("tokens", "train", "report")
    ]


@pytest.mark.parametrize("again", [False, True], ids=["the same run", "a later run"])
def test_upstream_reran_with_the_same_content(toy, again):
    """dagster#14842."""
    toy.run()
    outcome = toy.run("rate=0.2")
    assert {name: step.status for name, step in outcome.steps.items()} == {
        "corpus": "succeeded", "tokens": "reused", "train": "reused", "report": "reused",
    }  # fmt: skip
    if again:
        assert {step.action for step in toy.plan("rate=0.2").values()} == {"reuse"}
        assert {step.action for step in toy.plan("rate=0.1").values()} == {"reuse"}


def test_upstream_reran_with_other_content(toy):
    """dagster#14842, the other way round: nothing that changed is passed by."""
    toy.run("keep=false")
    outcome = toy.run("rate=0.2", "keep=false")
    assert outcome.steps["tokens"].status == "succeeded"


def test_a_renamed_step_reruns_nothing(toy):
    """hamilton#1250."""
    toy.run()
    toy.write("toy_recipe.py", RECIPE.replace('"tokens"', '"tokens/code"'))
    plan = toy.plan()
    assert list(plan) == ["corpus", "tokens/code", "train", "report"]
    assert {step.action for step in plan.values()} == {"reuse"}


@dataclasses.dataclass(frozen=True)
class Config:
    source: Input | None = None


def work(config, output):
    return None


def test_a_cycle():
    """dvc#7915."""
    first = Step("a", work, Config())
    second = Step("b", work, Config(first))
    object.__setattr__(first.config, "source", second)
    with pytest.raises(MarinadeError, match=r"cycle: a -> b -> a$"):
        Graph.of([first])


REVEALING = """
    @dataclasses.dataclass(frozen=True)
    class Config:
        source: Input | None = None
        mirror: str = "https://me:hunter2@host/x"
        token: Secret = Secret("MARINADE_TEST_TOKEN")

    def work(config, output):
        value = config.token.value()
        print("fetching", config.mirror, "with", value)
        put(f"{output}/a", "x")
        raise ValueError(f"{config.mirror} refused {value}")

    @dataclasses.dataclass(frozen=True)
    class Settings(Scales):
        url: str = ""

    def build(settings: Settings):
        return Experiment(targets=(Step("work", work, Config(adopt(settings.url))),))
    """


def test_credentials_and_secrets_are_redacted(project, monkeypatch):
    """zenml#2443, kedro#1712: a URL with a password, a token in a traceback; in record, log, plan and error."""
    monkeypatch.setenv("MARINADE_TEST_TOKEN", "s3cr3t-value-of-a-token")
    project.write("toy_recipe.py", REVEALING)
    (project.root / "data.txt").write_text("x")
    outcome = project.run(f"url={project.root}/data.txt")
    work = outcome.steps["work"]
    assert work.status == "failed" and "https://***@host/x refused ***" in work.error
    assert "fetching https://***@host/x with ***" in Path(work.log).read_text()
    assert "ValueError" in work.traceback
    unreachable = project.plan("url=http://me:hunter2@localhost:1/x?token=s3cr3t-value-of-a-token")
    shown = repr([(step.name, step.reasons, step.payload) for step in unreachable.values() if step.name != "work"])
    stored = "".join(path.read_text() for path in Path(project.prefix).rglob("*") if path.is_file())
    told = json.dumps([work.error, work.traceback, work.log_tail])
    assert project.store.record(work.address) is None and "https://***@host/x" in stored
    for hidden in ("hunter2", "s3cr3t-value"):
        assert hidden not in stored and hidden not in told and hidden not in shown
