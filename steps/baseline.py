"""What a loss means: the bits per byte that need no model at all, on the same validation text.

Three yardsticks per domain: how often each byte occurs, how often each token occurs (both counted on the domain's own
training text), and what gzip makes of the validation text. A model that has learned something lies below them.
"""

import dataclasses
from typing import Any

from executor import Input


@dataclasses.dataclass(frozen=True, kw_only=True)
class BaselineConfig:
    """Documents per domain (`train.jsonl` and `validation.jsonl` in a folder), and the tokenizer they are cut with."""

    documents: dict[str, Input]
    tokenizer: Input


def measure_baselines(config: BaselineConfig, output: str) -> dict[str, Any]:
    """Write `baselines.json`: yardstick -> domain -> bits per byte."""
    import gzip
    import json

    import fsspec
    import numpy as np

    from executor import resolved
    from steps.corpus.documents import read_documents
    from steps.tokenizer import open_tokenizer

    tokenizer = open_tokenizer(resolved(config.tokenizer))
    results: dict[str, dict[str, float]] = {name: {} for name in YARDSTICKS}
    for domain, location in config.documents.items():
        folder = resolved(location)
        train = [document["text"] for document in read_documents(f"{folder}/train.jsonl")]
        held_out = [document["text"] for document in read_documents(f"{folder}/validation.jsonl")]
        held_out_bytes = "".join(held_out).encode()
        counted = [np.frombuffer("".join(texts).encode(), np.uint8) for texts in (train, held_out)]
        results["byte_unigram_bits_per_byte"][domain] = unigram_bits(counted[0], counted[1], 256) / len(held_out_bytes)
        tokens = [np.concatenate([*map(np.asarray, tokenizer.encode(texts))]) for texts in (train, held_out)]
        results["unigram_bits_per_byte"][domain] = unigram_bits(tokens[0], tokens[1], tokenizer.vocab_size) / len(
            held_out_bytes
        )
        results["gzip_bits_per_byte"][domain] = 8 * len(gzip.compress(held_out_bytes, 9)) / len(held_out_bytes)
    with fsspec.open(f"{output}/baselines.json", "wt") as file:
        json.dump(results, file, indent=1)  # pyright: ignore[reportArgumentType]
    return results


YARDSTICKS = ("byte_unigram_bits_per_byte", "unigram_bits_per_byte", "gzip_bits_per_byte")


def unigram_bits(train: Any, held_out: Any, num_symbols: int) -> float:
    """Bits that `held_out` takes under the symbol frequencies of `train`, one added to every count.

    Both are integer arrays with values below `num_symbols`.
    """
    import numpy as np

    counts = np.bincount(train, minlength=num_symbols) + 1.0
    bits = -np.log2(counts / counts.sum())
    return float(bits[held_out].sum())
