"""Nothing that is needed is deleted; what is deleted goes as a whole; a rerun works."""

import contextlib
import json
import os
import shutil
import textwrap
import time
from pathlib import Path

import pytest

from executor.cli import main
from executor.errors import StoreError
from executor.history.lineage import trace
from executor.planning.planner import survey
from executor.storage.files import LocalFiles
from executor.storage.inventory import addresses, inventory
from executor.storage.lease import Lease
from executor.storage.locate import read_record
from executor.storage.places import open_files
from executor.storage.store import Store
from executor.upkeep.deleting import delete
from executor.upkeep.gc import collect

RECIPE = """
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class TextConfig:
        text: str = "hello"

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class TrainConfig:
        source: Input
        start: Input | None = None
        rate: float = 1.0
        advice: Input | None = execution(None)

    def write(config, output):
        put(f"{output}/text", config.text)

    def train(config, output):
        for at in (1, 2):
            put(f"{output}/checkpoints/{at}", f"{at} {config.rate}")
            if at in current().milestones:
                current().publish(at, f"checkpoints/{at}")
        if os.path.exists("fail"):
            raise ValueError("no good")
        put(f"{output}/end", f"the end {config.rate}")

    @dataclasses.dataclass(frozen=True)
    class Settings(Scales):
        text: str = "hello"
        rate: float = 1.0
        last: float = 1.0

    def build(settings: Settings):
        write_it = Step("write", write, TextConfig(text=settings.text))
        advice = Step("advice", write, TextConfig(text="advice"))
        train_it = Step("hero/train", train, TrainConfig(source=write_it, rate=settings.rate, advice=advice))
        last = Step("last", train, TrainConfig(source=train_it, start=train_it.at_step(1), rate=settings.last))
        return Experiment(targets=(last,))
    """
DAY = 86_400.0


@pytest.fixture
def toy(project, monkeypatch):
    monkeypatch.setenv("MARINADE_PREFIX", project.prefix)
    project.write("toy_recipe.py", RECIPE)
    assert project.run().exit_code == 0
    return project


def look(project, *overrides, days=40.0, keep=30.0):
    """What gc finds `days` from now, the recipe being as it is with `overrides`."""
    recipe = project.recipe()
    prepared = survey(recipe.experiment("laptop", overrides), project.store, recipe=recipe.name, scale="laptop")
    return collect(project.store, [prepared], keep_days=keep, now=time.time() + days * DAY)


def names(collection):
    return sorted(found.name + (":attempt" if found.attempt else "") for found in collection.garbage)


@contextlib.contextmanager
def leased(store, content_key):
    lease = Lease.take(store, content_key, name="last", attempt="1")
    assert isinstance(lease, Lease)
    try:
        yield
    finally:
        lease.release()


def everything(prefix):
    return {path: path.stat().st_mtime_ns for path in Path(prefix).rglob("*") if path.is_file()}


def fail(project, *overrides, **options):
    Path("fail").touch()
    assert project.run(*overrides, **options).exit_code == 1
    Path("fail").unlink()


def test_what_the_recipe_reaches_is_kept_for_ever(toy):
    found = look(toy, days=4000)
    assert found.garbage == () and set(found.kept.values()) == {"recipe"} and len(found.kept) == 4


def test_what_no_recipe_and_no_recent_run_needs_is_listed_and_stays_in_a_dry_run(toy):
    before = everything(toy.prefix)
    assert names(look(toy, "rate=2", days=29)) == []
    found = look(toy, "rate=2")
    assert names(found) == ["hero/train", "last"]
    (train, _) = found.garbage
    assert "no given recipe reaches it; unused for 40 days" in train.why and train.recipe == "toy_recipe.py"
    assert train.size == sum(path.stat().st_size for path in before if f"/{train.address}/" in str(path))
    assert everything(toy.prefix) == before


def test_a_recent_run_keeps_what_it_named(toy):
    old = toy.store.last_run("toy_recipe.py", "laptop")
    path = Path(toy.prefix, ".runs", f"{old.id}.json")
    run = json.loads(path.read_text())
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 35 * DAY))
    path.write_text(json.dumps(run | {"ended": stamp}))
    found = look(toy, "rate=2")
    assert names(found) == [] and "run" in found.kept.values()
    assert names(look(toy, "rate=2", days=66)) == ["hero/train", "last"]
    path.write_text(json.dumps(run | {"ended": stamp, "outcome": {}}))
    assert names(look(toy, "rate=2")) == [], "the content keys that it planned"


def test_a_run_that_goes_on_keeps_what_it_named(toy):
    path = Path(toy.prefix, ".runs", f"{toy.store.last_run('toy_recipe.py', 'laptop').id}.json")
    run = json.loads(path.read_text())
    path.write_text(json.dumps(run | {"ended": ""}))
    assert names(look(toy, "rate=2")) == [], "its process is this one"
    path.write_text(json.dumps(run | {"ended": "", "host": "elsewhere"}))
    assert names(look(toy, "rate=2")) == ["hero/train", "last"]
    key = toy.plan()["last"].content_key
    with leased(toy.store, key):
        assert names(look(toy, "rate=2")) == []


def test_what_is_leased_is_kept_and_its_lineage(toy):
    with leased(toy.store, toy.plan()["last"].content_key):
        found = look(toy, "rate=2", "text=other", days=4000)
        assert names(found) == []
        assert {found.kept[a] for a in found.kept if a.startswith(("hero/train", "write", "last"))} >= {
            "lease",
            "lineage",
        }
    assert "last" in names(look(toy, "rate=2", "text=other", days=4000))


def test_everything_behind_a_kept_artifact_is_kept(toy):
    old = toy.plan()["write"]
    toy.write("toy_recipe.py", RECIPE.replace('/text", config.text)', '/text", "" + config.text)'))
    outcome = toy.run()
    assert outcome.steps["write"].status == "succeeded" and outcome.steps["hero/train"].status == "reused"
    assert outcome.steps["write"].address != old.address
    found = look(toy)
    assert found.garbage == () and found.kept[old.address] == "lineage"
    lineage = trace("x", read_record(outcome.steps["last"].location), read_record)
    assert old.location in [i.location for item in lineage.ancestors for i in item.record.inputs]


def test_an_attempt_that_was_superseded_after_it_was_read_is_kept(toy):
    before = toy.plan()["write"].location
    outcome = toy.run(force=("write", "advice"))
    assert outcome.steps["hero/train"].status == "reused" and outcome.steps["write"].location != before
    assert look(toy).garbage == ()
    assert toy.run(force=("hero/train", "last")).exit_code == 0
    assert names(look(toy)) == ["last:attempt"], "records of earlier attempts keep their lineage too"


def test_an_input_is_found_wherever_the_store_lay(toy, tmp_path):
    shutil.move(toy.prefix, tmp_path / "moved")
    toy.prefix = str(tmp_path / "moved")
    kept = look(toy, "rate=1", days=4000).kept
    record = next(found.record for a, found in inventory(toy.store).items() if a.startswith("last-"))
    toy.write("toy_recipe.py", RECIPE.replace("targets=(last,)", 'targets=(Step("last", write, TextConfig()),)'))
    with leased(toy.store, record.content_key):
        assert set(look(toy, days=4000).kept) == set(kept)


def test_attempts_that_nothing_can_go_on_from_lose_their_data_and_keep_their_logs(toy):
    fail(toy, "rate=3")
    unfinished = toy.plan("rate=3")["hero/train"].address
    assert unfinished in look(toy, "rate=3").kept, "an unfinished attempt would be resumed"
    assert toy.run("rate=3").exit_code == 0
    fail(toy, "rate=3", force=("hero/train",))
    outcome = toy.run("rate=3", force=("hero/train",))
    assert outcome.exit_code == 0
    assert names(look(toy, "rate=3", days=20)) == []
    found = look(toy, "rate=3")
    attempts = [garbage for garbage in found.garbage if garbage.attempt]
    address = outcome.steps["hero/train"].address
    records = {record.attempt: record for record in toy.store.attempts(address)}
    assert {garbage.address for garbage in attempts} == {address} and len(records) == 4
    assert all("counts" in garbage.why for garbage in attempts)
    published = {milestone.attempt for milestone in toy.store.milestones(address).values()}
    counting = toy.store.record(address).attempt
    read = {i.location.split("/")[-1] for i in toy.store.record(outcome.steps["last"].address).inputs}
    gone = {garbage.attempt for garbage in attempts}
    assert gone and not gone & (published | {counting} | read)
    assert not any(deleted.skipped for deleted in delete(toy.store, found))
    assert not any(Path(toy.prefix, address, attempt).exists() for attempt in gone)
    assert all(toy.store.attempt(address, attempt) == records[attempt] for attempt in records)
    assert all(Path(toy.prefix, address, ".step/attempts", attempt, "log.txt").exists() for attempt in gone)
    assert toy.run("rate=3").steps["last"].status == "reused"


def test_a_milestones_attempt_is_kept_though_nobody_reads_it_now(toy):
    fail(toy, "rate=3")
    outcome = toy.run("rate=3")
    address = outcome.steps["hero/train"].address
    (milestone,) = toy.store.milestones(address).values()
    assert milestone.attempt != toy.store.record(address).attempt
    toy.write("toy_recipe.py", RECIPE.replace("targets=(last,)", "targets=(train_it,)"))
    found = look(toy, "rate=3")
    assert "last" in names(found) and found.kept[address] == "recipe"
    assert [garbage for garbage in found.garbage if garbage.attempt] == []


def test_an_attempt_without_an_end_is_as_old_as_the_last_beat_of_its_lease(toy):
    record = toy.store.record(toy.plan()["hero/train"].address)
    for path in Path(toy.prefix, record.address, ".step").rglob("record.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"status": "running", "ended": ""}))
    Path(toy.prefix, record.address, ".step/record.json").unlink()
    shutil.rmtree(Path(toy.prefix, record.address, ".step/milestones"))
    shutil.rmtree(Path(toy.prefix, ".runs"))
    assert "hero/train" in names(look(toy, "rate=2"))
    for path in Path(toy.prefix, ".leases", record.content_key).iterdir():
        os.utime(path, (0, time.time() + 20 * DAY))
    assert "hero/train" not in names(look(toy, "rate=2"))


def test_data_record_and_index_go_together_and_a_rerun_works(toy, capsys):
    """dvc#4634, dvc#9420."""
    gone = {name: step for name, step in toy.plan().items() if name in ("hero/train", "last")}
    shutil.rmtree(Path(toy.prefix, ".runs"))
    toy.forget()
    assert main(["gc", "toy_recipe.py", "--set", "rate=2", "--keep", "0", "--delete", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(garbage["name"], garbage["deleted"], garbage["skipped"]) for garbage in found["garbage"]] == [
        ("hero/train", True, ""),
        ("last", True, ""),
    ]
    assert set(found["kept"].values()) == {"recipe"} and found["bytes"] > 0
    for step in gone.values():
        assert not Path(toy.prefix, step.address).exists()
        assert not toy.store.index.lookup("recipe", [step.key]) and not toy.store.index.lookup(
            "content", [step.content_key]
        )
    outcome = toy.run()
    assert {name: step.status for name, step in outcome.steps.items()} == {
        "write": "reused",
        "advice": "reused",
        "hero/train": "succeeded",
        "last": "succeeded",
    }


def test_a_deletion_that_is_cut_short_leaves_no_artifact_and_is_ended_by_the_next(toy, monkeypatch):
    found = look(toy, "rate=2")
    (address, *_) = [garbage.address for garbage in found.garbage]
    whole, seen = LocalFiles.delete, []

    def cut(self, path):
        seen.append(path)
        if len(seen) > 1 and path.endswith(inventory_before[address].folders[0]):
            raise KeyboardInterrupt
        whole(self, path)

    inventory_before = inventory(toy.store)
    monkeypatch.setattr(LocalFiles, "delete", cut)
    with pytest.raises(KeyboardInterrupt):
        list(delete(toy.store, found))
    monkeypatch.undo()
    assert seen[0] == f"{address}/.step/record.json"
    assert Path(toy.prefix, address).exists() and toy.store.record(address) is None
    assert toy.plan()["hero/train"].action != "reuse"
    again = look(toy, "rate=2")
    assert names(again) == ["hero/train", "last"]
    assert not any(deleted.skipped for deleted in delete(toy.store, again))
    assert not Path(toy.prefix, address).exists()
    monkeypatch.chdir(toy.root)
    assert toy.run().exit_code == 0


def test_what_somebody_began_to_use_meanwhile_is_skipped(toy):
    found = look(toy, "rate=2")
    with leased(toy.store, toy.plan()["last"].content_key):
        fates = {deleted.garbage.name: deleted.skipped for deleted in delete(toy.store, found)}
    assert fates == {"hero/train": "", "last": "leased by another process"}
    assert toy.run().exit_code == 0
    fates = {deleted.garbage.name: deleted.skipped for deleted in delete(toy.store, found)}
    assert "a run started meanwhile" in fates["last"] and "a run started meanwhile" in fates["hero/train"]
    found = look(toy, "rate=2")
    record = toy.store.record(found.garbage[0].address)
    toy.store.write_attempt(record)
    path = Path(toy.prefix, record.address, ".step/attempts/20990101T000000/record.json")
    path.parent.mkdir()
    path.write_text(record.to_json())
    assert next(iter(delete(toy.store, found))).skipped.startswith("it changed meanwhile")
    assert toy.store.record(record.address) == record


def test_records_that_cannot_be_read_stop_everything(toy):
    (path,) = Path(toy.prefix, ".runs").iterdir()
    kept = path.read_text()
    path.write_text("{")
    with pytest.raises(StoreError, match=r"cannot be read .*move it away"):
        look(toy)
    path.write_text(kept)
    (record,) = Path(toy.prefix).glob("last-*/.step/record.json")
    record.write_text("{")
    with pytest.raises(StoreError, match="what it needs is not known"):
        look(toy)


def test_folders_that_no_record_explains_are_left_alone(toy, capsys):
    stray = Path(toy.prefix, "x-aaaaaaaaaaaaaaaa", ".step")
    stray.mkdir(parents=True)
    found = look(toy, days=4000)
    assert found.unknown == ("x-aaaaaaaaaaaaaaaa",) and found.garbage == ()
    toy.forget()
    assert main(["gc", "toy_recipe.py"]) == 0
    assert "left alone, no record says what they are" in capsys.readouterr().out


def test_several_recipes_and_scales(toy, capsys):
    toy.write("other_recipe.py", RECIPE.replace("rate: float = 1.0\n        last", "rate: float = 2.0\n        last"))
    assert toy.run(name="other_recipe.py").exit_code == 0
    toy.write("laptop_recipe.py", RECIPE.replace("class Settings(Scales):", "class Settings(Laptop):").replace(
        "    @dataclasses.dataclass(frozen=True)\n    class Settings", """
    class Laptop:
        @classmethod
        def at_scale(cls, scale):
            if scale != "laptop":
                raise ValueError("only laptop")
            return cls()

    @dataclasses.dataclass(frozen=True)
    class Settings"""))  # fmt: skip
    shutil.rmtree(Path(toy.prefix, ".runs"))
    flags = ("--keep", "0", "--json")
    toy.forget()
    assert main(["gc", "toy_recipe.py", *flags]) == 0
    assert [found["name"] for found in json.loads(capsys.readouterr().out)["garbage"]] == [
        "advice",
        "hero/train",
        "last",
        "write",
    ]
    recipes = ["toy_recipe.py", "other_recipe.py", "laptop_recipe.py"]
    assert main(["gc", *recipes, "--scale", "laptop", "--scale", "full", *flags]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["garbage"] == [] and "only laptop" in captured.err
    assert main(["gc", "laptop_recipe.py", "--scale", "full"]) == 2
    assert main(["gc", "toy_recipe.py", "other_recipe.py", "--set", "nothing=1"]) == 2


@pytest.mark.parametrize("root", ["{tmp}", "memory://gc-files"])
def test_files_and_folders_are_deleted(root, tmp_path):
    files = open_files(root.format(tmp=tmp_path))
    for path in ("a/b", "a/c/d", "e"):
        files.write(path, b"x")
    written = files.modified("a/b")
    assert written is not None and abs(written - time.time()) < 600 and files.modified("nothing") is None
    files.delete("a/b")
    assert files.read("a/b") is None and files.read("a/c/d") == b"x"
    files.delete("a")
    assert files.find("a") == {} and files.read("e") == b"x"
    files.delete("a")
    files.delete("nothing")


def test_links_in_an_artifact_are_deleted_not_followed(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    files = LocalFiles(str(tmp_path / "store"))
    files.write("a/b", b"x")
    (tmp_path / "store/a/link").symlink_to(outside)
    files.delete("a/link")
    files.write("a/b", b"x")
    (tmp_path / "store/a/link").symlink_to(outside)
    files.delete("a")
    assert (outside / "kept").exists() and not (tmp_path / "store/a").exists()


PLACE = """
def place(output, path, text):
    import fsspec
    with fsspec.open(f"{output}/{path}", "w") as file:
        file.write(text)
"""


def test_on_an_object_store(toy):
    toy.prefix = "memory://gc-toy"
    remote = RECIPE.replace('put(f"{output}/', 'place(output, f"')
    toy.write("toy_recipe.py", PLACE + textwrap.dedent(remote))
    assert toy.run().exit_code == 0
    store = Store(toy.prefix)
    assert len(addresses(store)) == 4
    found = look(toy, "rate=2")
    assert names(found) == ["hero/train", "last"]
    assert not any(deleted.skipped for deleted in delete(store, found))
    assert len(addresses(store)) == 2
    assert toy.run().exit_code == 0
