"""Documents and the JSON lines they are kept in.

A line is `{"id", "text", "source", ...}`; `id` is the sha256 of the text, so equal texts are one document wherever
they stand, and a document falls to the same side of the split in every corpus that has it.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Document:
    """One text; `source` says where it stands without naming a machine: `json/decoder.py:JSONDecoder.decode`.

    `extra` holds what else is known of it (name, signature) and becomes fields of its line.
    """

    text: str
    source: str
    extra: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def id(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    def line(self) -> bytes:
        fields = {"id": self.id, "text": self.text, "source": self.source, **self.extra}
        return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Malformed:
    """A line that is no document. `line` counts from 1: rows of a table, lines of anything else."""

    file: str
    line: int
    problem: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.problem}"


def in_validation(document_id: str, fraction: float) -> bool:
    """Whether the document of this id is held out: decided by the id alone."""
    return int(document_id[:16], 16) < fraction * 2**64


def read_documents(url: str) -> Iterator[dict[str, Any]]:
    """The lines of a file that a corpus step wrote."""
    import fsspec

    with fsspec.open(url, "rt", encoding="utf-8", newline="\n") as file:
        for line in file:  # pyright: ignore[reportGeneralTypeIssues]
            yield json.loads(line)
