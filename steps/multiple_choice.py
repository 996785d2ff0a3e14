"""A multiple-choice task from held-out text: which of four continuations belongs to this beginning?

    {"context": "...", "choices": ["...", "...", "...", "..."], "answer": 2, "source": "this.py", "domain": "code"}

The true continuation is what stands there; the others begin at a word somewhere in other held-out documents of the
same domain, so that style alone does not give it away. Guessing is right for one in four.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from executor import Input

NUM_CHOICES = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuestionsConfig:
    """Where questions come from and what they look like.

    Attributes:
        documents: domain -> folder with `validation.jsonl`; nothing else is read.
        questions_per_domain: at most; a document gives several only where there are too few.
        context_characters, choice_characters: about how long they are; both end with a word.
    """

    documents: Mapping[str, Input]
    questions_per_domain: int = 64
    context_characters: int = 240
    choice_characters: int = 80
    seed: int = 0

    @property
    def chance(self) -> float:
        return 1 / NUM_CHOICES


def write_questions(config: QuestionsConfig, output: str) -> dict[str, Any]:
    """Write `questions.jsonl`; returns the number of questions by domain, and chance."""
    import fsspec

    from executor import resolved
    from steps.corpus.documents import read_documents

    questions: list[dict[str, Any]] = []
    counts = {}
    for domain in sorted(config.documents):
        folder = resolved(config.documents[domain])
        documents = list(read_documents(f"{folder}/validation.jsonl"))
        made = _questions_of(config, domain, documents)
        if not made:
            raise ValueError(
                f"domain {domain}: {folder}/validation.jsonl has {len(documents)} documents, a question needs "
                f"{NUM_CHOICES} of {config.context_characters + config.choice_characters} characters and more; give "
                "the domain more text, or shorten context_characters and choice_characters"
            )
        counts[domain] = len(made)
        questions += made
    with fsspec.open(f"{output}/questions.jsonl", "wt", encoding="utf-8", newline="\n") as file:
        for index, question in enumerate(questions):
            wrong = question.pop("wrong")
            answer = index % NUM_CHOICES
            choices = [*wrong[:answer], question.pop("right"), *wrong[answer:]]
            line = {**question, "choices": choices, "answer": answer}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")  # pyright: ignore[reportAttributeAccessIssue]
    return {"questions": counts, "total": len(questions), "chance": config.chance}


def _questions_of(config: QuestionsConfig, domain: str, documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Questions of one domain: each document in turn gives one, until there are enough or none has another."""
    import random

    needed = config.context_characters + config.choice_characters + 40
    long = sorted((document for document in documents if len(document["text"]) >= needed), key=lambda d: d["id"])
    if len(long) < NUM_CHOICES:
        return []
    rounds = -(-config.questions_per_domain // len(long))
    questions: list[dict[str, Any]] = []
    for turn in range(rounds):
        for document in long:
            draw = random.Random(f"{config.seed}:{turn}:{document['id']}")
            window = len(document["text"]) // rounds
            if window < needed:
                if turn:
                    continue
                window = len(document["text"])
            question = _question(config, document["text"][turn * window : (turn + 1) * window], draw)
            others = draw.sample([other for other in long if other["id"] != document["id"]], NUM_CHOICES - 1)
            wrong = [_piece(config, other["text"], draw) for other in others]
            if question is None or None in wrong or len({question[1], *wrong}) < NUM_CHOICES:
                continue
            questions.append(
                {
                    "context": question[0],
                    "right": question[1],
                    "wrong": wrong,
                    "source": document["source"],
                    "domain": domain,
                }
            )
    return questions[: config.questions_per_domain]


def _question(config: QuestionsConfig, text: str, draw: Any) -> tuple[str, str] | None:
    """(context, true continuation) from one place of the text."""
    last = len(text) - config.context_characters - config.choice_characters - 40
    start = _word(text, draw.randrange(max(last, 0) + 1) if last > 0 else 0)
    middle = _word(text, start + config.context_characters)
    choice = _cut(text, middle, config.choice_characters)
    context = text[start:middle]
    return (context, choice) if context.strip() and choice else None


def _piece(config: QuestionsConfig, text: str, draw: Any) -> str | None:
    """A continuation from a document that is not the question's."""
    last = len(text) - config.choice_characters - 40
    return _cut(text, _word(text, draw.randrange(max(last, 0) + 1)), config.choice_characters)


def _word(text: str, start: int) -> int:
    """Where the first word behind `start` begins, its own blank before it not included."""
    if start == 0:
        return 0
    while start < len(text) and not text[start - 1].isspace():
        start += 1
    while start < len(text) and text[start].isspace():
        start += 1
    return start


def _cut(text: str, start: int, characters: int) -> str | None:
    """About `characters` from `start`, up to the end of a word; None where hardly anything is left."""
    end = min(start + characters, len(text))
    while end < len(text) and not text[end].isspace() and end - start < 2 * characters:
        end += 1
    piece = text[start:end].rstrip()
    return piece if len(piece) >= characters // 2 else None
