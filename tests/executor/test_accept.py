"""A change that keeps the output is accepted, on the record; nothing is reused without that record."""

import json
import shutil
from pathlib import Path

import pytest

from executor import UsageError
from executor.cli import main
from executor.history.lineage import trace
from executor.storage.locate import read_record
from executor.upkeep.accept import accept

RECIPE = """
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class TextConfig:
        text: str = "hello"
        limit: int = 100

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class ReadConfig:
        source: Input
        scale: float = 1

    def clip(text, limit):
        return text[:limit]

    def write(config, output):
        put(f"{output}/text", clip(config.text, config.limit))

    def size(text):
        return len(text)

    def read(config, output):
        put(f"{output}/size", str(size(get(resolved(config.source)))))

    def last(config, output):
        put(f"{output}/end", get(resolved(config.source)) + " is the end")

    @dataclasses.dataclass(frozen=True)
    class Settings(Scales):
        limit: int = 100
        middle: str = "read"

    def build(settings: Settings):
        write_it = Step("write", write, TextConfig(limit=settings.limit))
        read_it = Step(settings.middle, read, ReadConfig(source=write_it / "text"))
        return Experiment(targets=(Step("last", last, ReadConfig(source=read_it / "size")),))
    """
REFACTORED = RECIPE.replace("return text[:limit]", "clipped = text[:limit]\n        return clipped")
BOTH = REFACTORED.replace("return len(text)", "return sum(1 for _ in text)")
REASON = "only a local variable"


def actions(plan):
    return {name: step.action for name, step in plan.items()}


@pytest.fixture
def toy(project):
    project.write("toy_recipe.py", RECIPE)
    assert project.run().exit_code == 0
    return project


def accept_in(project, *steps, reason=REASON, overrides=()):
    recipe = project.recipe()
    return accept(
        recipe.experiment("laptop", overrides),
        project.store,
        recipe=recipe.name,
        scale="laptop",
        steps=steps,
        reason=reason,
    )


def test_an_accepted_step_is_reused_and_so_is_what_follows(toy):
    before = toy.plan()
    toy.write("toy_recipe.py", REFACTORED)
    assert actions(toy.plan()) == {"write": "run", "read": "maybe", "last": "maybe"}
    (found,) = accept_in(toy, "write").acceptances
    plan = toy.plan()
    assert actions(plan) == dict.fromkeys(before, "reuse")
    assert plan["write"].location == before["write"].location and plan["write"].notes == (f"accepted: {REASON}",)
    assert plan["read"].notes == ()
    assert found.changes == (
        {"kind": "code", "path": "toy_recipe.clip", "old": found.changes[0]["old"], "new": found.changes[0]["new"]},
    )
    outcome = toy.run()
    assert {step.status for step in outcome.steps.values()} == {"reused"}
    assert toy.store.last_run("toy_recipe.py", "laptop").outcome["write"]["content_key"] == found.content_key
    assert actions(toy.plan()) == dict.fromkeys(before, "reuse")


def test_what_was_accepted_stands_on_record_beside_the_artifacts_own(toy):
    toy.write("toy_recipe.py", REFACTORED)
    record = toy.store.record(toy.store.last_run("toy_recipe.py", "laptop").outcome["write"]["address"])
    (found,) = accept_in(toy, "write").acceptances
    path = Path(toy.prefix, record.address, ".step", "accepted", f"{found.content_key}.json")
    kept = json.loads(path.read_text())
    assert kept["reason"] == REASON and kept["host"] and kept["user"] and kept["accepted"] and kept["command"]
    assert kept["accepted_key"] == record.content_key and kept["recipe_key"] == toy.plan()["write"].key
    assert kept["payload"]["code"]["toy_recipe.clip"] != record.payload["code"]["toy_recipe.clip"]
    assert toy.store.record(record.address) == record


def test_the_index_alone_accepts_nothing(toy):
    toy.write("toy_recipe.py", REFACTORED)
    (found,) = accept_in(toy, "write").acceptances
    path = Path(toy.prefix, found.address, ".step", "accepted", f"{found.content_key}.json")
    path.rename(path.with_suffix(".away"))
    assert actions(toy.plan()) == {"write": "run", "read": "maybe", "last": "maybe"}
    path.with_suffix(".away").rename(path)
    assert toy.plan()["write"].action == "reuse"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"accepted_key": "0" * 64}))
    assert toy.plan()["write"].action == "run", "an acceptance of another artifact"


def test_the_index_is_rebuilt_from_records_and_acceptances(toy, capsys):
    toy.write("toy_recipe.py", REFACTORED)
    accept_in(toy, "write")
    renamed = toy.plan("middle=count")
    assert set(actions(renamed).values()) == {"reuse"}
    shutil.rmtree(Path(toy.prefix, ".index"))
    assert toy.plan()["write"].action == "run"
    assert main(["reindex", "--prefix", toy.prefix]) == 0
    assert "entries in" in capsys.readouterr().out
    assert actions(toy.plan()) == {"write": "reuse", "read": "reuse", "last": "reuse"}
    assert toy.plan("middle=count")["count"].location == renamed["count"].location
    shutil.rmtree(Path(toy.prefix, ".index"))
    (again,) = accept_in(toy, "write", reason="another").acceptances
    assert again.reason == REASON, "the first one stays"
    assert toy.plan()["write"].notes == (f"accepted: {REASON}",)


def test_an_acceptance_holds_for_one_change_only(toy):
    toy.write("toy_recipe.py", REFACTORED)
    accept_in(toy, "write")
    toy.write("toy_recipe.py", REFACTORED.replace("text[:limit]", "text[:limit] + '!'"))
    assert toy.plan()["write"].action == "run"
    toy.write("toy_recipe.py", RECIPE)
    assert actions(toy.plan()) == {"write": "reuse", "read": "reuse", "last": "reuse"}
    assert toy.plan()["write"].notes == ()


def test_a_chain_is_accepted_at_once_in_the_order_of_the_graph(toy):
    toy.write("toy_recipe.py", BOTH)
    found = accept_in(toy, "read", "wr*")
    assert [acceptance.name for acceptance in found.acceptances] == ["write", "read"]
    assert actions(toy.plan()) == {"write": "reuse", "read": "reuse", "last": "reuse"}
    assert {change["path"] for change in found.acceptances[1].changes} == {"toy_recipe.size"}


def test_a_step_whose_input_is_not_committed_cannot_be_accepted_yet(toy):
    toy.write("toy_recipe.py", BOTH)
    with pytest.raises(UsageError, match=r"read: its input write has no artifact yet.*--until write.*or accept it"):
        accept_in(toy, "read")
    assert toy.plan()["read"].action != "reuse"


def test_a_config_change_can_be_accepted_and_is_shown(toy):
    recipe = toy.recipe()
    found = accept(
        recipe.experiment("laptop", ["limit=50"]),
        toy.store,
        recipe=recipe.name,
        scale="laptop",
        steps=["write"],
        reason="the text is shorter than 50",
    )
    assert found.acceptances[0].changes == ({"kind": "config", "path": "limit", "old": 100, "new": 50},)
    assert set(actions(toy.plan("limit=50")).values()) == {"reuse"}


def test_a_step_that_was_renamed_too(toy):
    toy.write("toy_recipe.py", RECIPE.replace("return len(text)", "return sum(1 for _ in text)"))
    assert toy.plan("middle=count")["count"].action == "run"
    (found,) = accept_in(toy, "count", overrides=["middle=count"]).acceptances
    assert found.address.startswith("read-")
    assert set(actions(toy.plan("middle=count")).values()) == {"reuse"}


def test_what_an_interrupted_run_came_to_does_not_hide_the_artifact(toy):
    toy.write("toy_recipe.py", REFACTORED.replace("clipped = text", "raise ValueError\n        clipped = text"))
    assert toy.run().exit_code == 1
    toy.write("toy_recipe.py", REFACTORED)
    accept_in(toy, "write")
    assert set(actions(toy.plan()).values()) == {"reuse"}


def test_content_of_an_input_that_changed_is_named(toy):
    toy.write("toy_recipe.py", RECIPE.replace('"text", clip', '"text", "" + clip').replace("text[:limit]", "text[:4]"))
    assert toy.run(only=("write",)).exit_code == 0
    (found,) = accept_in(toy, "read").acceptances
    assert [(change["kind"], change["path"]) for change in found.changes] == [("input", "source")]
    assert found.changes[0]["old"].startswith("sha256:")


def test_refusals(toy):
    with pytest.raises(UsageError, match="write is already up to date"):
        accept_in(toy, "write")
    toy.write("toy_recipe.py", REFACTORED)
    with pytest.raises(UsageError, match="--reason is empty"):
        accept_in(toy, "write", reason="  ")
    with pytest.raises(UsageError, match=r"accept nope: no step has that name; the steps are write"):
        accept_in(toy, "nope")
    address = toy.store.last_run("toy_recipe.py", "laptop").outcome["write"]["address"]
    (text,) = Path(toy.prefix, address).glob("*/text")
    text.unlink()
    with pytest.raises(UsageError, match=r"step write: its artifact .* is not whole: text is missing"):
        accept_in(toy, "write")
    shutil.rmtree(toy.prefix)
    with pytest.raises(UsageError, match=r"step write: no run of toy_recipe\.py at scale laptop"):
        accept_in(toy, "write")


def test_a_forced_run_takes_the_place_of_what_was_accepted(toy):
    old = toy.plan()["write"].location
    toy.write("toy_recipe.py", REFACTORED)
    accept_in(toy, "write")
    assert toy.run(force=("write",)).exit_code == 0
    plan = toy.plan()
    assert plan["write"].action == "reuse" and plan["write"].location != old and plan["write"].notes == ()
    toy.write("toy_recipe.py", RECIPE)
    assert toy.plan()["write"].location == old


def test_the_lineage_of_a_dependent_leads_through_it(toy):
    toy.write("toy_recipe.py", REFACTORED)
    accept_in(toy, "write")
    toy.write("toy_recipe.py", REFACTORED.replace("return len(text)", "return 2 * len(text)"))
    outcome = toy.run()
    assert outcome.steps["write"].status == "reused" and outcome.steps["read"].status == "succeeded"
    root = read_record(outcome.steps["last"].location)
    lineage = trace("last", root, read_record)
    assert [item.record.name for item in lineage.ancestors] == ["last", "read", "write"] and not lineage.missing
