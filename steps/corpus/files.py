"""Documents from files: JSON lines, Parquet and plain text, compressed or not, on any file system fsspec knows.

A line that is no document comes out as `Malformed` with its place; a file that cannot be read at all is an error
that names it. Files are read in the order of their paths.
"""

import gzip
import io
import json
import zlib
from collections.abc import Iterator, Sequence
from typing import IO, Any

from steps.corpus.documents import Document, Malformed

FORMATS = (".jsonl", ".parquet", ".txt")
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}


def read_files(locations: Sequence[str], text_field: str) -> Iterator[Document | Malformed]:
    """Documents of every file under these files, folders or globs; sources are paths relative to each of them."""
    from executor import current

    found = [file for location in locations for file in _expand(location)]
    for done, (filesystem, path, name) in enumerate(found):
        current().progress(done, len(found), unit="files")
        form, compression = _format(name)
        try:
            with filesystem.open(path, "rb") as file:
                yield from _READERS[form](_decompressed(file, compression), name, text_field)
        except (OSError, EOFError, zlib.error, ValueError) as error:
            raise ValueError(f"{name}: cannot be read: {type(error).__name__}: {error}") from error


def _decompressed(file: IO[bytes], compression: str) -> Any:
    """The plain bytes; both decompressors raise at the end of a truncated file, and read many frames as one."""
    if compression == "gzip":
        return gzip.GzipFile(fileobj=file)
    if compression == "zstd":
        import pyarrow

        return io.BufferedReader(pyarrow.CompressedInputStream(pyarrow.PythonFile(file, mode="r"), "zstd"))
    return file


def _expand(location: str) -> list[tuple[Any, str, str]]:
    """(file system, path, path relative to the location) of its files, in order; hidden files are not data."""
    import glob

    import fsspec

    filesystem, root = fsspec.core.url_to_fs(location)
    if glob.has_magic(root):
        fixed = root[: min(root.index(mark) for mark in "*?[" if mark in root)]
        base = fixed.rpartition("/")[0]
        paths = [path for path in filesystem.glob(root) if not filesystem.isdir(path)]
    elif filesystem.isdir(root):
        base = root.rstrip("/")
        paths = filesystem.find(root)
    else:
        base = root.rpartition("/")[0]
        paths = [root]
    names = {path: path.removeprefix(base).lstrip("/") for path in map(str, paths)}
    shown = sorted((name, path) for path, name in names.items() if not name.rpartition("/")[2].startswith((".", "_")))
    if not shown:
        raise FileNotFoundError(
            f"{location}: there is no file; give a file, a folder or a glob of {', '.join(FORMATS)}"
        )
    for name, _ in shown:
        _format(name)
    return [(filesystem, path, name) for name, path in shown]


def _format(name: str) -> tuple[str, str]:
    stem, compression = name, ""
    for suffix, method in COMPRESSIONS.items():
        if name.endswith(suffix):
            stem, compression = name.removesuffix(suffix), method
    for form in FORMATS:
        if stem.endswith(form):
            return form, compression
    raise ValueError(
        f"{name}: expected a name that ends in {', '.join(FORMATS)}, with {' or '.join(COMPRESSIONS)} behind it or "
        "not; name the files by a glob"
    )


def _read_jsonl(file: IO[bytes], name: str, text_field: str) -> Iterator[Document | Malformed]:
    for number, line in enumerate(file, start=1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line.decode())
        except ValueError as error:
            yield Malformed(file=name, line=number, problem=f"is not JSON: {error}")
            continue
        if not isinstance(fields, dict):
            yield Malformed(file=name, line=number, problem=f"expected an object, found {type(fields).__name__}")
        elif text_field not in fields:
            problem = f"has no field {text_field!r}, found {', '.join(sorted(fields)) or 'none'}"
            yield Malformed(file=name, line=number, problem=problem)
        else:
            yield _document(fields[text_field], name, number)


def _read_parquet(file: IO[bytes], name: str, text_field: str) -> Iterator[Document | Malformed]:
    import pyarrow.parquet

    table = pyarrow.parquet.ParquetFile(file)
    if text_field not in table.schema_arrow.names:
        raise ValueError(f"has no column {text_field!r}, found {', '.join(table.schema_arrow.names)}")
    number = 0
    for batch in table.iter_batches(columns=[text_field]):
        for text in batch.column(0).to_pylist():
            number += 1
            yield _document(text, name, number)


def _read_text(file: IO[bytes], name: str, text_field: str) -> Iterator[Document | Malformed]:
    data = file.read()
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        yield Malformed(file=name, line=data.count(b"\n", 0, error.start) + 1, problem=f"is not UTF-8: {error}")
        return
    yield _document(text, name, 0)


def _document(text: Any, name: str, number: int) -> Document | Malformed:
    if not isinstance(text, str):
        return Malformed(file=name, line=number, problem=f"expected text, found {type(text).__name__}")
    if not text.strip():
        return Malformed(file=name, line=number, problem="the text is empty")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return Malformed(file=name, line=number, problem=f"the text is no Unicode: {error}")
    return Document(text=text, source=f"{name}:{number}" if number else name)


_READERS = {".jsonl": _read_jsonl, ".parquet": _read_parquet, ".txt": _read_text}
