"""Tokenizers: trained on a corpus, or taken from Hugging Face. The artifact is a folder Levanter opens.

    TokenizerConfig(documents={"code": corpus / "code"}, vocab_size=2048)
    PretrainedTokenizerConfig(id="marin-community/marin-tokenizer", revision="main")

Invariant: any text comes back from its tokens unchanged, and no text a document holds becomes a special token: the
special ones are put in by the steps that mean them.
"""

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from executor import Input

BEGIN = "<|begin_of_text|>"
END = "<|end_of_text|>"
QUESTION = "<|question|>"
ANSWER = "<|answer|>"
SPECIAL_TOKENS = (BEGIN, END, QUESTION, ANSWER)
BYTES = 256
TOKENIZER_FILES = ("tokenizer", "special_tokens", "added_tokens", "chat_template")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """A byte-level BPE tokenizer.

    Attributes:
        documents: domain -> folder with `train.jsonl`.
        vocab_size: entries, the 256 bytes and the special tokens among them.
        bytes_per_domain: text of each domain that merges are counted on, so that none outweighs the others.
    """

    documents: Mapping[str, Input]
    vocab_size: int = 2048
    bytes_per_domain: int = 2_000_000

    def __post_init__(self) -> None:
        least = BYTES + len(SPECIAL_TOKENS)
        if self.vocab_size < least:
            raise ValueError(
                f"TokenizerConfig.vocab_size: expected at least {BYTES} bytes + {len(SPECIAL_TOKENS)} special tokens = "
                f"{least}, found {self.vocab_size}"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainedTokenizerConfig:
    """A tokenizer somebody else trained: a folder (as a step), or a Hugging Face id with the revision of it."""

    directory: Input | None = None
    id: str = ""
    revision: str = "main"

    def __post_init__(self) -> None:
        if (self.directory is None) == (not self.id):
            raise ValueError(
                f"PretrainedTokenizerConfig: expected either directory or id, found directory={self.directory!r}, "
                f"id={self.id!r}"
            )


def train_tokenizer(config: TokenizerConfig, output: str) -> dict[str, Any]:
    """Write `tokenizer.json` and `tokenizer_config.json`; returns the vocabulary's size and the bytes read."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    texts: list[str] = []
    for domain in sorted(config.documents):
        texts += _sample(config, domain)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyright: ignore
    tokenizer.decoder = decoders.ByteLevel()  # pyright: ignore
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer=trainer, length=len(texts))
    if tokenizer.get_vocab_size() != config.vocab_size:
        raise ValueError(
            f"the text gives {tokenizer.get_vocab_size()} entries, vocab_size asks for {config.vocab_size}; give the "
            "tokenizer more text, or lower TokenizerConfig.vocab_size"
        )
    _write(f"{output}/tokenizer.json", tokenizer.to_str(pretty=True))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BEGIN,
        "eos_token": END,
        "added_tokens_decoder": {
            str(index): {"content": token, "special": True} for index, token in enumerate(SPECIAL_TOKENS)
        },
        "clean_up_tokenization_spaces": False,
    }
    _write(f"{output}/tokenizer_config.json", json.dumps(settings, indent=1))
    return {"vocab_size": config.vocab_size, "bytes": sum(len(text.encode()) for text in texts)}


def _sample(config: TokenizerConfig, domain: str) -> list[str]:
    """Training texts of a domain in the order of their ids (a fair draw) until there are enough bytes."""
    from executor import resolved
    from steps.corpus.documents import read_documents

    texts, size = [], 0
    documents = read_documents(f"{resolved(config.documents[domain])}/train.jsonl")
    for document in sorted(documents, key=lambda document: document["id"]):
        texts.append(document["text"])
        size += len(document["text"].encode())
        if size >= config.bytes_per_domain:
            break
    return texts


def import_tokenizer(config: PretrainedTokenizerConfig, output: str) -> dict[str, Any]:
    """Copy a tokenizer's files here and check that it opens and marks both ends of a text."""
    import fsspec

    from executor import resolved

    location = resolved(config.directory) if config.directory is not None else _download(config)
    filesystem, root = fsspec.core.url_to_fs(location)
    found = sorted(path for path in filesystem.find(root) if path.rpartition("/")[2].startswith(TOKENIZER_FILES))
    names = [path.rpartition("/")[2] for path in found]
    for needed in ("tokenizer.json", "tokenizer_config.json"):
        if needed not in names:
            raise FileNotFoundError(
                f"{config.id or location}: expected tokenizer.json and tokenizer_config.json, found "
                f"{', '.join(names) or 'neither'}; save a fast tokenizer there with save_pretrained()"
            )
    for path, name in zip(found, names, strict=True):
        with filesystem.open(path, "rb") as source, fsspec.open(f"{output}/{name}", "wb") as copy:
            copy.write(source.read())  # pyright: ignore[reportAttributeAccessIssue]
    return {"vocab_size": open_tokenizer(output).vocab_size}


def _download(config: PretrainedTokenizerConfig) -> str:
    from httpx import HTTPError
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled

    try:
        return snapshot_download(
            config.id, revision=config.revision, allow_patterns=[f"{name}*" for name in TOKENIZER_FILES]
        )
    except (
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        HTTPError,
        OSError,
    ) as error:
        raise ConnectionError(
            f"tokenizer {config.id} at revision {config.revision}: not in the local Hugging Face cache, and the hub "
            f"gave {type(error).__name__}: {str(error).splitlines()[0]}; check the id and the network, or fetch it "
            f"elsewhere (hf download {config.id} --include 'tokenizer*') and give the folder: directory=adopt(folder)"
        ) from error


def _write(url: str, text: str) -> None:
    import fsspec

    with fsspec.open(url, "wt", encoding="utf-8", newline="\n") as file:
        file.write(text)  # pyright: ignore[reportAttributeAccessIssue]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextTokenizer:
    """A tokenizer folder, opened: text to ids and back, special tokens in a text being text."""

    tokenizer: Any
    bos_id: int
    eos_id: int

    @property
    def vocab_size(self) -> int:
        return self.tokenizer.get_vocab_size()

    def token_id(self, token: str) -> int | None:
        """Id of an entry, None where the vocabulary has no such entry."""
        return self.tokenizer.token_to_id(token)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text, nothing added."""
        encodings = self.tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def encode_documents(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text between the tokens that begin and end a document; one token for both stands at the end."""
        begin = [] if self.bos_id == self.eos_id else [self.bos_id]
        return [[*begin, *ids, self.eos_id] for ids in self.encode(texts)]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of these ids, special tokens left out."""
        return self.tokenizer.decode(list(ids), skip_special_tokens=True)


@functools.lru_cache(maxsize=4)
def open_tokenizer(location: str) -> TextTokenizer:
    """Open a tokenizer artifact."""
    import fsspec
    from tokenizers import Tokenizer

    with fsspec.open(f"{location}/tokenizer_config.json", "rt", encoding="utf-8") as file:
        settings = json.load(file)  # pyright: ignore[reportArgumentType]
    with fsspec.open(f"{location}/tokenizer.json", "rt", encoding="utf-8") as file:
        tokenizer = Tokenizer.from_str(file.read())  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer.encode_special_tokens = True
    ends = {}
    for name in ("bos_token", "eos_token"):
        token = settings.get(name)
        token = token["content"] if isinstance(token, dict) else token
        ends[name] = tokenizer.token_to_id(token) if token else None
        if ends[name] is None:
            raise ValueError(
                f"{location}/tokenizer_config.json: {name} is {token!r}, expected an entry of the vocabulary: "
                "documents are told apart by it"
            )
    return TextTokenizer(tokenizer=tokenizer, bos_id=ends["bos_token"], eos_id=ends["eos_token"])
