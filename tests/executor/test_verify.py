"""Everything that was written is read again and compared with the records, and what is wrong is said."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from executor.cli import main
from executor.storage.places import open_files
from executor.storage.record import FileRecord, Record, digest_of_files
from executor.storage.store import Store
from executor.upkeep.verify import verify_artifact

RECIPE = """
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class TextConfig:
        text: str = "hello"
        raw: Input | None = None

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class TrainConfig:
        source: Input
        start: Input | None = None

    def write(config, output):
        put(f"{output}/train/a", config.text)
        put(f"{output}/train/b", config.text * 2)
        put(f"{output}/empty", "")

    def train(config, output):
        for at in (2, 4):
            put(f"{output}/checkpoints/{at}/state", f"state {at}")
            if at in current().milestones:
                current().publish(at, f"checkpoints/{at}")
        with open(f"{output}/big", "wb") as file:
            file.truncate((64 << 20) + 1)

    def end(config, output):
        put(f"{output}/end", "the end")

    @dataclasses.dataclass(frozen=True)
    class Settings(Scales):
        text: str = "hello"

    def build(settings: Settings):
        raw = adopt("raw", name="raw")
        fixed = external("fixed.txt", name="fixed",
                         digest="sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824")
        write_it = Step("write", write, TextConfig(text=settings.text, raw=raw))
        train_it = Step("hero/train", train, TrainConfig(source=write_it / "train", start=fixed), digest="opaque")
        return Experiment(targets=(
            Step("end", end, TrainConfig(source=train_it, start=train_it.at_step(2))),
        ))
    """


@pytest.fixture
def toy(project, monkeypatch):
    project.write("raw/a.txt", "raw", header=False)
    project.write("fixed.txt", "hello", header=False)
    project.write("toy_recipe.py", RECIPE)
    monkeypatch.setenv("MARINADE_PREFIX", project.prefix)
    outcome = project.run()
    assert outcome.exit_code == 0
    project.at = {name: Path(step.location) for name, step in outcome.steps.items()}
    return project


@pytest.fixture
def verify(toy, capsys):
    def type_in(*words, code):
        toy.forget()
        capsys.readouterr()
        assert main(["verify", *(words or ("toy_recipe.py",)), "--json"]) == code
        found = json.loads(capsys.readouterr().out)
        return found | {"problems": {a["name"]: a["problems"] for a in found["artifacts"] if a["problems"]}}

    return type_in


def test_what_is_whole_is_ok_and_what_could_not_be_read_is_said(verify):
    found = verify(code=0)
    assert found["ok"] and found["next"] == "" and found["absent"] == []
    artifacts = {artifact["name"]: artifact for artifact in found["artifacts"]}
    assert list(artifacts) == ["raw", "write", "fixed", "hero/train", "end"]
    assert artifacts["write"]["files"] == 3 and artifacts["write"]["size"] == 15 and artifacts["write"]["unread"] == 0
    assert artifacts["hero/train"]["unread"] == 1 and artifacts["hero/train"]["milestones"] == 1
    assert artifacts["raw"]["unread"] == 1 and artifacts["fixed"]["unread"] == 0


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda at: (at / "train/a").write_text("jello"), "train/a has sha256:"),
        (lambda at: (at / "train/a").write_text(""), "train/a has 0 bytes, 5 were written"),
        (lambda at: (at / "empty").unlink(), "empty is missing"),
        (lambda at: (at / "train/c").write_text("?"), "train/c is not in the record"),
        (lambda at: shutil.rmtree(at), "train/a is missing"),
    ],
    ids=["corrupted", "emptied", "missing", "more than written", "all gone"],
)
def test_damage_is_found_in_one_file(toy, verify, damage, says):
    damage(toy.at["write"])
    found = verify(code=1)
    assert list(found["problems"]) == ["write"] and any(says in problem for problem in found["problems"]["write"])
    assert found["next"] == "marinade run toy_recipe.py --force write"
    address = str(toy.at["write"].relative_to(toy.prefix).parent)
    assert verify(address, code=1)["problems"] == found["problems"]
    assert verify(str(toy.at["write"]), code=1)["next"] == found["next"]


def test_the_command_it_names_makes_it_whole(toy, verify):
    (toy.at["write"] / "train/a").write_text("jello")
    assert verify(code=1)["next"].endswith("--force write")
    assert toy.run(force=("write",)).exit_code == 0
    assert verify(code=0)["ok"]


def test_opaque_steps_small_files_and_milestones(toy, verify):
    at = toy.at["hero/train"]
    (at / "checkpoints/2/state").write_text("STATE 2")
    found = verify(code=1)["problems"]["hero/train"]
    assert len(found) == 1 and found[0].startswith("checkpoints/2/state has sha256:")
    (at / "checkpoints/2/state").unlink()
    assert verify(code=1)["problems"]["hero/train"] == [
        "checkpoints/2/state is missing",
        "milestone 2: checkpoints/2/state is missing",
    ]
    (at / "checkpoints/2/state").write_text("state 2")
    with (at / "big").open("ab") as file:
        file.truncate(3)
    assert verify(code=1)["problems"]["hero/train"] == [f"big has 3 bytes, {(64 << 20) + 1} were written"]


def test_a_milestone_without_its_record(toy, verify):
    (toy.at["hero/train"].parent / ".step/milestones/2.json").unlink()
    found = verify(str(toy.at["hero/train"]), code=1)
    assert found["problems"]["hero/train"] == ["milestone 2 has no record"]


def test_a_record_that_was_edited(toy, verify):
    path = toy.at["write"].parent / ".step/record.json"
    record = json.loads(path.read_text())
    (file,) = [file for file in record["files"] if file["path"] == "train/a"]
    (toy.at["write"] / "train/a").write_text("jello")
    file["digest"] = open_files(str(toy.at["write"])).sha256("train/a")
    path.write_text(json.dumps(record))
    address = str(toy.at["write"].relative_to(toy.prefix).parent)
    assert "its record has digest" in verify(address, code=1)["problems"]["write"][0]


def test_a_gap_in_the_lineage(toy, verify):
    shutil.rmtree(toy.at["write"].parent)
    found = verify(str(toy.at["hero/train"]), code=1)
    assert "its input write has no record" in found["problems"]["hero/train"][0]
    found = verify(str(toy.at["end"]), code=1)
    assert "its input write of hero/train behind it has no record" in found["problems"]["end"][0]


def test_raw_inputs(toy, verify):
    toy.write("fixed.txt", "jello", header=False)
    found = verify(code=1)
    assert "declared was sha256:2cf24" in found["problems"]["fixed"][0]
    (toy.root / "fixed.txt").unlink()
    assert "cannot be reached" in verify(code=1)["problems"]["fixed"][0]


def test_steps_without_an_artifact_are_named_and_no_damage(toy, verify):
    toy.write("toy_recipe.py", RECIPE.replace('"the end"', '"the very end"'))
    found = verify(code=0)
    assert found["absent"] == ["end"] and len(found["artifacts"]) == 4


def test_the_text_has_a_line_each_and_what_to_type(toy, capsys):
    (toy.at["write"] / "train/a").write_text("jello")
    toy.forget()
    assert main(["verify", "toy_recipe.py"]) == 1
    out = capsys.readouterr().out
    assert "DAMAGED  write  3 files, 15 B" in out and "ok       end  1 file, 7 B" in out
    assert "4 of 5 ok" in out and "marinade run toy_recipe.py --force write" in out
    assert main(["verify", "nothing-here"]) == 2
    assert "neither a path nor an artifact" in capsys.readouterr().err


def record_of(store: Store, files: dict[str, bytes], digest) -> Record:
    """An artifact whose files are known by `digest(path)`."""
    for path, data in files.items():
        store.files.write(f"a-x/1/{path}", data)
    kept = tuple(FileRecord(path=path, size=len(data), digest=digest(path)) for path, data in files.items())
    return Record(
        name="a", address="a-x", attempt="1", status="succeeded", recipe_key="r", content_key="c" * 64, payload={},
        started="", files=kept, digest=digest_of_files(kept) or "",
    )  # fmt: skip


def test_an_object_stores_checksum_is_asked_for_again(monkeypatch):
    store = Store("memory://verify-marks")
    marks = {"x": "crc32c:AAAA"}
    find = type(store.files).find

    def with_marks(self, folder):
        return {path: dataclasses.replace(info, mark=marks[path]) for path, info in find(self, folder).items()}

    monkeypatch.setattr(type(store.files), "find", with_marks)
    record = record_of(store, {"x": b"one"}, lambda path: "crc32c:AAAA")
    assert verify_artifact(store, record, (), lambda *_: None).problems == ()
    marks["x"] = "crc32c:BBBB"
    (problem,) = verify_artifact(store, record, (), lambda *_: None).problems
    assert problem == "x has crc32c:BBBB, crc32c:AAAA was written"


def test_an_artifact_that_was_copied_off_an_object_store(tmp_path):
    store = Store(str(tmp_path))
    record = record_of(store, {"x": b"hello"}, lambda path: "md5:XUFAKrxLKna5cZ2REBfFkg==")
    assert verify_artifact(store, record, (), lambda *_: None).problems == ()
    store.files.write("a-x/1/x", b"jello")
    assert verify_artifact(store, record, (), lambda *_: None).problems
