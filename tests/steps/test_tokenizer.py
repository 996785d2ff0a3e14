import json
import shutil
from pathlib import Path

import pytest

from steps.tokenizer import (
    SPECIAL_TOKENS,
    PretrainedTokenizerConfig,
    TokenizerConfig,
    import_tokenizer,
    open_tokenizer,
    train_tokenizer,
)

TEXTS = [
    "plain text",
    "  leading and trailing  ",
    "tabs\tand\r\nnew\n\n\nlines",
    "größer, 日本語, 🙂, \u0000\x7f",
    "def f(x):\n        return x  # <|end_of_text|> is text here, <|begin_of_text|> too",
    "",
]


def test_any_text_comes_back_and_holds_no_special_token(small_data):
    tokenizer = open_tokenizer(small_data.tokenizer)
    for text, ids in zip(TEXTS, tokenizer.encode(TEXTS), strict=True):
        assert tokenizer.decode(ids) == text
        assert not set(ids) & set(range(len(SPECIAL_TOKENS)))
    [ids] = tokenizer.encode_documents(["x"])
    assert (ids[0], ids[-1]) == (tokenizer.bos_id, tokenizer.eos_id) == (0, 1)


def test_levanter_opens_it(small_data):
    from levanter.tokenizers import load_tokenizer

    theirs, ours = load_tokenizer(small_data.tokenizer), open_tokenizer(small_data.tokenizer)
    assert (theirs.bos_token_id, theirs.eos_token_id, theirs.vocab_size) == (ours.bos_id, ours.eos_id, 270)
    assert theirs.encode("alpha beta", add_special_tokens=False) == ours.encode(["alpha beta"])[0]


def test_equal_text_gives_equal_bytes(small_data, tmp_path):
    train_tokenizer(TokenizerConfig(documents=small_data.documents, vocab_size=270), str(tmp_path))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / name).read_bytes() == Path(small_data.tokenizer, name).read_bytes()


def test_the_vocabulary_has_the_size_asked_for(small_data, tmp_path):
    with pytest.raises(ValueError, match=r"expected at least 256 bytes \+ 4 special tokens = 260, found 100"):
        TokenizerConfig(documents={}, vocab_size=100)
    with pytest.raises(ValueError, match=r"the text gives \d+ entries, vocab_size asks for 9000"):
        train_tokenizer(TokenizerConfig(documents=small_data.documents, vocab_size=9000), str(tmp_path))


def test_a_folder_is_imported(small_data, tmp_path):
    result = import_tokenizer(PretrainedTokenizerConfig(directory=small_data.tokenizer), str(tmp_path / "copy"))
    assert result == {"vocab_size": 270}
    assert open_tokenizer(str(tmp_path / "copy")).encode(TEXTS) == open_tokenizer(small_data.tokenizer).encode(TEXTS)


def test_a_folder_that_is_none_says_what_is_missing(small_data, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"expected tokenizer.json and tokenizer_config.json, found neither"):
        import_tokenizer(PretrainedTokenizerConfig(directory=str(tmp_path)), str(tmp_path / "copy"))
    shutil.copytree(small_data.tokenizer, tmp_path / "no_eos")
    settings = json.loads((tmp_path / "no_eos" / "tokenizer_config.json").read_text()) | {"eos_token": "<nothing>"}
    (tmp_path / "no_eos" / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match="eos_token is '<nothing>', expected an entry of the vocabulary"):
        import_tokenizer(PretrainedTokenizerConfig(directory=str(tmp_path / "no_eos")), str(tmp_path / "copy"))
    with pytest.raises(ValueError, match="either directory or id"):
        PretrainedTokenizerConfig()


def test_an_id_without_a_network_says_what_to_do(tmp_path, monkeypatch):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(
        ConnectionError, match=r"(?s)nobody/nothing at revision abc: not in the local .*directory=adopt"
    ):
        import_tokenizer(PretrainedTokenizerConfig(id="nobody/nothing", revision="abc"), str(tmp_path))
