"""Real text from the running interpreter's own library, as prose, docstrings or code.

Modules are parsed, never imported. Left out: tests, demonstrations, tables (`encodings`), what is installed beside
the library, and what was generated for one machine (`_sysconfigdata*`).
"""

import ast
import dataclasses
import functools
import inspect
import platform
import re
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

from steps.corpus.documents import Document, Malformed

SKIPPED_FOLDERS = frozenset(
    {"__pycache__", "dist-packages", "encodings", "ensurepip", "idle_test", "lib-dynload", "pydoc_data",
     "site-packages", "test", "tests", "turtledemo"}
)  # fmt: skip
SKIPPED_FILES = ("_sysconfigdata", "sitecustomize", "usercustomize", "_distutils_system_mod")
MIN_DOCSTRING_CHARACTERS = 20
MIN_SECTION_CHARACTERS = 400

_HEADING = re.compile(r"(?m)^(?=[^\n]+\n([*=~-])\1{2,}\n)")
_BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")
_Owned = tuple[tuple[str, ...], ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]


def read_interpreter(kind: str, python_version: str) -> Iterator[Document | Malformed]:
    """Documents of one kind, in the order of their files; the running version must be the one asked for."""
    running = platform.python_version()
    if running != python_version:
        raise ValueError(
            f"InterpreterSource.python_version: expected {python_version}, this interpreter is {running}; run with "
            f"python {python_version}, or ask for {running}"
        )
    library = Path(sysconfig.get_path("stdlib"))
    if kind == "prose":
        yield from _prose(library)
        return
    for module in _modules(library):
        if kind == "docstrings":
            yield from module.docstrings
        elif module.code is not None:
            yield module.code


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Module:
    """What one file of the library gives: its docstrings, and its code without them."""

    docstrings: tuple[Document | Malformed, ...]
    code: Document | Malformed | None


@functools.lru_cache(maxsize=1)
def _modules(library: Path) -> tuple[_Module, ...]:
    """Every module that is kept, in the order of their paths; parsed once for both kinds of documents."""
    names = []
    for path in library.rglob("*.py"):
        name = path.relative_to(library)
        folders = name.parts[:-1]
        if SKIPPED_FOLDERS.isdisjoint(folders) and not any(folder.startswith("config-") for folder in folders):
            names.append(name.as_posix())
    kept = sorted(name for name in names if not name.rpartition("/")[2].startswith(SKIPPED_FILES))
    return tuple(_read_module(name, (library / name).read_bytes()) for name in kept)


def _read_module(name: str, source: bytes) -> _Module:
    source = source.replace(b"\r\n", b"\n")
    try:
        source.decode()
        tree = _parse(source)
    except (UnicodeDecodeError, SyntaxError) as error:
        bad = Malformed(file=name, line=getattr(error, "lineno", None) or 1, problem=f"is not a module: {error}")
        return _Module(docstrings=(bad,), code=bad)
    owners = list(_owners(tree))
    text = without_docstrings(source, owners).decode().strip("\n")
    return _Module(
        docstrings=tuple(_docstrings(name, owners)),
        code=Document(text=text + "\n", source=name) if text.strip() else None,
    )


def _parse(source: bytes) -> ast.Module:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in somebody else's strings
        return ast.parse(source)


def _prose(library: Path) -> Iterator[Document]:
    """Sections of the language reference that `help()` shows; short ones stay with the one before."""
    tree = _parse((library / "pydoc_data" / "topics.py").read_bytes())
    [topics] = [ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign)]
    for topic in sorted(topics):
        sections: list[str] = []
        for piece in _HEADING.split(topics[topic])[::2]:
            if sections and len(sections[-1]) < MIN_SECTION_CHARACTERS:
                sections[-1] += piece
            else:
                sections.append(piece)
        if len(sections) > 1 and len(sections[-1]) < MIN_SECTION_CHARACTERS:
            sections[-2:] = ["".join(sections[-2:])]
        for number, section in enumerate(sections, start=1):
            if text := section.strip():
                yield Document(text=text, source=f"pydoc_data/topics.py:{topic}:{number}")


def _docstrings(name: str, owners: Sequence[_Owned]) -> Iterator[Document]:
    module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    for path, owner in owners:
        text = ast.get_docstring(owner, clean=False)
        text = inspect.cleandoc(text) if text else ""
        if len(text) < MIN_DOCSTRING_CHARACTERS or not _is_unicode(text):
            continue
        extra = {"name": ".".join([module, *path])}
        if isinstance(owner, ast.FunctionDef | ast.AsyncFunctionDef):
            extra["signature"] = f"{owner.name}({ast.unparse(owner.args)})"
        yield Document(text=text, source=":".join([name, ".".join(path)]) if path else name, extra=extra)


def _is_unicode(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _owners(tree: ast.Module) -> Iterator[_Owned]:
    """(qualified path, node) of everything that may carry a docstring, in the order of the source."""
    stack: list[tuple[tuple[str, ...], ast.AST]] = [((), tree)]
    while stack:
        path, node = stack.pop()
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            path = (*path, node.name)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield path, node
        inner = [child for field in _BLOCKS for child in getattr(node, field, ())]
        stack.extend((path, child) for child in reversed(inner))


def without_docstrings(source: bytes, owners: Sequence[_Owned]) -> bytes:
    """The source with every docstring cut out, still valid: `pass` stands where nothing else would."""
    lines = source.split(b"\n")
    for _, owner in reversed(owners):
        if ast.get_docstring(owner, clean=False) is None:
            continue
        node = owner.body[0]
        assert node.end_lineno is not None and node.end_col_offset is not None
        first, last = node.lineno - 1, node.end_lineno - 1
        before, after = lines[first][: node.col_offset], lines[last][node.end_col_offset :]
        alone = not before.strip() and (not after.strip() or after.strip().startswith(b"#"))
        if alone and (len(owner.body) > 1 or isinstance(owner, ast.Module)):
            lines[first : last + 1] = []
        else:
            lines[first : last + 1] = [before + b"pass" + after]
    return b"\n".join(lines)
