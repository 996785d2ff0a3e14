"""A tiny corpus, tokenizer and token artifacts, made once by the steps themselves."""

import dataclasses
import json
import random
from pathlib import Path

import pytest

DOMAINS = ("letters", "numbers")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SmallData:
    """Folders of artifacts: `documents[domain]`, `tokenizer`, `tokens[domain]`."""

    documents: dict[str, str]
    tokenizer: str
    tokens: dict[str, str]


def write_documents(folder: Path, split: str, texts: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f"{split}.jsonl", "w") as file:
        for index, text in enumerate(texts):
            row = {"id": f"{index:064x}", "text": text, "source": f"{split}:{index}"}
            file.write(json.dumps(row) + "\n")


@pytest.fixture(scope="session")
def small_data(tmp_path_factory) -> SmallData:
    from steps.tokenize import TokenizeConfig, tokenize
    from steps.tokenizer import TokenizerConfig, train_tokenizer

    root = tmp_path_factory.mktemp("small")
    draw = random.Random(0)
    words = {"letters": ["alpha", "beta", "gamma", "delta"], "numbers": ["one", "two", "three", "12", "345"]}
    for domain in DOMAINS:
        for split, count in (("train", 120), ("validation", 12)):
            texts = [" ".join(draw.choices(words[domain], k=draw.randint(3, 60))) for _ in range(count)]
            write_documents(root / domain, split, texts)
    documents = {domain: str(root / domain) for domain in DOMAINS}
    tokenizer = str(root / "tokenizer")
    train_tokenizer(TokenizerConfig(documents=documents, vocab_size=270), tokenizer)
    tokens = {domain: str(root / "tokens" / domain) for domain in DOMAINS}
    for domain in DOMAINS:
        tokenize(TokenizeConfig(documents=documents[domain], tokenizer=tokenizer), tokens[domain])
    return SmallData(documents=documents, tokenizer=tokenizer, tokens=tokens)
