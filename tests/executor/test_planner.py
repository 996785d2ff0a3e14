"""Actions and reasons, seen through whole runs of a small recipe."""

import shutil
import textwrap
from pathlib import Path

import pytest

from executor import UsageError

RECIPE = """
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class TextConfig:
        text: str = "hello"
        limit: int = 100
        note: str = execution("")

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class ReadConfig:
        source: Input
        scale: float = 1
        advice: Input | None = execution(None)

    def clip(text, limit):
        return text[:limit]

    def write(config, output):
        put(f"{output}/train/a", clip(config.text, config.limit))
        put(f"{output}/valid/a", "v")

    def read(config, output):
        folder = resolved(config.source)
        size = sum(len(get(os.path.join(d, n))) for d, _, names in os.walk(folder) for n in names)
        put(f"{output}/size", str(size * config.scale))
        return {"size": size, "advice": config.advice}

    @dataclasses.dataclass(frozen=True)
    class Settings(Scales):
        text: str = "hello"
        limit: int = 100
        scale: float = 1.0
        note: str = ""
        version: str = ""
        name: str = "last"
        pin: bool = False

    def build(settings: Settings):
        write_it = Step("write", write, TextConfig(text=settings.text, limit=settings.limit, note=settings.note),
                        version=settings.version, code="pin" if settings.pin else "rerun")
        read_it = Step("read/train", read, ReadConfig(source=write_it / "train", scale=settings.scale))
        other = Step("read/valid", read, ReadConfig(source=write_it / "valid"))
        last = Step(settings.name, read, ReadConfig(source=read_it))
        return Experiment(targets=(last, other))
    """
ALL = ("write", "read/train", "read/valid", "last")


def actions(plan) -> dict[str, str]:
    return {name: step.action for name, step in plan.items()}


def statuses(outcome) -> dict[str, str]:
    return {name: step.status for name, step in outcome.steps.items()}


@pytest.fixture
def toy(project):
    project.write("toy_recipe.py", RECIPE)
    return project


def reasons(plan, name):
    return [(reason.kind, reason.path, reason.old, reason.new, reason.step) for reason in plan[name].reasons]


def test_new_then_reused(toy):
    first = toy.plan()
    assert actions(first) == dict.fromkeys(ALL, "run")
    assert {reason.kind for step in first.values() for reason in step.reasons} == {"new"}
    assert statuses(toy.run()) == dict.fromkeys(ALL, "succeeded")
    second = toy.run()
    assert statuses(second) == dict.fromkeys(ALL, "reused")
    assert second.exit_code == 0
    assert toy.store.last_run("toy_recipe.py", "laptop").id == second.run_id


def test_a_changed_field_is_named_with_both_values(toy):
    toy.run()
    plan = toy.plan("scale=2.5")
    assert actions(plan) == {"write": "reuse", "read/train": "run", "read/valid": "reuse", "last": "maybe"}
    assert reasons(plan, "read/train") == [("config", "scale", 1.0, 2.5, "")]
    (kind, path, _, _, step), *rest = reasons(plan, "last")
    assert (kind, path, step, rest) == ("input", "source", "read/train", [])


def test_a_step_that_writes_the_same_stops_the_rerun(toy):
    toy.run()
    plan = toy.plan("limit=50")
    assert actions(plan) == {"write": "run", "read/train": "maybe", "read/valid": "maybe", "last": "maybe"}
    outcome = toy.run("limit=50")
    assert statuses(outcome) == {"write": "succeeded", "read/train": "reused", "read/valid": "reused", "last": "reused"}
    assert actions(toy.plan("limit=50")) == dict.fromkeys(ALL, "reuse")
    assert actions(toy.plan()) == dict.fromkeys(ALL, "reuse")


def test_only_the_part_that_changed_reaches_its_readers(toy):
    toy.run()
    outcome = toy.run("text=other!")
    assert statuses(outcome) == {
        "write": "succeeded", "read/train": "succeeded", "read/valid": "reused", "last": "succeeded",
    }  # fmt: skip


def test_execution_only_fields_and_names_rerun_nothing(toy):
    toy.run()
    assert actions(toy.plan("note=x")) == dict.fromkeys(ALL, "reuse")
    plan = toy.plan("name=renamed")
    assert plan["renamed"].action == "reuse" and plan["renamed"].address.startswith("last-")


def test_code_is_named_by_function(toy):
    toy.run()
    toy.write("toy_recipe.py", RECIPE.replace("return text[:limit]", "return text[:limit] + ''"))
    plan = toy.plan()
    ((kind, path, *_),) = reasons(plan, "write")
    assert (kind, path) == ("code", "toy_recipe.clip")
    assert actions(plan)["read/train"] == "maybe"
    toy.write("toy_recipe.py", RECIPE.replace("return text[:limit]", "return text[:limit]  # words"))
    assert actions(toy.plan()) == dict.fromkeys(ALL, "reuse")


def test_pinned_code_is_noted_and_reruns_with_a_new_version(toy):
    toy.run("pin=true")
    toy.write("toy_recipe.py", RECIPE.replace("return text[:limit]", "return text[:limit] + ''"))
    plan = toy.plan("pin=true")
    assert actions(plan) == dict.fromkeys(ALL, "reuse")
    assert "toy_recipe.clip" in plan["write"].notes[0]
    plan = toy.plan("pin=true", "version=2")
    assert plan["write"].action == "run" and reasons(plan, "write") == [("version", "version", "", "2", "")]


def test_force_reaches_dependents_only_through_what_was_written(toy):
    toy.run()
    assert actions(toy.plan(force=("write",))) == {
        "write": "run", "read/train": "maybe", "read/valid": "maybe", "last": "maybe",
    }  # fmt: skip
    assert toy.plan(force=("wri*",))["write"].reasons[0].kind == "forced"
    before = toy.store.record(toy.plan()["write"].address)
    outcome = toy.run(force=("write",))
    assert statuses(outcome) == {"write": "succeeded", "read/train": "reused", "read/valid": "reused", "last": "reused"}
    after = toy.store.record(toy.plan()["write"].address)
    assert after.attempt > before.attempt and after.digest == before.digest
    assert len(toy.store.attempts(after.address)) == 2


def test_missing_and_resized_files_matter_where_they_are_read(toy):
    outcome = toy.run()
    shutil.rmtree(outcome.steps["write"].location)
    assert actions(toy.plan()) == dict.fromkeys(ALL, "reuse"), "an interior step needs its record only"
    plan = toy.plan("scale=3")
    assert plan["write"].action == "run"
    assert reasons(plan, "write") == [("missing", "", None, "train/a is missing", "")]
    assert statuses(toy.run("scale=3")) == {
        "write": "succeeded", "read/train": "succeeded", "read/valid": "reused", "last": "succeeded",
    }  # fmt: skip
    Path(toy.run("scale=3").steps["last"].location, "size").write_text("longer than it was")
    plan = toy.plan("scale=3")
    assert plan["last"].action == "run" and "bytes" in reasons(plan, "last")[0][3]


def test_the_index_can_be_lost(toy):
    toy.run()
    shutil.rmtree(Path(toy.prefix, ".index"))
    assert actions(toy.plan()) == dict.fromkeys(ALL, "reuse")


def test_only_and_until(toy):
    plan = toy.plan(until=("read/train",))
    assert actions(plan) == {"write": "run", "read/train": "run"}
    plan = toy.plan(only=("read/*",))
    assert actions(plan) == {"write": "blocked", "read/train": "blocked", "read/valid": "blocked"}
    assert toy.run(only=("read/*",)).exit_code == 1
    assert statuses(toy.run(only=("write",))) == {"write": "succeeded"}
    assert statuses(toy.run(only=("read/train",))) == {"write": "reused", "read/train": "succeeded"}


def test_a_partial_run_keeps_what_was_known_of_the_other_steps(toy):
    toy.run()
    before = toy.store.last_run("toy_recipe.py", "laptop")
    for _ in range(2):
        toy.run(until=("write",))
        after = toy.store.last_run("toy_recipe.py", "laptop")
        assert after.id != before.id and list(after.steps) == list(before.steps)
        assert after.steps["last"] == before.steps["last"] and after.outcome["last"] == before.outcome["last"]
    assert reasons(toy.plan("scale=2.5"), "read/train") == [("config", "scale", 1.0, 2.5, "")]


def test_a_partial_run_claims_no_outcome_for_steps_that_changed(toy):
    toy.run()
    toy.run("scale=2.5", until=("write",))
    assert reasons(toy.plan("scale=2.5"), "read/train") == [("new", "", None, None, "")]


def test_an_unknown_step_is_an_error_with_the_known_ones(toy):
    with pytest.raises(UsageError, match=r"--force nope: no step has that name; the steps are write"):
        toy.plan(force=("nope",))


def test_keys_do_not_depend_on_place(toy, tmp_path):
    here = {name: step.key for name, step in toy.plan().items()}
    toy.run()
    digests = {name: toy.store.record(step.address).digest for name, step in toy.plan().items()}
    toy.prefix = str(tmp_path / "a much longer place" / "store:é")
    assert {name: step.key for name, step in toy.plan().items()} == here
    toy.run()
    assert {name: toy.store.record(step.address).digest for name, step in toy.plan().items()} == digests


ADVISED = RECIPE.replace(
    "last = Step(settings.name, read, ReadConfig(source=read_it))",
    "advice = Step('advice', write, TextConfig(text='advice'))\n"
    "        last = Step(settings.name, read, ReadConfig(source=read_it, advice=advice / 'train'))",
)


def test_an_execution_only_input_is_pulled_only_by_a_run_and_is_no_identity(toy):
    toy.run()
    toy.write("toy_recipe.py", ADVISED)
    assert actions(toy.plan()) == dict.fromkeys(ALL, "reuse")
    plan = toy.plan("scale=2")
    assert plan["advice"].action == "run"
    outcome = toy.run("scale=2")
    assert outcome.steps["last"].result["advice"] == outcome.steps["advice"].location + "/train"
    (advice,) = [i for i in toy.store.record(outcome.steps["last"].address).inputs if i.execution_only]
    assert advice.step == "advice" and advice.digest.startswith("sha256:")


GUARDS = """
    class Rule(enum.Enum):
        PAUSE = 1

        def acts(self):
            return 1

    class Limit(int):
        def exceeded(self):
            return 1

    @dataclasses.dataclass(frozen=True)
    class Guard:
        level: int = 1

        def looks(self):
            return 1

    def note(value):
        return 1
    """
GUARDED = """
    import toy_guards as guards

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class TrainConfig:
        after: Input | None = None
        advice: object = execution(None)

    def edit(config, output):
        path = guards.__file__
        put(path, get(path).replace("return 1", "return 22"))
        put(f"{output}/done", "")

    def train(config, output):
        put(f"{output}/state", "s")

    @dataclasses.dataclass(frozen=True)
    class Settings(Scales):
        pass

    def build(settings: Settings):
        last = Step("train", train, TrainConfig(after=Step("edit", edit, TrainConfig()), advice=ADVICE))
        return Experiment(targets=(last,))
    """


@pytest.mark.parametrize(
    ("advice", "source"),
    [
        ("guards.note", "note"),
        ("guards.Limit", "Limit.exceeded"),
        ("guards.Rule.PAUSE", "Rule.acts"),
        ("(guards.Guard(),)", "Guard.looks"),
    ],
)
def test_code_in_an_execution_only_field_is_recorded_and_no_identity(project, advice, source):
    project.write("toy_guards.py", "import dataclasses, enum\n" + textwrap.dedent(GUARDS), header=False)
    project.write("toy_recipe.py", GUARDED.replace("ADVICE", advice))
    before = project.plan()["train"]
    assert not any(name.startswith("toy_guards.") for name in before.payload["code"])
    outcome = project.run()
    assert statuses(outcome) == {"edit": "succeeded", "train": "succeeded"}, "a guard edited after the plan"
    train = outcome.steps["train"]
    assert "return 22" in project.store.source(train.address, train.attempt).functions[f"toy_guards.{source}"]
    assert project.plan()["train"].key == before.key
