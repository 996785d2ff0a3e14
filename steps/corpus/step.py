"""The corpus step: every domain's documents, exact duplicates removed, split into train and validation.

    CorpusConfig(domains={"code": InterpreterSource(kind="code", python_version="3.12.1"),
                          "mine": FileSource(files=adopt("gs://bucket/texts/*.jsonl.zst"))})

Invariants: a text stands once in the whole corpus, so nothing held out is trained on word for word; equal sources
give equal bytes under any prefix; nothing read is left out without being counted and reported.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import IO, Any, Literal

from executor import Input, current
from steps.corpus.documents import Document, Malformed, in_validation


@dataclasses.dataclass(frozen=True, kw_only=True)
class InterpreterSource:
    """Real text that every machine has: the running interpreter's own library.

    Attributes:
        kind: `prose` is the language reference, `docstrings` what modules, classes and functions say of themselves,
            `code` the modules with their docstrings cut out.
        python_version: the version whose library it is (`platform.python_version()`).
    """

    kind: Literal["prose", "docstrings", "code"]
    python_version: str

    def __post_init__(self) -> None:
        if self.kind not in ("prose", "docstrings", "code"):
            raise ValueError(f"InterpreterSource.kind: expected prose, docstrings or code, found {self.kind!r}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileSource:
    """Text files from anywhere: `.jsonl`, `.parquet` or `.txt` (one document a file), also `.gz` and `.zst`.

    Attributes:
        files: a file, a folder or a glob, as a step (`adopt(url)`, `external(url, digest=...)`), or several.
        text_field: field or column that holds the text.
    """

    files: Input | tuple[Input, ...]
    text_field: str = "text"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    """What is collected.

    Attributes:
        domains: name -> where its documents come from.
        validation_fraction: share of documents held out, by the hash of their text.
        max_malformed_fraction: share of one domain's lines that may be malformed; above it the step fails.
    """

    domains: Mapping[str, InterpreterSource | FileSource]
    validation_fraction: float = 0.055
    max_malformed_fraction: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.validation_fraction < 1:
            raise ValueError(f"CorpusConfig.validation_fraction: expected 0 < x < 1, found {self.validation_fraction}")
        if not 0 <= self.max_malformed_fraction <= 1:
            raise ValueError(
                f"CorpusConfig.max_malformed_fraction: expected 0 <= x <= 1, found {self.max_malformed_fraction}"
            )
        if not self.domains:
            raise ValueError("CorpusConfig.domains: expected at least one domain, found none")


SHOWN_MALFORMED = 5


def collect(config: CorpusConfig, output: str) -> dict[str, Any]:
    """Write `{domain}/train.jsonl` and `{domain}/validation.jsonl`, and `malformed.jsonl` where there is any.

    Returns per domain: documents and bytes (of text, UTF-8) of both splits, duplicates and malformed lines.
    Domains are read in the order of their names; of equal texts the first one read stays.
    """
    import fsspec

    seen: set[bytes] = set()
    malformed: dict[str, list[Malformed]] = {}
    results: dict[str, Any] = {}
    for done, domain in enumerate(sorted(config.domains)):
        current().progress(done, len(config.domains), unit="domains")
        with (
            fsspec.open(f"{output}/{domain}/train.jsonl", "wb") as train,
            fsspec.open(f"{output}/{domain}/validation.jsonl", "wb") as validation,
        ):
            files: dict[str, Any] = {"train": train, "validation": validation}
            results[domain], malformed[domain] = _collect_domain(config, domain, files, seen)
    if any(malformed.values()):
        with fsspec.open(f"{output}/malformed.jsonl", "wt", encoding="utf-8") as file:
            for domain, lines in malformed.items():
                for line in lines:
                    file.write(json.dumps({"domain": domain, **dataclasses.asdict(line)}) + "\n")  # pyright: ignore
    current().progress(len(config.domains), len(config.domains), unit="domains")
    print(_table(results))
    return results


def _collect_domain(
    config: CorpusConfig, domain: str, files: Mapping[str, IO[bytes]], seen: set[bytes]
) -> tuple[dict[str, Any], list[Malformed]]:
    splits = {split: {"documents": 0, "bytes": 0} for split in files}
    malformed: list[Malformed] = []
    duplicates = documents = 0
    for item in _read(config.domains[domain]):
        if isinstance(item, Malformed):
            malformed.append(item)
            if len(malformed) <= SHOWN_MALFORMED:
                print(f"{domain}: malformed {item}")
            continue
        documents += 1
        document_id = item.id
        if (key := bytes.fromhex(document_id)) in seen:
            duplicates += 1
            continue
        seen.add(key)
        split = "validation" if in_validation(document_id, config.validation_fraction) else "train"
        splits[split]["documents"] += 1
        splits[split]["bytes"] += len(item.text.encode())
        files[split].write(item.line())
    _check(config, domain, documents, malformed, splits)
    return {**splits, "duplicates": duplicates, "malformed": len(malformed)}, malformed


def _read(source: InterpreterSource | FileSource) -> Iterator[Document | Malformed]:
    if isinstance(source, InterpreterSource):
        from steps.corpus.interpreter import read_interpreter

        return read_interpreter(source.kind, source.python_version)
    from executor import resolved
    from steps.corpus.files import read_files

    inputs = source.files if isinstance(source.files, tuple) else (source.files,)
    return read_files([resolved(value) for value in inputs], source.text_field)


def _check(
    config: CorpusConfig, domain: str, documents: int, malformed: list[Malformed], splits: dict[str, dict[str, int]]
) -> None:
    lines = documents + len(malformed)
    if len(malformed) > config.max_malformed_fraction * lines:
        shown = "\n  ".join(map(str, malformed[:SHOWN_MALFORMED]))
        more = f"\n  and {len(malformed) - SHOWN_MALFORMED} more" if len(malformed) > SHOWN_MALFORMED else ""
        raise ValueError(
            f"domain {domain}: {len(malformed)} of {lines} lines are malformed ({len(malformed) / lines:.2%}), allowed "
            f"is max_malformed_fraction = {config.max_malformed_fraction:.2%}:\n  {shown}{more}\n"
            "mend the files, or raise CorpusConfig.max_malformed_fraction"
        )
    for split, counts in splits.items():
        if not counts["documents"]:
            raise ValueError(
                f"domain {domain}: none of {documents} documents is in {split} (validation_fraction = "
                f"{config.validation_fraction}); give it more documents or another fraction"
            )


def _table(results: Mapping[str, Any]) -> str:
    rows = [
        f"{'domain':<14}{'documents':>11}{'held out':>10}{'bytes':>13}{'held out':>11}"
        f"{'duplicates':>12}{'malformed':>11}"
    ]
    for domain, result in results.items():
        train, validation = result["train"], result["validation"]
        rows.append(
            f"{domain:<14}{train['documents']:>11,}{validation['documents']:>10,}{train['bytes']:>13,}"
            f"{validation['bytes']:>11,}{result['duplicates']:>12,}{result['malformed']:>11,}"
        )
    return "\n".join(rows)
