import json
import random
from collections import Counter

import pytest

from steps.multiple_choice import QuestionsConfig, write_questions


def text(seed, words):
    draw = random.Random(seed)
    return " ".join(f"w{draw.randrange(10_000)}" for _ in range(words))


@pytest.fixture
def documents(tmp_path):
    folders = {}
    for domain, count in (("a", 20), ("b", 6)):
        folder = tmp_path / domain
        folder.mkdir()
        for split in ("train", "validation"):
            rows = [(f"{domain}{split}{i}", text(f"{domain}{split}{i}", 400)) for i in range(count)]
            lines = [json.dumps({"id": i, "text": t, "source": i}) for i, t in rows]
            (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
        folders[domain] = str(folder)
    return folders


def questions_of(output):
    return [json.loads(line) for line in (output / "questions.jsonl").read_text().splitlines()]


def test_questions_come_from_held_out_text_of_their_domain(documents, tmp_path):
    result = write_questions(QuestionsConfig(documents=documents, questions_per_domain=16), str(tmp_path / "q"))
    assert result == {"questions": {"a": 16, "b": 16}, "total": 32, "chance": 0.25}
    held_out = {}
    for folder in documents.values():
        with open(f"{folder}/validation.jsonl") as file:
            held_out |= {row["id"]: row["text"] for row in map(json.loads, file)}
    for question in questions_of(tmp_path / "q"):
        own = held_out[question["source"]]
        right = question["choices"][question["answer"]]
        assert question["context"] + right in own
        for index, choice in enumerate(question["choices"]):
            if index != question["answer"]:
                assert choice not in own
                assert any(choice in t for i, t in held_out.items() if i[0] == question["domain"])
        assert 200 < len(question["context"]) < 280
        assert all(40 <= len(choice) <= 160 for choice in question["choices"])
        assert len(set(question["choices"])) == 4


def test_answers_stand_at_every_position_equally_often(documents, tmp_path):
    write_questions(QuestionsConfig(documents=documents, questions_per_domain=16), str(tmp_path / "q"))
    assert Counter(question["answer"] for question in questions_of(tmp_path / "q")) == dict.fromkeys(range(4), 8)


def test_equal_text_gives_equal_questions(documents, tmp_path):
    for name in ("one", "two/deeper"):
        write_questions(QuestionsConfig(documents=documents), str(tmp_path / name))
    one, two = (tmp_path / name / "questions.jsonl" for name in ("one", "two/deeper"))
    assert one.read_bytes() == two.read_bytes()
    write_questions(QuestionsConfig(documents=documents, seed=1), str(tmp_path / "three"))
    assert (tmp_path / "three" / "questions.jsonl").read_bytes() != one.read_bytes()


def test_too_little_text_is_an_error_that_says_so(tmp_path):
    (tmp_path / "validation.jsonl").write_text('{"id": "1", "text": "short", "source": "s"}\n')
    with pytest.raises(ValueError, match=r"domain a: .*has 1 documents, a question needs 4 of 320 characters and more"):
        write_questions(QuestionsConfig(documents={"a": str(tmp_path)}), str(tmp_path / "q"))
