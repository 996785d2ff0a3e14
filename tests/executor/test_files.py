"""One contract for every kind of store; what a store does wrong costs time or is said, and never changes a result."""

import errno
import os
import threading

import pytest

from executor.errors import StoreError
from executor.storage.places import open_files
from executor.storage.store import Store


@pytest.fixture(params=["local", "memory", "gs"])
def files(request, tmp_path):
    if request.param == "local":
        return open_files(str(tmp_path / "dir with space:é"))
    if request.param == "memory":
        return open_files(f"memory://{tmp_path.name}/dir with space:é")
    return open_files(f"{request.getfixturevalue('gcs')}/dir with space:é")


def test_read_write_and_list(files):
    assert files.read("a/b") is None and files.names("a") == [] and files.find("a") == {}
    files.write("a/b", b"one")
    files.write("a/b", b"two2")
    files.write("a/c/d", b"three", checked=True)
    files.write("ab", b"beside, not in a")
    assert files.read("a/b") == b"two2"
    assert files.read("a") is None
    assert {path: info.size for path, info in files.find("a").items()} == {"b": 4, "c/d": 5}
    assert {path: info.size for path, info in files.find("a/b").items()} == {"": 4}
    assert files.names("a") == ["b", "c"]
    assert files.read_many(["a/b", "nothing"]) == {"a/b": b"two2"}
    assert b"".join(files.read_all("a/c/d")) == b"three"


def test_create_has_one_winner_of_16_threads(files):
    start = threading.Barrier(16)

    def create(body: str) -> bool:
        start.wait()
        return files.create("folder/new", body.encode())

    won = {}
    threads = [
        threading.Thread(target=lambda body=str(n): won.__setitem__(body, create(body)), daemon=True) for n in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [body for body, is_ours in won.items() if is_ours]
    assert len(won) == 16 and len(winners) == 1
    assert files.read("folder/new") == winners[0].encode()
    assert not files.create("folder/new", b"later")


def test_create_has_one_winner_of_two_processes(project):
    code = """
        import sys
        from executor.storage.places import open_files
        files = open_files(sys.argv[1])
        files.write(sys.argv[2], b"ready")
        while len(files.read_many(["1", "2"])) < 2: pass
        for number in range(100):
            if files.create(f"leases/{number:03d}", sys.argv[2].encode()):
                print(number)
    """
    folder = str(project.root / "shared")
    processes = [project.python(code, folder, which) for which in ("1", "2")]
    won = [set(process.communicate(timeout=60)[0].split()) for process in processes]
    assert len(won[0]) + len(won[1]) == len(won[0] | won[1]) == 100
    written = open_files(folder).read_many(f"leases/{number:03d}" for number in range(100))
    assert sum(body == b"1" for body in written.values()) == len(won[0])


def test_a_store_that_can_create_only_what_is_absent_passes_the_check(files):
    files.check_exclusive()
    files.check_exclusive()


def test_digest_tells_content_and_not_place(files):
    files.write("a/x", b"same")
    files.write("b/y", b"same")
    files.write("b/z", b"othe")
    found = {path: files.digest(path, info) for path, info in files.find("").items()}
    assert found["a/x"] == found["b/y"] != found["b/z"]


def test_a_root_stands_for_a_file_a_folder_or_a_glob(files):
    for name in ("raw/1.jsonl", "raw/2.jsonl", "raw/deep/3.jsonl", "raw/note.txt"):
        files.write(name, name.encode())

    def expanded(part: str) -> list[str]:
        return sorted(open_files(f"{files.root}/{part}").expand())

    assert expanded("raw") == ["1.jsonl", "2.jsonl", "deep/3.jsonl", "note.txt"]
    assert expanded("raw/1.jsonl") == [""]
    assert expanded("raw/*.jsonl") == ["1.jsonl", "2.jsonl"]
    assert expanded("raw/**/*.jsonl")[-1] == "deep/3.jsonl"
    assert expanded("raw/*.parquet") == [] and expanded("nothing") == []


def test_blocks_of_a_large_file(files, monkeypatch):
    monkeypatch.setattr("executor.storage.remote._BLOCK", 1000)
    data = os.urandom(2500)
    files.write("large", data)
    files.write("empty", b"")
    assert b"".join(files.read_all("large")) == data
    assert b"".join(files.read_all("empty")) == b""


# What a store does wrong


@pytest.mark.parametrize("error", ["429", "500", "503", "ConnectionError"])
def test_what_passes_is_tried_again(faults, error):
    files = open_files(faults.url)
    faults.set({"kind": "error", "error": error, "times": 3})
    assert files.create("a", b"1")
    faults.set({"kind": "error", "error": error, "times": 3})
    files.write("a", b"2")
    faults.set({"kind": "error", "error": error, "times": 3})
    assert files.read("a") == b"2"
    faults.set({"kind": "error", "error": error, "times": 3})
    assert files.names("") == ["a"] and list(files.find("")) == ["a"]


def test_what_does_not_pass_is_said_with_the_url(faults):
    files = open_files(faults.url)
    faults.set({"kind": "error", "error": "503"})
    with pytest.raises(ConnectionError, match=r"store/a/b: status 503"):
        files.write("a/b", b"1")
    faults.set({"kind": "error", "error": "400"})
    with pytest.raises(OSError, match=r"store/a/b: HttpError: status 400"):
        files.read("a/b")
    assert len([call for call in faults.filesystem.calls if call[0] == "read"]) == 1, "400 is not tried again"


def test_a_create_whose_answer_was_lost_is_ours(faults):
    files = open_files(faults.url)
    faults.set({"kind": "lost", "op": "create", "times": 1})
    assert files.create("lease", b"mine")
    assert faults.struck == 1
    faults.set({"kind": "lost", "op": "create", "times": 1})
    assert not files.create("lease", b"theirs")
    assert files.read("lease") == b"mine"


def test_a_call_that_never_answers_is_given_up_and_tried_again(faults):
    files = open_files(faults.url)
    files.write("a", b"1")
    faults.set({"kind": "hang", "seconds": 5, "op": "read", "times": 1})
    assert files.read("a") == b"1"
    faults.set({"kind": "hang", "seconds": 5, "op": "read"})
    with pytest.raises(TimeoutError, match=r"no answer within 0\.5 s"):
        files.read("a")


def test_a_checked_write_is_whole_or_said(faults):
    files = open_files(faults.url)
    faults.set({"kind": "truncate", "op": "write", "times": 2})
    files.write("record", b"0123456789", checked=True)
    assert files.read("record") == b"0123456789"
    faults.set({"kind": "truncate", "op": "create", "times": 1})
    assert files.create("milestone", b"0123456789", checked=True)
    assert files.read("milestone") == b"0123456789"
    faults.set({"kind": "truncate", "op": "write"})
    with pytest.raises(OSError, match="10 bytes were written, 5 others are there"):
        files.write("record", b"0123456789", checked=True)


def test_a_listing_shows_what_another_writer_wrote_since(faults):
    files, other = open_files(faults.url), open_files(faults.url)
    files.write("a/1", b"")
    faults.set({"kind": "stale", "op": "list"})
    assert files.names("a") == ["1"] and list(files.find("a")) == ["1"]
    other.write("a/2", b"")
    assert faults.filesystem.listings, "the store remembers"
    assert files.names("a") == ["1", "2"] and sorted(files.find("a")) == ["1", "2"]


# A store that cannot keep two processes apart says so


def test_a_store_that_replaces_on_create_is_refused(faults):
    store = Store(faults.url)
    store.check()
    faults.set({"kind": "shared", "op": "create"})
    with pytest.raises(StoreError) as raised:
        store.check()
    text = str(raised.value)
    assert faults.url in text and "created only where there is none" in text and "Use a local folder, gs://" in text


def test_the_check_leaves_one_tiny_object(faults):
    files = open_files(faults.url)
    for _ in range(3):
        files.check_exclusive()
    assert list(files.find("")) == [".index/exclusive"]


def test_a_file_system_that_looks_first_and_writes_then_is_refused(faults, tmp_path):
    from fsspec.implementations.local import LocalFileSystem

    files = open_files(faults.url)
    files.fs, files.base = LocalFileSystem(auto_mkdir=True), str(tmp_path / "plain")
    with pytest.raises(StoreError, match="LocalFileSystem looks first and writes then"):
        files.check_exclusive()


def test_a_store_that_cannot_be_written_is_named(faults):
    faults.set({"kind": "error", "error": "403"})
    with pytest.raises(StoreError, match=r"faulty://.* cannot be written: .*credentials"):
        Store(faults.url).check()


def test_a_bucket_that_is_not_there_is_named(gcs):
    with pytest.raises(StoreError, match=r"gs://no-such-bucket/x cannot be written: .*the bucket exists"):
        Store("gs://no-such-bucket/x").check()


def test_an_unknown_protocol_and_a_missing_package_are_named(monkeypatch):
    with pytest.raises(StoreError, match=r"nosuch://b/x: Protocol not known: nosuch; .*gs://bucket"):
        Store("nosuch://b/x")
    from fsspec.registry import known_implementations

    monkeypatch.setitem(known_implementations, "s3x", {"class": "not_there.S3", "err": "Install s3xfs to access S3"})
    with pytest.raises(StoreError, match=r"s3x://b/x: no library for s3x:// .*Install s3xfs.*add that package"):
        Store("s3x://b/x")


# Local files


def test_a_local_error_keeps_its_number(tmp_path):
    files = open_files(str(tmp_path))
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError) as raised:
        files.write("file/below", b"")
    assert raised.value.errno in (errno.ENOTDIR, errno.EEXIST)


def test_a_link_whose_answer_was_lost_is_ours(tmp_path, monkeypatch):
    files, link = open_files(str(tmp_path)), os.link

    def lost(source, target):
        link(source, target)
        raise FileExistsError(target)

    monkeypatch.setattr(os, "link", lost)
    assert files.create("lease", b"mine")
    assert not files.create("lease", b"theirs") and files.read("lease") == b"mine"


def test_a_file_system_without_links_says_what_it_lacks(tmp_path, monkeypatch):
    def refused(source, target):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    with pytest.raises(OSError, match=r"cannot make hard links.*use another") as raised:
        open_files(str(tmp_path)).create("lease", b"mine")
    assert raised.value.errno == errno.EPERM and os.listdir(tmp_path) == []
