import filecmp
import os

import numpy as np

from steps.batches import read_counts, token_cache
from steps.corpus.documents import read_documents
from steps.tokenize import TokenizeConfig, tokenize
from steps.tokenizer import open_tokenizer


def test_a_cache_holds_every_document_between_its_ends(small_data):
    tokenizer = open_tokenizer(small_data.tokenizer)
    for split in ("train", "validation"):
        texts = [row["text"] for row in read_documents(f"{small_data.documents['letters']}/{split}.jsonl")]
        cache = token_cache(small_data.tokens["letters"], split)
        assert len(cache) == len(texts)
        for row, text in zip(cache, texts, strict=True):
            ids = np.asarray(row["input_ids"])
            assert (ids[0], ids[-1]) == (tokenizer.bos_id, tokenizer.eos_id)
            assert tokenizer.decode(ids[1:-1]) == text


def test_counts_are_those_of_the_text_and_the_cache(small_data):
    counts = read_counts(small_data.tokens["numbers"])
    for split in ("train", "validation"):
        texts = [row["text"] for row in read_documents(f"{small_data.documents['numbers']}/{split}.jsonl")]
        tokens = token_cache(small_data.tokens["numbers"], split).flat_field_length("input_ids")
        row = counts[split]
        assert (row["documents"], row["tokens"]) == (len(texts), tokens)
        assert row["bytes"] == sum(len(text.encode()) for text in texts)
        assert row["predicted_tokens"] == tokens - len(texts)
        assert row["bytes_per_token"] == row["bytes"] / tokens


def test_equal_documents_give_equal_bytes_in_any_folder(small_data, tmp_path):
    output = tmp_path / "somewhere" / "else"
    tokenize(TokenizeConfig(documents=small_data.documents["letters"], tokenizer=small_data.tokenizer), str(output))
    first = small_data.tokens["letters"]
    files = sorted(os.path.relpath(os.path.join(d, f), first) for d, _, names in os.walk(first) for f in names)
    again = sorted(os.path.relpath(os.path.join(d, f), output) for d, _, names in os.walk(output) for f in names)
    assert files == again and len(files) > 4
    assert filecmp.cmpfiles(first, output, files, shallow=False)[1:] == ([], [])
