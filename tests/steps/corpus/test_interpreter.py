import ast
import platform
import subprocess
import sys

import pytest

from steps.corpus import CorpusConfig, InterpreterSource, collect
from steps.corpus.documents import read_documents
from steps.corpus.interpreter import _owners, _parse, without_docstrings

KINDS = ("prose", "docstrings", "code")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    output = tmp_path_factory.mktemp("corpus")
    version = platform.python_version()
    domains = {kind: InterpreterSource(kind=kind, python_version=version) for kind in KINDS}
    return output, collect(CorpusConfig(domains=domains), str(output))


def documents(corpus, domain, split):
    return list(read_documents(f"{corpus[0]}/{domain}/{split}.jsonl"))


def test_each_domain_is_real_text_with_enough_held_out(corpus):
    _, result = corpus
    assert result["prose"]["train"]["bytes"] > 300_000
    assert result["prose"]["validation"]["documents"] >= 10
    assert result["docstrings"]["train"]["documents"] > 5_000
    assert result["code"]["train"]["bytes"] > 4_000_000
    for domain in KINDS:
        train, validation = result[domain]["train"], result[domain]["validation"]
        assert 0.02 < validation["documents"] / (train["documents"] + validation["documents"]) < 0.12
        assert result[domain]["malformed"] == 0


def test_no_text_twice_and_no_machine_in_sources(corpus):
    ids = []
    for domain in KINDS:
        for split in ("train", "validation"):
            for document in documents(corpus, domain, split):
                ids.append(document["id"])
                assert not document["source"].startswith("/") and sys.prefix not in document["source"]
                assert not {"test", "tests", "idle_test", "encodings"} & set(
                    document["source"].split(":")[0].split("/")
                )
    assert len(ids) == len(set(ids))


def test_docstrings_have_a_name_and_a_signature(corpus):
    by_name = {row["name"]: row for split in ("train", "validation") for row in documents(corpus, "docstrings", split)}
    decode = by_name["json.decoder.JSONDecoder.decode"]
    assert decode["text"].startswith("Return the Python representation of")
    assert decode["source"] == "json/decoder.py:JSONDecoder.decode"
    assert decode["signature"].startswith("decode(self, s")
    assert all(len(row["text"]) >= 20 for row in by_name.values())


def test_held_out_docstrings_do_not_stand_in_the_code(corpus):
    code = "\n".join(row["text"] for row in documents(corpus, "code", "train"))
    long = [row["text"] for row in documents(corpus, "docstrings", "validation") if len(row["text"]) > 200]
    indented = [text for text in long if text.replace("\n", "\n    ") in code or text in code]
    assert len(long) > 50
    assert len(indented) <= 0.02 * len(long)


def test_code_without_docstrings_is_still_code(corpus):
    for row in documents(corpus, "code", "validation"):
        tree = _parse(row["text"].encode())
        assert not any(ast.get_docstring(owner) for _, owner in _owners(tree))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('"""Doc."""\nx = 1\n', "x = 1\n"),
        ('def f():\n    """Doc\n    more."""\n    return 1\n', "def f():\n    return 1\n"),
        ('def f():\n    "Doc."\n', "def f():\n    pass\n"),
        ('class A:\n    """Ünï."""  # why\n', "class A:\n    pass  # why\n"),
        ('def f(): "doc"; return 2\n', "def f(): pass; return 2\n"),
        (
            'if x:\n    def f():\n        r"""Doc."""\n        y = """kept"""\n',
            'if x:\n    def f():\n        y = """kept"""\n',
        ),
        (
            'try:\n    pass\nexcept E:\n    class A:\n        "D"\n',
            "try:\n    pass\nexcept E:\n    class A:\n        pass\n",
        ),
    ],
)
def test_cutting_docstrings(source, expected):
    found = without_docstrings(source.encode(), list(_owners(ast.parse(source)))).decode()
    assert found == expected
    ast.parse(found)


def test_another_version_is_an_error_that_says_what_to_do(tmp_path):
    config = CorpusConfig(domains={"code": InterpreterSource(kind="code", python_version="2.7.18")})
    with pytest.raises(
        ValueError, match=r"expected 2.7.18, this interpreter is .*; run with python 2.7.18, or ask for"
    ):
        collect(config, str(tmp_path))


def test_configs_import_nothing_heavy():
    modules = "steps.corpus, steps.tokenizer, steps.tokenize, steps.mixture, steps.instruction_pairs"
    modules += ", steps.conversations, steps.multiple_choice"
    heavy = "{'jax', 'numpy', 'levanter', 'tokenizers', 'fsspec', 'pyarrow', 'ray', 'huggingface_hub'}"
    code = f"import sys, {modules}; print(sorted({heavy} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
