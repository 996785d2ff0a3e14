"""Storage that fails, hangs, forgets or lies, under a small recipe; afterwards, each time:

- nothing stale is served: every artifact that is there holds what its step writes;
- no finished work is lost: what was reported as succeeded is not run again;
- the next plain run, with the fault gone, completes.
"""

import json
import re
from pathlib import Path

import pytest

from executor.driver.events import StepFinished
from executor.errors import MarinadeError, StoreError
from executor.planning.planner import make_plan
from executor.storage.places import open_files

pytestmark = pytest.mark.fault("storage that fails, hangs, truncates, forgets or lies")

RECIPE = """
    import fsspec
    from pathlib import Path

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class TextConfig:
        text: str
        source: Input | None = None
        counter: str = execution("")

    def text(config, output):
        with open(f"{config.counter}/{config.text}", "a") as file:
            file.write("x")
        print("at work")
        fs, path = fsspec.core.url_to_fs(output)
        before = fs.cat_file(config.source).decode() if config.source else ""
        fs.pipe_file(f"{path}/out/text", (before + config.text).encode())

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Settings(Scales):
        folder: str = ""

    def build(settings: Settings) -> Experiment:
        def config(text, source=None):
            return TextConfig(text=text, source=source, counter=settings.folder)
        a = Step("a", text, config("one"))
        b = Step("b", text, config("two", a / "out/text"))
        c = Step("c", text, config("three", b / "out/text"))
        return Experiment(targets=[a, b, c])
"""
WRITTEN = {"a": "one", "b": "onetwo", "c": "onetwothree"}
TEXTS = {"a": "one", "b": "two", "c": "three"}

PLACES = {
    "run record": r"/\.runs/",
    "lease": r"/\.leases/",
    "attempt record": r"/attempts/[^/]+/record\.json",
    "source": r"source\.json",
    "log": r"log\.txt",
    "record": r"\.step/record\.json",
    "content index": r"/\.index/content/",
    "recipe index": r"/\.index/recipe/",
    "listing of data": r"/store/[abc]-[^/]+/[^/.]+$",
}
KINDS = {
    "429 three times": {"kind": "error", "error": "429", "times": 3},
    "503 three times": {"kind": "error", "error": "503", "times": 3},
    "connection reset three times": {"kind": "error", "error": "ConnectionError", "times": 3},
    "503 for ever": {"kind": "error", "error": "503"},
    "503 in the middle, for long": {"kind": "error", "error": "503", "times": 9},
    "answers lost": {"kind": "lost", "times": 3},
    "hangs once": {"kind": "hang", "seconds": 1.0, "times": 1},
    "truncates once": {"kind": "truncate", "times": 1},
    "truncates for ever": {"kind": "truncate"},
}
PASSES = {
    "429 three times",
    "503 three times",
    "connection reset three times",
    "answers lost",
    "hangs once",
    "truncates once",
}
DEFAULT = {
    ("503 three times", "lease"),
    ("answers lost", "lease"),
    ("503 for ever", "run record"),
    ("truncates once", "attempt record"),
    ("503 for ever", "record"),
    ("answers lost", "record"),
    ("hangs once", "record"),
    ("truncates for ever", "record"),
    ("503 for ever", "content index"),
    ("truncates once", "recipe index"),
    ("truncates once", "record"),
    ("truncates for ever", "recipe index"),
    ("429 three times", "listing of data"),
    ("503 for ever", "log"),
}
"""Of the nine kinds at nine places, those that are always tried; the others are slow tests."""


CHECKED = {"attempt record", "record", "content index", "recipe index"}


def cases():
    for kind in KINDS:
        for place in PLACES:
            if "truncates" in kind and place == "listing of data":
                continue
            marks = () if (kind, place) in DEFAULT else (pytest.mark.slow,)
            yield pytest.param(kind, place, id=f"{place}, {kind}", marks=marks)


@pytest.fixture
def toy(project, faults):
    project.write("toy_recipe.py", RECIPE)
    project.prefix = faults.url
    project.counter = project.root / "counter"
    project.counter.mkdir()
    return project


def run(toy):
    return toy.run(f"folder={toy.counter}")


def times_run(toy) -> dict[str, int]:
    files = {name: Path(toy.counter, text) for name, text in TEXTS.items()}
    return {name: len(file.read_text()) if file.exists() else 0 for name, file in files.items()}


def succeeded(toy) -> set[str]:
    """Steps that were told of as finished by a run that may have ended early."""
    return {event.name for event in toy.events if isinstance(event, StepFinished) and event.status == "succeeded"}


def check_nothing_stale(toy) -> None:
    recipe = toy.recipe()
    plan = make_plan(
        recipe.experiment("laptop", (f"folder={toy.counter}",)), toy.store, recipe=recipe.name, scale="laptop"
    )
    for step in plan.steps:
        if step.action == "reuse":
            assert open_files(step.location).read("out/text") == WRITTEN[step.name].encode()


def check_whole(toy, place: str) -> None:
    """What others rely on was read back and written again at once."""
    files = toy.store.files
    found = [path for path in files.find("") if re.search(place, f"/{path}")]
    assert len(found) == 3
    for path in found:
        json.loads(files.read(path))


def check_recovers(toy, faults, finished: set[str]) -> None:
    faults.clear()
    before = times_run(toy)
    check_nothing_stale(toy)
    outcome = run(toy)
    assert outcome.exit_code == 0, outcome.steps
    for name, step in outcome.steps.items():
        assert open_files(step.location).read("out/text") == WRITTEN[name].encode()
        if name in finished:
            assert times_run(toy)[name] == before[name], f"{name} had finished and was run again"
    assert all(step.status == "reused" for step in run(toy).steps.values())


@pytest.mark.parametrize(("kind", "place"), list(cases()))
def test_storage_fault(toy, faults, kind, place):
    faults.set({"match": PLACES[place], **KINDS[kind]})
    finished: set[str] = set()
    try:
        outcome = run(toy)
        finished = {name for name, step in outcome.steps.items() if step.status == "succeeded"}
        if kind in PASSES:
            assert outcome.exit_code == 0, "it passes, so it only costs time"
    except (OSError, MarinadeError):
        assert kind not in PASSES
        finished = succeeded(toy)
    assert faults.struck, "the fault was never met"
    if kind == "truncates once" and place in CHECKED:
        check_whole(toy, PLACES[place])
    check_recovers(toy, faults, finished)


def test_stale_listings(toy, faults):
    """Every listing is what it was a moment ago until the cache is dropped, as gcsfs keeps them (gcsfs#562)."""
    faults.set({"kind": "stale"})
    outcome = run(toy)
    assert outcome.exit_code == 0 and faults.struck
    assert all(step.status == "reused" for step in run(toy).steps.values())
    open_files(f"{outcome.steps['c'].location}").write("out/text", b"cut")
    plan = toy.plan(f"folder={toy.counter}")
    assert plan["c"].action == "run" and "3 bytes" in str(plan["c"].reasons)
    check_recovers(toy, faults, {"a", "b"})


def test_a_store_without_exclusive_create_starts_nothing(toy, faults):
    faults.set({"kind": "shared", "op": "create"})
    with pytest.raises(StoreError, match=r"cannot keep two processes apart.*Use a local folder, gs://"):
        run(toy)
    assert times_run(toy) == {"a": 0, "b": 0, "c": 0} and toy.store.run_ids() == ()
    check_recovers(toy, faults, set())


@pytest.mark.parametrize("damaged", [b'{"name": "c", "attem'])
def test_a_damaged_record_is_not_served_and_costs_no_work(toy, faults, damaged):
    outcome = run(toy)
    toy.store.files.write(f"{outcome.steps['c'].address}/.step/record.json", damaged)
    planned = toy.plan(f"folder={toy.counter}")["c"]
    assert planned.action == "run" and ".step/record.json cannot be read" in str(planned.reasons[0].new)
    check_recovers(toy, faults, {"a", "b", "c"})


def test_everything_damaged_at_once_is_rebuilt_or_run_again(toy, faults):
    """All JSON cut to half: nothing of it is believed, nothing of it ends a plan."""
    run(toy)
    files = toy.store.files
    for path in files.find(""):
        if path.endswith(".json"):
            data = files.read(path) or b""
            files.write(path, data[: len(data) // 2])
    assert {step.action for step in toy.plan(f"folder={toy.counter}").values()} <= {"run", "maybe"}
    check_recovers(toy, faults, set())


def test_a_store_that_fails_for_ever_ends_the_run_with_its_name(toy, faults):
    faults.set({"kind": "error", "error": "503"})
    with pytest.raises((OSError, MarinadeError), match=r"faulty://.*status 503"):
        run(toy)
    check_recovers(toy, faults, set())


def test_a_store_that_fails_between_two_steps_keeps_the_first(toy, faults):
    """All storage is gone once b begins; what a wrote counts."""
    faults.set({"kind": "error", "error": "ConnectionError", "match": "/b-"})
    outcome = run(toy)
    assert [step.status for step in outcome.steps.values()] == ["succeeded", "failed", "not_run"]
    assert "faulty://" in outcome.steps["b"].error
    check_recovers(toy, faults, {"a"})
