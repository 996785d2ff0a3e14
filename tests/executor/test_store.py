# ruff: noqa: E501 - recipes and tables as text
"""One prefix is one place; files appear whole; what is not finished does not exist."""

import os

import pytest

from executor.files import LocalFiles, normal_url, open_files
from executor.record import FileRecord, Record, digest_of_files
from executor.store import IndexEntry, Store, address_of


def record(**changes) -> Record:
    values = {
        "name": "a", "address": "a-x", "attempt": "1", "status": "succeeded", "recipe_key": "r", "content_key": "c" * 64,
        "payload": {}, "started": "",
    } | changes  # fmt: skip
    return Record(**values)


@pytest.mark.parametrize(
    ("first", "second"),
    [("gs://b/x", "gs://b/x/"), ("/tmp/x", "/tmp/x/"), ("file:///tmp/x", "/tmp/x"), ("/tmp/a/../x", "/tmp/x")],
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


@pytest.mark.parametrize("root", ["{tmp}", "memory://store-test"])
def test_files(root, tmp_path):
    files = open_files(root.format(tmp=tmp_path))
    assert files.read("a/b") is None and files.names("a") == [] and files.find("a") == {}
    files.write("a/b", b"one")
    files.write("a/b", b"two2")
    files.write("a/c/d", b"three")
    assert files.read("a/b") == b"two2"
    assert {path: info.size for path, info in files.find("a").items()} == {"b": 4, "c/d": 5}
    assert files.names("a") == ["b", "c"]
    assert files.read_many(["a/b", "nothing"]) == {"a/b": b"two2"}
    assert files.create("new", b"1") and not files.create("new", b"2")
    assert files.read("new") == b"1"


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
    store.enter_content(IndexEntry(content_key=key, address=address))
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
        assert store.lookup(kind, [key]) == {}
    assert store.find_content("a", key) is not None
