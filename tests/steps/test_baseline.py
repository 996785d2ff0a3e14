"""Yardsticks that need no model, against counts done by hand."""

import gzip
import json
import math

import numpy as np
import pytest

from steps.baseline import BaselineConfig, measure_baselines, unigram_bits
from steps.tokenizer import TokenizerConfig, train_tokenizer


def test_unigram_bits_by_hand():
    """Counts of 0, 1, 2 plus one each: 3, 2, 1 of 6."""
    train, held_out = np.array([0, 0, 1]), np.array([0, 1, 2, 2])
    expected = math.log2(6 / 3) + math.log2(6 / 2) + 2 * math.log2(6 / 1)
    assert unigram_bits(train, held_out, 3) == pytest.approx(expected)


def test_baselines_of_a_domain(tmp_path):
    texts = {"train": ["aab aab aab é"] * 3, "validation": ["aab é"]}
    folder = tmp_path / "domain"
    folder.mkdir()
    for split, lines in texts.items():
        rows = [json.dumps({"id": str(index), "text": text, "source": "s"}) for index, text in enumerate(lines)]
        (folder / f"{split}.jsonl").write_text("\n".join(rows) + "\n")
    train_tokenizer(TokenizerConfig(documents={"domain": str(folder)}, vocab_size=262), str(tmp_path / "tokenizer"))
    config = BaselineConfig(documents={"domain": str(folder)}, tokenizer=str(tmp_path / "tokenizer"))
    results = measure_baselines(config, str(tmp_path / "out"))

    held_out = "aab é".encode()
    counts = np.bincount(np.frombuffer("".join(texts["train"]).encode(), np.uint8), minlength=256) + 1
    by_hand = sum(-math.log2(counts[byte] / counts.sum()) for byte in held_out) / len(held_out)
    assert results["byte_unigram_bits_per_byte"]["domain"] == pytest.approx(by_hand)
    assert results["gzip_bits_per_byte"]["domain"] == 8 * len(gzip.compress(held_out, 9)) / len(held_out)
    assert 0 < results["unigram_bits_per_byte"]["domain"] < by_hand
    assert json.loads((tmp_path / "out" / "baselines.json").read_text()) == results
