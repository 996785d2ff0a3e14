"""Question and answer pairs for fine-tuning, from docstrings: real questions whose answers somebody wrote.

    {"question": "What does `json.decoder.JSONDecoder.decode(self, s)` do?",
     "answer": "Return the Python representation of ``s`` (a ``str`` instance containing a JSON document).",
     "source": "json/decoder.py:JSONDecoder.decode"}

Pairs keep the corpus's split, and no answer stands on both sides of it.
"""

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any

from executor import Input


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairsConfig:
    """A domain of named docstrings (`corpus / "docstrings"`).

    Attributes:
        min_answer_characters, max_answer_characters: answers outside of these make no pair; longer paragraphs are
            cut behind a sentence.
    """

    documents: Input
    min_answer_characters: int = 20
    max_answer_characters: int = 240

    def __post_init__(self) -> None:
        if not 0 < self.min_answer_characters <= self.max_answer_characters:
            raise ValueError(
                "PairsConfig: expected 0 < min_answer_characters <= max_answer_characters, found "
                f"{self.min_answer_characters}, {self.max_answer_characters}"
            )


def build_pairs(config: PairsConfig, output: str) -> dict[str, Any]:
    """Write `train.jsonl` and `validation.jsonl` of question, answer, source; returns how many there are."""
    import fsspec

    from executor import resolved
    from steps.corpus.documents import read_documents

    folder = resolved(config.documents)
    results: dict[str, Any] = {}
    seen: set[str] = set()
    for split in ("validation", "train"):
        pairs = []
        answers = set()
        left_out = 0
        for document in read_documents(f"{folder}/{split}.jsonl"):
            pair = pair_of(document, config)
            if pair is None or pair["answer"] in seen:
                left_out += 1
                continue
            answers.add(pair["answer"])
            pairs.append(pair)
        seen |= answers
        if not pairs:
            raise ValueError(
                f"{folder}/{split}.jsonl gives no pair: its lines need a name, and text of whole sentences"
            )
        with fsspec.open(f"{output}/{split}.jsonl", "wt", encoding="utf-8", newline="\n") as file:
            for pair in pairs:
                file.write(json.dumps(pair, ensure_ascii=False) + "\n")  # pyright: ignore
        results[split] = {"pairs": len(pairs), "documents_without_pair": left_out}
    return results


def pair_of(document: Mapping[str, Any], config: PairsConfig) -> dict[str, str] | None:
    """The pair a docstring makes, None where it has no name or its first paragraph is no answer."""
    answer = _answer(document["text"], config)
    if "name" not in document or answer is None:
        return None
    name, signature = document["name"], document.get("signature", "")
    arguments = signature[signature.find("(") :] if "(" in signature else ""
    question = f"What does `{name}{arguments}` do?" if signature else f"What is `{name}`?"
    return {"question": question, "answer": answer, "source": document["source"]}


def _answer(text: str, config: PairsConfig) -> str | None:
    """The first paragraph, as one line, as many whole sentences as fit."""
    paragraph = " ".join(text.strip().split("\n\n", 1)[0].split())
    if len(paragraph) > config.max_answer_characters:
        ends = [
            end.end() for end in re.finditer(r"[.!?](?= [A-Z`\"'(])", paragraph[: config.max_answer_characters + 2])
        ]
        ends = [end for end in ends if end <= config.max_answer_characters]
        paragraph = paragraph[: ends[-1]] if ends else ""
    if len(paragraph) < config.min_answer_characters or not re.search(r"[A-Za-z]{3,} [A-Za-z]", paragraph):
        return None
    return paragraph
