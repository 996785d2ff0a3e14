# ruff: noqa: E501 - recipes and tables as text
"""One prefix is one place; files appear whole; what is not finished does not exist."""

import os

import pytest

from executor.storage.addresses import address_of
from executor.storage.files import LocalFiles
from executor.storage.index import IndexEntry
from executor.storage.places import normal_url
from executor.storage.record import FileRecord, MilestoneRecord, Record, RunRecord, digest_of_files
from executor.storage.source import Source
from executor.storage.store import Store


def record(**changes) -> Record:
    values = {
        "name": "a", "address": "a-x", "attempt": "1", "status": "succeeded", "recipe_key": "r", "content_key": "c" * 64,
        "payload": {}, "started": "",
    } | changes  # fmt: skip
    return Record(**values)


def milestone(**changes) -> MilestoneRecord:
    values = {
        "at": 5, "name": "a", "address": "a-x", "attempt": "1", "part": "", "recipe_key": "r", "content_key": "c",
        "digest": "d", "published": "",
    } | changes  # fmt: skip
    return MilestoneRecord(**values)


def run(run_id: str, recipe: str = "r.py", **changes) -> RunRecord:
    return RunRecord(id=f"{run_id}-r_laptop", recipe=recipe, scale="laptop", started="", **changes)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("gs://b/x", "gs://b/x/"),
        ("gcs://b/x", "gs://b/x"),
        ("/tmp/x", "/tmp/x/"),
        ("file:///tmp/x", "/tmp/x"),
        ("local:///tmp/x", "/tmp/x"),
        ("/tmp/a/../x", "/tmp/x"),
    ],
)
def test_one_place_has_one_spelling(first, second):
    assert normal_url(first) == normal_url(second)


def test_a_relative_prefix_is_made_absolute_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = Store("dir with space:é")
    assert store.prefix == str(tmp_path / "dir with space:é")
    store.commit(record())
    monkeypatch.chdir("/")
    assert store.record("a-x") == record()


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    files = LocalFiles(str(tmp_path))
    files.write("a", b"old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        files.write("a", b"new")
    assert files.read("a") == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_only_a_finished_record_of_that_key_is_found(tmp_path):
    store = Store(str(tmp_path))
    key = "ab" * 32
    address = address_of("a", key)
    store.write_attempt(record(address=address, content_key=key, status="failed"))
    assert store.find_content("a", key) is None
    store.index.enter_content(IndexEntry(content_key=key, address=address))
    store.commit(record(address=address, content_key=key))
    found = store.find_content("another name", key)
    assert found is not None and found.address == address
    store.files.write(f".index/content/{key}.json", b'{"address": "gone", "content_key": "x"}')
    assert store.find_content("a", key) is None


def test_part_digests():
    files = tuple(FileRecord(path=path, size=1, digest=path) for path in ("train/a", "train/b", "train2", "valid/a"))
    assert digest_of_files(files, "train") != digest_of_files(files, "valid")
    assert digest_of_files(files, "train") == digest_of_files(files[:2], "train")
    assert digest_of_files(files, "tra") is None


def test_missing_and_resized_files_are_noticed(tmp_path):
    store = Store(str(tmp_path))
    found = record(files=(FileRecord(path="x", size=3, digest="d"),))
    assert "missing" in store.absent(found)
    store.files.write("a-x/1/x", b"12")
    assert "2 bytes" in store.absent(found)
    store.files.write("a-x/1/x", b"123")
    assert store.absent(found) == ""


@pytest.mark.parametrize("damaged", [b"", b"{", b"\xff", b"[]", b"{}", b'{"address": 1, "content_key": "c"}'])
def test_a_damaged_index_entry_counts_as_absent(tmp_path, damaged):
    store = Store(str(tmp_path))
    key = "ab" * 32
    store.commit(record(address=address_of("a", key), content_key=key, recipe_key=key))
    for kind in ("recipe", "content"):
        store.files.write(f".index/{kind}/{key}.json", damaged)
        assert store.index.lookup(kind, [key]) == {}
    assert store.find_content("a", key) is not None


@pytest.mark.parametrize("damaged", [b"", b"{", b"\xff", b"[]", b"{}", b'{"inputs": [1]}'])
def test_a_damaged_record_counts_as_absent_and_is_named(tmp_path, damaged):
    store = Store(str(tmp_path))
    store.write_attempt(record())
    store.commit(record())
    store.write_attempt(record(attempt="2", status="failed"))
    store.files.write("a-x/.step/record.json", damaged)
    store.files.write("a-x/.step/attempts/2/record.json", damaged)
    assert store.record("a-x") is None and store.attempt("a-x", "2") is None
    assert [found.attempt for found in store.attempts("a-x")] == ["1"]
    assert store.damage("a-x").startswith("a-x/.step/record.json cannot be read (")
    assert "a-x/.step/attempts/2/record.json" in store.unreadable
    store.files.write("a-x/.step/attempts/1/source.json", b"{")
    assert store.source("a-x", "1") == Source()


def test_a_damaged_milestone_counts_as_absent_and_is_published_again(tmp_path):
    store = Store(str(tmp_path))
    assert store.publish(milestone(attempt="1")) and not store.publish(milestone(attempt="2"))
    store.files.write("a-x/.step/milestones/5.json", b"{")
    assert store.milestones("a-x") == {}
    assert store.publish(milestone(attempt="2"))
    assert store.milestones("a-x")[5].attempt == "2"


def test_the_last_run_is_the_one_that_began_last_whatever_its_clock_said(tmp_path):
    store = Store(str(tmp_path))
    store.write_run(run("20261201T120000000aaaaaa"))
    store.write_run(run("20261201T110000000bbbbbb"))  # begun later, on a host whose clock is an hour behind
    store.write_run(run("20261201T120000000aaaaaa", ended="x"))
    assert store.last_run("r.py", "laptop").id.startswith("20261201T110000000bbbbbb")
    assert store.last_run("r.py", "full") is None
    store.files.write(".runs/20261201T110000000bbbbbb-r_laptop.json", b"{")
    assert store.last_run("r.py", "laptop").id.startswith("20261201T120000000aaaaaa"), "the next by name"


def test_the_last_run_is_found_without_reading_the_others(tmp_path, monkeypatch):
    store = Store(str(tmp_path))
    for number in range(8):
        store.write_run(run(f"{number:03d}", recipe="other/r.py"))
    store.write_run(run("000x"))
    for number in range(8, 16):
        store.write_run(run(f"{number:03d}", recipe="other/r.py"))
    read = []
    before = store.files.read
    monkeypatch.setattr(store.files, "read", lambda path: read.append(path) or before(path))
    monkeypatch.setattr(store.files, "names", lambda folder: pytest.fail(f"{folder} was listed"))
    assert store.last_run("r.py", "laptop").id == "000x-r_laptop"
    assert len(read) == 2
