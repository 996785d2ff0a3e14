"""Tokens of one domain: its documents as Levanter token caches, packed back to back when they are read.

    TokenizeConfig(documents=corpus / "code", tokenizer=tokenizer)

Every document stands between the tokenizer's begin and end tokens. Equal documents give equal bytes anywhere: the
cache is written by one writer in the order of the file, and its ledger names no place.
"""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from executor import Input

SPLITS = ("train", "validation")
BATCH_DOCUMENTS = 4096


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizeConfig:
    """One domain's folder of documents (`train.jsonl`, `validation.jsonl`), and a tokenizer."""

    documents: Input
    tokenizer: Input


def tokenize(config: TokenizeConfig, output: str) -> dict[str, Any]:
    """Write the caches `train/` and `validation/` of `input_ids`, and `counts.json`; returns the counts.

    Counts per split: documents, bytes (of text, UTF-8), tokens, bytes_per_token, vocab_size (of the tokenizer), and
    predicted_tokens: a document's first token is never predicted, so bits per byte are
    `loss * predicted_tokens / bytes / ln 2`.
    """
    import fsspec

    counts = {split: _write_split(config, split, output) for split in SPLITS}
    with fsspec.open(f"{output}/counts.json", "wt") as file:
        json.dump(counts, file, indent=1)  # pyright: ignore[reportArgumentType]
    print(f"{'':<12}{'documents':>11}{'bytes':>13}{'tokens':>12}{'bytes/token':>13}")
    for split, row in counts.items():
        print(
            f"{split:<12}{row['documents']:>11,}{row['bytes']:>13,}{row['tokens']:>12,}{row['bytes_per_token']:>13.3f}"
        )
    return counts


def _write_split(config: TokenizeConfig, split: str, output: str) -> dict[str, int | float]:
    import numpy as np
    from levanter.store.cache import SerialCacheWriter

    from executor import current, resolved
    from steps.corpus.documents import read_documents
    from steps.tokenizer import open_tokenizer

    tokenizer = open_tokenizer(resolved(config.tokenizer))
    documents = size = tokens = 0
    with SerialCacheWriter(f"{output}/{split}", {"input_ids": np.zeros(0, np.int32)}) as writer:
        for texts in _batches(read_documents(f"{resolved(config.documents)}/{split}.jsonl")):
            ids = [np.asarray(document, np.int32) for document in tokenizer.encode_documents(texts)]
            writer.write_batch([{"input_ids": document} for document in ids])
            documents += len(texts)
            size += sum(len(text.encode()) for text in texts)
            tokens += sum(map(len, ids))
            current().progress(documents, 0, unit="documents", split=split)
    if not documents:
        raise ValueError(f"{resolved(config.documents)}/{split}.jsonl holds no document")
    return {
        "documents": documents,
        "bytes": size,
        "tokens": tokens,
        "predicted_tokens": tokens - documents,
        "vocab_size": tokenizer.vocab_size,
        "bytes_per_token": size / tokens,
    }


def _batches(documents: Iterator[dict[str, Any]]) -> Iterator[Sequence[str]]:
    while texts := [document["text"] for document in islice(documents, BATCH_DOCUMENTS)]:
        yield texts
