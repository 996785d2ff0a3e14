"""The store on gs://, against a fake GCS server: the same promises as on a local folder."""

import gcsfs
import pytest

from executor.errors import StoreError
from executor.external import adopt, list_files, look
from executor.planning.planner import make_plan
from executor.storage.index import IndexEntry
from executor.storage.locate import read_record
from executor.storage.places import open_files
from executor.storage.record import MilestoneRecord, Record, RunRecord
from executor.storage.store import Store

RECIPE = """
    import fsspec

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class TextConfig:
        text: str
        source: Input | None = None

    def text(config, output):
        fs, path = fsspec.core.url_to_fs(output)
        before = fsspec.core.url_to_fs(config.source)[0].cat_file(config.source).decode() if config.source else ""
        fs.pipe_file(f"{path}/out/text", (before + config.text).encode())
        print("wrote", config.text)
        return {"length": len(before + config.text)}

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Settings(Scales):
        first: str = "one"
        raw: str = ""

    def build(settings: Settings) -> Experiment:
        raw = adopt(settings.raw, name="raw") if settings.raw else None
        a = Step("a", text, TextConfig(text=settings.first, source=raw))
        b = Step("b", text, TextConfig(text="two", source=a / "out/text"))
        c = Step("c", text, TextConfig(text="three", source=b / "out/text"))
        return Experiment(targets=[c])
"""


def record(**changes) -> Record:
    values = {
        "name": "a", "address": "a-x", "attempt": "1", "status": "succeeded", "recipe_key": "r",
        "content_key": "c" * 64, "payload": {}, "started": "",
    } | changes  # fmt: skip
    return Record(**values)


@pytest.fixture
def remote(gcs):
    """A file system of its own, as another process would have."""
    return gcsfs.GCSFileSystem(token="anon", project="emulated", skip_instance_cache=True)


@pytest.fixture
def toy(project, gcs):
    project.write("toy_recipe.py", RECIPE)
    project.prefix = f"{gcs}/dir with space:é/store/"
    return project


def statuses(outcome) -> list[str]:
    return [step.status for step in outcome.steps.values()]


def test_records_index_and_milestones(gcs):
    store = Store(f"{gcs}/store")
    assert store.record("a-x") is None and store.attempts("a-x") == () and store.milestones("a-x") == {}
    store.write_attempt(record(attempt="1", status="failed"))
    store.write_attempt(record(attempt="2", number=2, status="running"))
    assert [found.attempt for found in store.attempts("a-x")] == ["2", "1"] and store.record("a-x") is None
    store.write_attempt(record(attempt="2", number=2))
    store.commit(record(attempt="2", number=2))
    assert store.record("a-x") == record(attempt="2", number=2) == store.attempt("a-x", "2")
    store.index.enter("key", IndexEntry(content_key="c" * 64, address="a-x"))
    assert store.index.lookup("recipe", ["key", "r", "other"]).keys() >= {"key"}
    found = MilestoneRecord(
        at=5, name="a", address="a-x", attempt="1", part="p", recipe_key="r", content_key="c", digest="d", published=""
    )
    assert store.publish(found) and store.milestones("a-x") == {5: found}


def test_runs(gcs):
    store = Store(f"{gcs}/store")
    assert store.run_ids() == () and store.last_run("r.py", "laptop") is None
    first = RunRecord(id="1-r_laptop", recipe="r.py", scale="laptop", started="")
    store.write_run(first)
    assert store.run("1-r_laptop") == store.last_run("r.py", "laptop") == first
    assert store.run_ids() == ("1-r_laptop",)
    with pytest.raises(StoreError, match="no run 2"):
        store.run("2")


def test_a_recipe_runs_once_and_has_the_keys_it_has_elsewhere(toy, tmp_path):
    first = toy.run()
    assert statuses(first) == ["succeeded"] * 3
    location = first.steps["c"].location
    assert open_files(location).read("out/text") == b"onetwothree"
    assert read_record(location).result == {"length": 11}
    assert "wrote three" in toy.store.log(first.steps["c"].address, first.steps["c"].attempt)
    assert statuses(toy.run()) == ["reused"] * 3
    keys = {step.name: step.key for step in first.plan.steps}
    toy.prefix = str(tmp_path / "local")
    assert {name: step.key for name, step in toy.plan().items()} == keys


def test_a_changed_first_step_that_writes_the_same_stops_there(toy):
    toy.run()
    outcome = toy.run("first=one", force=("a",))
    assert [step.status for step in outcome.steps.values()] == ["succeeded", "reused", "reused"]


def test_a_missing_object_is_made_again(toy, remote):
    outcome = toy.run()
    remote.rm_file(f"{outcome.steps['c'].location}/out/text".removeprefix("gs://"))
    assert toy.plan()["c"].action == "run" and toy.plan()["b"].action == "reuse"


def test_adopted_objects_are_known_by_checksum(toy, gcs, remote):
    raw = f"{gcs}/raw/data.txt"
    remote.pipe_file(raw, b"RAW")
    assert toy.run(f"raw={raw}").exit_code == 0
    assert open_files(toy.run(f"raw={raw}").steps["c"].location).read("out/text") == b"RAWonetwothree"
    remote.pipe_file(raw, b"RAX")  # the same size
    assert toy.plan(f"raw={raw}")["a"].action == "run"
    outcome = toy.run(f"raw={raw}")
    assert open_files(outcome.steps["c"].location).read("out/text") == b"RAXonetwothree"


def test_a_listing_of_adopted_objects_is_fresh(gcs, remote):
    for name in ("1.txt", "2.txt", "no.csv"):
        remote.pipe_file(f"{gcs}/raw/{name}", name.encode())
    before = look(adopt(f"{gcs}/raw/*.txt"))
    assert [line[0] for line in list_files(f"{gcs}/raw/*.txt")] == ["1.txt", "2.txt"]
    assert look(adopt(f"{gcs}/raw/*.txt/")).digest == before.digest
    remote.pipe_file(f"{gcs}/raw/3.txt", b"new")
    assert [line[0] for line in list_files(f"{gcs}/raw/*.txt")] == ["1.txt", "2.txt", "3.txt"]
    assert look(adopt(f"{gcs}/raw/*.txt")).digest != before.digest
    assert look(adopt(f"{gcs}/nothing/*.txt")).unreachable


def test_a_sibling_with_the_same_beginning_is_not_in_a_folder(gcs, remote):
    remote.pipe_file(f"{gcs}/raw/a", b"1")
    remote.pipe_file(f"{gcs}/raw2/a", b"1")
    assert list(open_files(f"{gcs}/raw").find("")) == ["a"]


def test_one_place_under_both_spellings(toy, gcs):
    assert statuses(toy.run()) == ["succeeded"] * 3
    toy.prefix = toy.prefix.rstrip("/").replace("gs://", "gcs://")
    recipe = toy.recipe()
    plan = make_plan(recipe.experiment("laptop", ()), toy.store, recipe=recipe.name, scale="laptop")
    assert [step.action for step in plan.steps] == ["reuse"] * 3
