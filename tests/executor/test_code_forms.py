# ruff: noqa: E501 - code as text
"""Forms of Python through which a step reaches code: each one counts when what it reaches changes.

Every case is a small package, one edit, and the units whose fingerprints the edit changes (none: it must not count).
"""

import dataclasses
import importlib
import subprocess
import sys
import textwrap

import pytest

from executor.keys.code import Valued, forget, reach


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """`files` by name under `pack/`; `edit` is (file, old, new); `changed` are units, below `pack.`"""

    files: dict[str, str]
    edit: tuple[str, str, str]
    changed: set[str]


def one(text: str, old: str, new: str, *changed: str, **others: str) -> Case:
    """A case that edits `step.py`, or the first file that holds `old`."""
    files = {"step.py": textwrap.dedent(text), **{f"{name}.py": textwrap.dedent(body) for name, body in others.items()}}
    file = next(name for name, body in files.items() if old in body)
    return Case(files=files, edit=(file, old, new), changed=set(changed))


CASES = {
    "decorator": one(
        """
        from functools import wraps
        def timed(f):
            @wraps(f)
            def inner(*a):
                return f(*a) + 1
            return inner
        @timed
        def work(c, o):
            return 1
        """,
        "f(*a) + 1", "f(*a) + 2", "step.timed",
    ),
    "cached function": one(
        """
        import functools
        @functools.cache
        def table():
            return 1
        def work(c, o):
            return table()
        """,
        "return 1", "return 2", "step.table",
    ),
    "cached step function": one(
        """
        import functools
        @functools.cache
        def work(c, o):
            return 1
        """,
        "return 1", "return 2", "step.work",
    ),
    "default argument": one("LIMIT = 1\ndef work(c, o, n=LIMIT):\n    return n\n", "LIMIT = 1", "LIMIT = 2", "step.LIMIT"),
    "nested function": one(
        """
        def work(c, o):
            def inner():
                return 1
            return inner()
        """,
        "return 1", "return 2", "step.work",
    ),
    "method of a base class elsewhere": one(
        "from pack.base import Base\nclass Sub(Base):\n    pass\ndef work(c, o):\n    return Sub().run()\n",
        "return 1", "return 2", "base.Base.run",
        base="class Base:\n    def run(self):\n        return 1\n",
    ),
    "base class by module": one(
        "import pack.base\nclass Sub(pack.base.Base):\n    pass\ndef work(c, o):\n    return Sub().run()\n",
        "return 1", "return 2", "base.Base.run",
        base="class Base:\n    def run(self):\n        return 1\n",
    ),
    "class method": one(
        """
        class Maker:
            @classmethod
            def make(cls):
                return 1
        def work(c, o):
            return Maker.make()
        """,
        "return 1", "return 2", "step.Maker.make",
    ),
    "static method and property": one(
        """
        class Maker:
            @staticmethod
            def make():
                return 1
            @property
            def made(self):
                return 2
            @made.setter
            def made(self, value):
                self.x = 3
        def work(c, o):
            return Maker().made
        """,
        "self.x = 3", "self.x = 4", "step.Maker.made",
    ),
    "constant of a class": one(
        "class K:\n    SIZE = 1\n    def f(self):\n        return self.SIZE\ndef work(c, o):\n    return K().f()\n",
        "SIZE = 1", "SIZE = 2", "step.K",
    ),
    "enum": one(
        "import enum\nclass E(enum.Enum):\n    A = 1\ndef work(c, o):\n    return E.A.value\n", "A = 1", "A = 2", "step.E"
    ),
    "nested class": one(
        """
        class Outer:
            class Inner:
                def f(self):
                    return 1
        def work(c, o):
            return Outer.Inner().f()
        """,
        "return 1", "return 2", "step.Outer.Inner.f",
    ),
    "chain of attributes": one(
        "import pack.near\ndef work(c, o):\n    return pack.near.helper()\n",
        "return 1", "return 2", "near.helper",
        near="def helper():\n    return 1\ndef other():\n    return 3\n",
    ),
    "chain over a package that imports its module": one(
        "import pack\ndef work(c, o):\n    return pack.near.helper()\n",
        "return 1", "return 2", "near.helper",
        near="def helper():\n    return 1\n", __init__="from . import near\n",
    ),
    "module from a package that imports it": one(
        "from pack import near\ndef work(c, o):\n    return near.helper()\n",
        "return 1", "return 2", "near.helper",
        near="def helper():\n    return 1\n", __init__="from . import near\n",
    ),
    "only the function that is read from a module": one(
        "from pack import near as n\ndef work(c, o):\n    return n.helper()\n",
        "return 3", "return 4",
        near="def helper():\n    return 1\ndef other():\n    return 3\n", __init__="from . import near\n",
    ),
    "package offers a module under another name": one(
        "from pack import other\ndef work(c, o):\n    return other.helper()\n",
        "return 1", "return 2", "near.helper",
        near="def helper():\n    return 1\n", __init__="from . import near as other\n",
    ),
    "package offers a function": one(
        "from pack import helper\ndef work(c, o):\n    return helper()\n",
        "return 1", "return 2", "near.helper",
        near="def helper():\n    return 1\n", __init__="from .near import helper\n",
    ),
    "package offers a function with a star": one(
        "import pack\ndef work(c, o):\n    return pack.helper()\n",
        "return 1", "return 2", "far.helper",
        near="from .far import *\n", far="def helper():\n    return 1\n", __init__="from .near import *\n",
    ),
    "star import": one(
        "from pack.near import *\ndef work(c, o):\n    return len(helper())\n",
        "return 1", "return 2", "near.helper",
        near="def helper():\n    return 1\n",
    ),
    "relative import": one(
        "from . import near\nfrom .near import helper as h\ndef work(c, o):\n    return h()\n",
        "return 1", "return 2", "near.helper",
        near="def helper():\n    return 1\n",
    ),
    "function chosen by a condition": one(
        "import sys\nif sys.maxsize > 1:\n    def f():\n        return 1\nelse:\n    def f():\n        return 3\n"
        "def work(c, o):\n    return f()\n",
        "return 3", "return 4", "step.f",
    ),
    "import chosen by a constant": one(
        "FAST = True\nif FAST:\n    from pack.near import f\nelse:\n    from pack.far import f\n"
        "def work(c, o):\n    return f()\n",
        "FAST = True", "FAST = False", "step.FAST",
        near="def f():\n    return 1\n", far="def f():\n    return 2\n",
    ),
    "import in a try": one(
        "try:\n    from pack.near import f\nexcept ImportError:\n    from pack.far import f\ndef work(c, o):\n    return f()\n",
        "return 1", "return 3", "near.f",
        near="def f():\n    return 1\n", far="def f():\n    return 2\n",
    ),
    "import in a try in a function": one(
        """
        def work(c, o):
            try:
                from pack.near import f
            except ImportError:
                from pack.far import f
            return f()
        """,
        "return 1", "return 3", "near.f",
        near="def f():\n    return 1\n", far="def f():\n    return 2\n",
    ),
    "constants of one assignment": one(
        "A, (B, *C) = 1, (2, 3)\ndef work(c, o):\n    return B\n", "(2, 3)", "(4, 3)", "step.B"
    ),
    "walrus": one("if (LIMIT := 1) > 0:\n    pass\ndef work(c, o):\n    return LIMIT\n", ":= 1", ":= 2", "step.LIMIT"),
    "match": one(
        "match (1, 2):\n    case (A, B):\n        C = A\ndef work(c, o):\n    return C + B\n",
        "(1, 2)", "(1, 3)", "step.A", "step.B", "step.C",
    ),
    "loop that fills a table": one(
        "T = {}\nfor n in range(3):\n    T[n] = n\ndef work(c, o):\n    return T\n", "range(3)", "range(4)", "step.T", "step.n"
    ),
    "table handed to a function": one(
        "T = {}\ndef fill(t):\n    t[1] = 1\nfill(T)\ndef work(c, o):\n    return T\n", "t[1] = 1", "t[1] = 2", "step.fill"
    ),
    "class changed after it was made": one(
        "class K:\n    SIZE = 1\n    def f(self):\n        return self.SIZE\nK.SIZE = 2\ndef work(c, o):\n    return K().f()\n",
        "K.SIZE = 2", "K.SIZE = 3", "step.K",
    ),
    "table filled by its own decorator": one(
        "class Table(dict):\n    def add(self, f):\n        self[f.__name__] = f\nT = Table()\n@T.add\ndef alpha():\n    return 1\n"
        "def work(c, o):\n    return T[c]()\n",
        "return 1", "return 2", "step.T",
    ),
    "generic function": one(
        "import functools\n@functools.singledispatch\ndef f(x):\n    return 0\n@f.register\ndef _(x: int):\n    return 1\n"
        "@functools.cache\ndef other():\n    return 3\ndef work(c, o):\n    return f(c)\n",
        "return 1", "return 2", "step.f",
    ),
    "another function with the same decorator": one(
        "import functools\n@functools.cache\ndef f():\n    return 0\n@functools.cache\ndef other():\n    return 3\n"
        "def work(c, o):\n    return f(), functools\n",
        "return 3", "return 4",
    ),
    "global set by a function": one(
        "X = 0\ndef setup():\n    global X\n    X = 1\nsetup()\ndef work(c, o):\n    return X\n", "X = 1", "X = 2", "step.X"
    ),
    "table of functions": one(
        "def f():\n    return 1\nTABLE = {'a': f}\ndef work(c, o):\n    return TABLE['a']()\n",
        "return 1", "return 2", "step.f",
    ),
    "table by module": one(
        "from pack import near\ndef work(c, o):\n    return near.TABLE['a']()\n",
        "return 1", "return 2", "near.f",
        near="def f():\n    return 1\nTABLE = {'a': f}\n",
    ),
    "alias": one("def f():\n    return 1\ng = f\ndef work(c, o):\n    return g()\n", "return 1", "return 2", "step.f"),
    "partial in a constant": one(
        "import functools\ndef f(x):\n    return x\nP = functools.partial(f, 1)\ndef work(c, o):\n    return P()\n",
        "return x", "return -x", "step.f",
    ),
    "getattr on a module": one(
        "import pack.near as near\ndef work(c, o):\n    return getattr(near, c)()\n",
        "return 1", "return 2", "near.f",
        near="def f():\n    return 1\n",
    ),
    "getattr on a package": one(
        "import pack\ndef work(c, o):\n    return getattr(pack, c)()\n",
        "return 1", "return 2", "near.f",
        near="def f():\n    return 1\n", __init__="from .near import f\n",
    ),
    "a package's own __getattr__": one(
        "import pack\ndef work(c, o):\n    return pack.late()\n",
        "return 1", "return 2", "__getattr__",
        __init__="def __getattr__(name):\n    if name == 'late':\n        return lambda: 1\n    return 1\n",
    ),
    "default of a dataclass that only code makes": one(
        "import dataclasses\n@dataclasses.dataclass\nclass State:\n    rate: float = 1.0\n"
        "def work(c, o):\n    return State().rate\n",
        "= 1.0", "= 2.0", "step.State.__dataclass_fields__",
    ),
    "default_factory of a dataclass that only code makes": one(
        "import dataclasses\ndef fresh():\n    return 1\n@dataclasses.dataclass\nclass State:\n"
        "    rate: int = dataclasses.field(default_factory=fresh)\ndef work(c, o):\n    return State().rate\n",
        "return 1", "return 2", "step.fresh",
    ),
    "order of the fields of a named tuple": one(
        "import typing\nclass Pair(typing.NamedTuple):\n    a: int\n    b: int\ndef work(c, o):\n    return Pair(1, 2).a\n",
        "    a: int\n    b: int", "    b: int\n    a: int", "step.Pair",
    ),
    "augmented global": one(
        "N = 1\ndef bump():\n    global N\n    N += STEP\nSTEP = 1\ndef work(c, o):\n    bump()\n", "STEP = 1", "STEP = 2", "step.STEP"
    ),
    "lambda": one("f = lambda x: x + 1\ndef work(c, o):\n    return f(1)\n", "x + 1", "x + 2", "step.f"),
    "comprehension variable of the name of a function": one(
        "def f():\n    return 1\ndef work(c, o):\n    return [f for f in range(3)]\n", "return 1", "return 2"
    ),
    "local of the name of a function": one(
        "def f():\n    return 1\ndef work(c, o):\n    f = 3\n    return f\n", "return 1", "return 2"
    ),
    "annotation": one("class T:\n    x = 1\ndef work(c: T, o: T) -> T:\n    y: T = c\n    return y\n", "x = 1", "x = 2"),
    "local that is only declared": one("def work(c, o):\n    return 1\n", "return 1", "x: int\n    return 1"),
    "docstring and comment": one("def work(c, o):\n    return 1\n", "return 1", '"""Words."""  # more\n    return 1'),
    "for the type checker only": one(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pack.near import f\n"
        "def work(c, o) -> 'f':\n    return 1\n",
        "return 7", "return 8", near="def f():\n    return 7\n",
    ),
    "what runs only in a script": one(
        "T = []\ndef work(c, o):\n    return T\nif __name__ == '__main__':\n    T.append(1)\n", "append(1)", "append(2)"
    ),
    "position": one("def work(c, o):\n    return 1\n", "def work", "def before():\n    return 0\n\n\ndef work"),
    "formatting": one("def work(c, o):\n    return (1, 2)\n", "return (1, 2)", "return (\n        1,\n        2,\n    )"),
}  # fmt: skip


@pytest.fixture
def units(tmp_path, monkeypatch):
    """Writes a package, imports its `step` and gives the units that `work` reaches."""
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "pack").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def forget_modules() -> None:
        for name in [name for name in sys.modules if name == "pack" or name.startswith("pack.")]:
            del sys.modules[name]
        forget()

    def found(files: dict[str, str]) -> dict[str, str]:
        for name, text in {"__init__.py": "", **files}.items():
            (tmp_path / "pack" / name).write_text(text)
        forget_modules()
        importlib.invalidate_caches()
        return reach([importlib.import_module("pack.step").work]).units

    yield found
    forget_modules()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_each_form_counts(units, case):
    before = units(case.files)
    file, old, new = case.edit
    assert old in case.files[file]
    after = units({**case.files, file: case.files[file].replace(old, new, 1)})
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    assert changed == {f"pack.{name}" for name in case.changed}


CONFIG = """
    import dataclasses
    from executor import added, execution

    @dataclasses.dataclass
    class Base:
        depth: int = 1
        def scaled(self):
            return self.depth

    @dataclasses.dataclass
    class Config(Base):
        width: int = 1

        @dataclasses.dataclass
        class Inner:
            size: int = 1

    def work(config, output):
        return isinstance(config, Config)
    """


@pytest.mark.parametrize("old", ["depth: int = 1", "width: int = 1", "size: int = 1"])
def test_fields_of_classes_with_values_in_the_config_are_no_code(units, old):
    """hamilton#1250: a field added to a config class, its bases or a class inside it."""

    def fingerprints(text: str) -> dict[str, str]:
        units({"step.py": textwrap.dedent(text)})
        module = sys.modules["pack.step"]
        return reach([module.work, Valued(module.Config), Valued(module.Config.Inner)]).units

    before = fingerprints(CONFIG)
    assert "pack.step.Base.scaled" in before
    assert fingerprints(CONFIG.replace(old, f"{old}\n        more: int = 2")) == before


@pytest.mark.parametrize("line", ["z: float = added(default=0.0, born=0.0)", "workers: int = execution(8)"])
def test_fields_declared_to_change_nothing_are_no_code_anywhere(units, line):
    text = textwrap.dedent(CONFIG)
    before = units({"step.py": text})
    assert "pack.step.Config.__dataclass_fields__" in before
    assert units({"step.py": text.replace("    width: int = 1", f"    width: int = 1\n    {line}")}) == before
    moved = text.replace("    width: int = 1", "    width: int = 1\n    z: float = added(default=1.0, born=0.0)")
    assert units({"step.py": moved}) != before


def test_a_helper_beside_the_recipe_s_folder_is_code_of_the_project(project):
    """A recipe in a folder that is no package, a helper in another one of the same project."""
    project.write(
        "recipes/loose_recipe.py", "from lib.helper import aid\ndef work(c, o):\n    return aid()\n", header=False
    )
    project.write("lib/helper.py", "def aid():\n    return 1\n", header=False)
    code = """
        import sys, importlib.util
        sys.path.append(sys.argv[1])
        spec = importlib.util.spec_from_file_location("loose_recipe", sys.argv[1] + "/recipes/loose_recipe.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules["loose_recipe"] = module
        spec.loader.exec_module(module)
        from executor.keys.code import reach
        print(*reach([module.work]).units)
        """
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(project.root)],
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
    )
    assert found.stdout.split() == ["lib.helper.aid", "loose_recipe.work"]


def test_installed_packages_are_not_followed(units):
    found = units({"step.py": "import json, tenacity\ndef work(c, o):\n    return json.dumps(tenacity.retry)\n"})
    assert set(found) == {"pack.step.work"}


def test_pinning_the_name_that_a_thing_has_changes_nothing(units):
    text = "class Aged:\n    def use(self):\n        return 1\ndef work(c, o):\n    return Aged\n"
    pinned = text.replace("class", '@identity("pack.step.Aged")\nclass').replace(
        "def work", '@identity("pack.step.work")\ndef work'
    )
    assert units({"step.py": "from executor import identity\n" + pinned}) == units({"step.py": text})
