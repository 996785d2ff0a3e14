import json
from itertools import islice

import numpy as np
import pytest

from steps.batches import PADDING, loader
from steps.conversations import (
    ConversationConfig,
    conversation_dataset,
    conversation_validation_batches,
    packed_examples,
    prompt_ids,
)
from steps.instruction_pairs import PairsConfig, build_pairs, pair_of
from steps.tokenizer import open_tokenizer

SEQUENCE = 96
CONFIG = PairsConfig(documents="")


def write_documents(folder, split, texts, names):
    folder.mkdir(exist_ok=True)
    rows = [{"text": text, "source": name, "name": name} for text, name in zip(texts, names, strict=True)]
    (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def doc(text, **fields):
    return {"text": text, "source": "m.py:f", "name": "m.f", "signature": "f(x, y=1)"} | fields


@pytest.mark.parametrize(
    ("document", "question", "answer"),
    [
        (doc("Return the sum of both.\n\nMore."), "What does `m.f(x, y=1)` do?", "Return the sum of both."),
        (doc("A list\n    of all names.", signature=""), "What is `m.f`?", "A list of all names."),
        (doc("First sentence here. " + "Second is long " * 30), "What does `m.f(x, y=1)` do?", "First sentence here."),
    ],
)
def test_a_docstring_makes_a_question_and_its_first_paragraph_the_answer(document, question, answer):
    assert pair_of(document, CONFIG) == {"question": question, "answer": answer, "source": "m.py:f"}


@pytest.mark.parametrize("text", ["Too short.", "x" * 300, "f(x, y) -> z, 1, 2, 3, 4", "no end " * 60])
def test_what_is_no_answer_makes_no_pair(text):
    assert pair_of(doc(text), CONFIG) is None
    nameless = doc("Return the sum of both.")
    del nameless["name"]
    assert pair_of(nameless, CONFIG) is None


@pytest.fixture(scope="module")
def pairs(tmp_path_factory, small_data):
    root = tmp_path_factory.mktemp("pairs")
    texts = [f"Return alpha beta number {i} of all." for i in range(60)]
    write_documents(root / "in", "train", texts, [f"m.f{i}" for i in range(60)])
    held_out = ["Return alpha beta number 7 of all.", *[f"Give gamma delta number {i} back." for i in range(9)]]
    write_documents(root / "in", "validation", held_out, [f"v.g{i}" for i in range(10)])
    result = build_pairs(PairsConfig(documents=str(root / "in")), str(root / "out"))
    return str(root / "out"), result


def test_no_answer_stands_on_both_sides_of_the_split(pairs):
    assert pairs[1] == {
        "validation": {"pairs": 10, "documents_without_pair": 0},
        "train": {"pairs": 59, "documents_without_pair": 1},
    }


def test_the_loss_counts_on_answers_and_their_end_alone(pairs, small_data):
    from steps.corpus.documents import read_documents

    config = ConversationConfig(pairs=pairs[0], tokenizer=small_data.tokenizer)
    tokenizer = open_tokenizer(small_data.tokenizer)
    expected = {row["question"]: row["answer"] for row in read_documents(f"{pairs[0]}/train.jsonl")}
    found = {}
    for example in packed_examples(config, "train", SEQUENCE):
        tokens, mask, segments = example["tokens"], example["loss_mask"], example["segment_ids"]
        assert tokens.shape == mask.shape == segments.shape == (SEQUENCE,)
        assert not mask[segments == PADDING].any()
        for segment in set(segments.tolist()) - {PADDING}:
            ids, weights = tokens[segments == segment], mask[segments == segment]
            scored = ids[1:][weights[:-1] == 1]
            assert weights[-1] == 0
            assert scored[-1] == tokenizer.eos_id
            prompt = ids[: len(ids) - len(scored)]
            [question] = [q for q in expected if prompt_ids(tokenizer, q) == prompt.tolist()]
            found[question] = tokenizer.decode(scored[:-1].tolist())
    assert found == expected


def test_batches_resume_and_repeat_and_held_out_pairs_are_whole(pairs, small_data):
    config = ConversationConfig(pairs=pairs[0], tokenizer=small_data.tokenizer)

    def read(start, count):
        batches = loader(conversation_dataset(config, sequence_length=SEQUENCE), batch_size=4, start_step=start)
        rows = [np.asarray(batch["tokens"]) for batch in islice(batches, count)]
        batches.close()
        return rows

    unbroken = read(0, 12)
    assert np.array_equal(np.stack(read(5, 7)), np.stack(unbroken[5:]))
    tokenizer = open_tokenizer(small_data.tokenizer)
    held_out = conversation_validation_batches(config, sequence_length=SEQUENCE, batch_size=4)
    begins = sum(((b["tokens"] == tokenizer.bos_id) & (b["segment_ids"] != PADDING)).sum() for b in held_out)
    assert begins == 10


def test_pairs_that_do_not_fit_are_counted(pairs, small_data, capsys):
    config = ConversationConfig(pairs=pairs[0], tokenizer=small_data.tokenizer)
    with pytest.raises(ValueError, match=r"none of 59 pairs of train.jsonl fits into 8 tokens"):
        packed_examples(config, "train", 8)


def test_a_tokenizer_without_marks_gets_words(small_data):
    import dataclasses

    class Plain:
        def __getattr__(self, name):
            return getattr(open_tokenizer(small_data.tokenizer).tokenizer, name)

        def token_to_id(self, token):
            return None

    tokenizer = dataclasses.replace(open_tokenizer(small_data.tokenizer), tokenizer=Plain())
    ids = prompt_ids(tokenizer, "alpha?")
    assert ids[0] == tokenizer.bos_id
    assert tokenizer.decode(ids) == "Question: alpha?\nAnswer: "
