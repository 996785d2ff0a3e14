import gzip
import json
import os

import pytest
import zstandard

from steps.corpus import CorpusConfig, FileSource, collect
from steps.corpus.documents import Malformed, in_validation, read_documents
from steps.corpus.files import read_files


def lines(*texts):
    return "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()


def texts_of(location, field="text"):
    return [item.text for item in read_files([str(location)], field)]


def corpus_of(folder, output, **options):
    config = CorpusConfig(domains={"mine": FileSource(files=str(folder))}, validation_fraction=0.5, **options)
    return collect(config, str(output))


def written(output, domain="mine"):
    return {split: list(read_documents(f"{output}/{domain}/{split}.jsonl")) for split in ("train", "validation")}


def test_every_format_and_compression_is_read_in_the_order_of_paths(tmp_path):
    import pyarrow
    import pyarrow.parquet

    (tmp_path / "a.jsonl").write_bytes(lines("plain"))
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(lines("gzip", "zwei")))
    (tmp_path / "c.jsonl.zst").write_bytes(zstandard.compress(lines("zstd\nwith two lines")))
    pyarrow.parquet.write_table(pyarrow.table({"n": [1, 2], "text": ["row one", "row two"]}), tmp_path / "d.parquet")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "e.txt").write_text("a whole file\n\nis one document\n")
    (tmp_path / "deep" / "f.txt.gz").write_bytes(gzip.compress("größer".encode()))
    (tmp_path / "g.txt.zst").write_bytes(zstandard.compress(b"last"))
    found = list(read_files([str(tmp_path)], "text"))
    assert [(item.source, item.text) for item in found] == [
        ("a.jsonl:1", "plain"),
        ("b.jsonl.gz:1", "gzip"),
        ("b.jsonl.gz:2", "zwei"),
        ("c.jsonl.zst:1", "zstd\nwith two lines"),
        ("d.parquet:1", "row one"),
        ("d.parquet:2", "row two"),
        ("deep/e.txt", "a whole file\n\nis one document\n"),
        ("deep/f.txt.gz", "größer"),
        ("g.txt.zst", "last"),
    ]


def test_globs_single_files_and_other_file_systems(tmp_path):
    import fsspec

    (tmp_path / "a.jsonl").write_bytes(lines("one"))
    (tmp_path / "b.jsonl").write_bytes(lines("two"))
    (tmp_path / "notes.md").write_text("not data")
    assert texts_of(tmp_path / "*.jsonl") == ["one", "two"]
    assert texts_of(tmp_path / "b.jsonl") == ["two"]
    assert texts_of(f"file://{tmp_path}/a.jsonl") == ["one"]
    memory = fsspec.filesystem("memory")
    memory.pipe("/bucket/texts/x.jsonl", lines("far away"))
    found = list(read_files(["memory://bucket/texts/*.jsonl"], "text"))
    assert [(item.source, item.text) for item in found] == [("x.jsonl:1", "far away")]
    with pytest.raises(ValueError, match=r"notes.md: expected a name that ends in \.jsonl, \.parquet, \.txt"):
        texts_of(tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        texts_of(tmp_path / "*.parquet")


def test_the_field_of_the_text_is_configured(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"content": "here", "text": "not here"}\n')
    assert texts_of(tmp_path, "content") == ["here"]


BAD_LINES = [
    (b'{"text": "cut of', "is not JSON"),
    (b'["text"]', "expected an object, found list"),
    (b'{"body": "x"}', "has no field 'text', found body"),
    (b'{"text": 3}', "expected text, found int"),
    (b'{"text": "  "}', "the text is empty"),
    (b'{"text": "\xff"}', "is not JSON: 'utf-8' codec"),
    (b'{"text": "\\ud800"}', "the text is no Unicode"),
]


def test_each_kind_of_malformed_line_comes_with_its_place(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"".join(line + b"\n" for line, _ in BAD_LINES) + lines("good"))
    found = list(read_files([str(tmp_path)], "text"))
    malformed = [item for item in found if isinstance(item, Malformed)]
    assert [item.line for item in malformed] == list(range(1, len(BAD_LINES) + 1))
    for item, (_, problem) in zip(malformed, BAD_LINES, strict=True):
        assert item.file == "a.jsonl" and problem in item.problem
    assert [item.text for item in found if not isinstance(item, Malformed)] == ["good"]


def test_a_corrupt_line_is_an_error_by_default_that_says_where(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_bytes(lines("one", "two") + b'{"text": \n' + lines("three", "four"))
    with pytest.raises(ValueError, match=r"(?s)domain mine: 1 of 5 lines are malformed.*a.jsonl:3: .*max_malformed"):
        corpus_of(tmp_path / "in", tmp_path / "out")


def test_a_tolerated_corrupt_line_is_counted_and_kept_on_record(tmp_path, capsys):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_bytes(lines(*map(str, range(20))) + b"oops\n")
    result = corpus_of(tmp_path / "in", tmp_path / "out", max_malformed_fraction=0.05)
    assert result["mine"]["malformed"] == 1
    [row] = [json.loads(line) for line in (tmp_path / "out" / "malformed.jsonl").read_text().splitlines()]
    assert (row["domain"], row["file"], row["line"]) == ("mine", "a.jsonl", 21)
    assert "a.jsonl:21" in capsys.readouterr().out
    with pytest.raises(ValueError, match=r"allowed is max_malformed_fraction = 4.00%"):
        corpus_of(tmp_path / "in", tmp_path / "out2", max_malformed_fraction=0.04)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.jsonl.gz", b"not gzip"),
        ("a.jsonl.gz", gzip.compress(lines("whole"))[:-12]),
        ("a.jsonl.zst", b"not zstd"),
        ("a.jsonl.zst", zstandard.compress(lines("whole"))[:-6]),
        ("a.parquet", b"not parquet"),
    ],
    ids=["not gzip", "gzip cut short", "not zstd", "zstd cut short", "not parquet"],
)
def test_an_unreadable_file_is_named(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=f"{name}: cannot be read: "):
        texts_of(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_permission_is_named(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(lines("x"))
    (tmp_path / "a.jsonl").chmod(0)
    with pytest.raises(ValueError, match=r"a.jsonl: cannot be read: PermissionError"):
        texts_of(tmp_path)


def test_a_parquet_file_without_the_column_says_what_it_has(tmp_path):
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table({"body": ["x"]}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"a.parquet: .*has no column 'text', found body"):
        texts_of(tmp_path)


def test_equal_texts_stand_once_across_splits_and_domains(tmp_path):
    for domain, texts in {
        "a": ["x1", "x2", "shared", "x1", "x3", "x4"],
        "b": ["y1", "shared", "y2", "y3", "x4"],
    }.items():
        (tmp_path / domain).mkdir()
        (tmp_path / domain / "t.jsonl").write_bytes(lines(*texts))
    config = CorpusConfig(
        domains={name: FileSource(files=str(tmp_path / name)) for name in ("b", "a")}, validation_fraction=0.5
    )
    result = collect(config, str(tmp_path / "out"))
    kept = [
        document["text"]
        for domain in "ab"
        for split in written(tmp_path / "out", domain).values()
        for document in split
    ]
    assert sorted(kept) == ["shared", "x1", "x2", "x3", "x4", "y1", "y2", "y3"]
    assert (result["a"]["duplicates"], result["b"]["duplicates"]) == (1, 2)


def test_the_split_depends_on_the_text_alone(tmp_path):
    texts = [f"document {i}" for i in range(400)]
    for name, order in {"one": texts, "two": [*texts[::-1], "another"]}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "t.jsonl").write_bytes(lines(*order))
    sides = []
    for name in ("one", "two"):
        corpus_of(tmp_path / name, tmp_path / f"{name}-out")
        sides.append({row["text"] for row in written(tmp_path / f"{name}-out")["validation"]} - {"another"})
    assert sides[0] == sides[1]
    assert 150 < len(sides[0]) < 250
    assert in_validation("0" * 64, 0.01) and not in_validation("f" * 64, 0.99)


def test_no_machine_path_and_equal_bytes_anywhere(tmp_path):
    for place in ("p", "a/longer/place"):
        folder = tmp_path / place / "in"
        folder.mkdir(parents=True)
        (folder / "t.jsonl").write_bytes(lines(*map(str, range(30))))
        corpus_of(folder, tmp_path / place / "out")
    for split in ("train", "validation"):
        one, two = (tmp_path / place / "out" / "mine" / f"{split}.jsonl" for place in ("p", "a/longer/place"))
        assert one.read_bytes() == two.read_bytes()
        assert str(tmp_path).encode() not in one.read_bytes()


def test_an_empty_split_is_an_error(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "t.jsonl").write_bytes(lines("only one"))
    with pytest.raises(ValueError, match="none of 1 documents is in"):
        corpus_of(tmp_path / "in", tmp_path / "out")
