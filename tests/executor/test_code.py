"""What changes the code of a step, and what does not; found without importing anything."""

import importlib
import sys

import pytest

from executor.keys import names
from executor.keys.code import forget, reach

FILES = {
    "pack/__init__.py": "",
    "pack/step.py": """
        import math
        from pack import constants
        from pack.near import helper as aid

        class Config:
            def scaled(self):
                return constants.SCALE

        def unrelated():
            return 1

        def work(config, output):
            from pack.lazy import late
            local = [helper for helper in range(3)]
            return aid(late(math.pi)), local
        """,
    "pack/near.py": "from .far import deep\ndef helper(x):\n    return deep(x)\n",
    "pack/far.py": "LIMIT = 3\nOTHER = 4\ndef deep(x):\n    return x + LIMIT\ndef unused(x):\n    return OTHER\n",
    "pack/lazy.py": "import numpy_is_never_imported as np\ndef late(x):\n    return np.sum(x)\n",
    "pack/constants.py": "SCALE = 1\nUNUSED = 2\n",
}


def fingerprints(project, **changes):
    """Fingerprints with `old -> new` replaced in some files (`far` for pack/far.py)."""
    for name, text in FILES.items():
        for file, (old, new) in changes.items():
            if name == f"pack/{file}.py":
                assert old in text
                text = text.replace(old, new)
        project.write(name, text, header=False)
    project.forget()
    sys.path.insert(0, str(project.root))
    module = importlib.import_module("pack.step")
    forget()
    found = reach((module.work, module.Config)).fingerprints
    assert "pack.lazy" not in sys.modules
    return found


def test_reaches_over_modules_and_into_function_bodies(project):
    assert set(fingerprints(project)) == {
        "pack.step.work",
        "pack.step.Config",
        "pack.step.Config.scaled",
        "pack.near.helper",
        "pack.far.deep",
        "pack.far.LIMIT",
        "pack.lazy.late",
        "pack.constants.SCALE",
    }


@pytest.mark.parametrize(
    "change",
    [
        {"step": ("return 1", "return 2")},
        {
            "step": (
                "def work(config, output):",
                'def work(config: int, output: str) -> None:\n    """Words."""\n    # more',
            )
        },
        {"step": ("aid(late(math.pi))", "aid(  late( math.pi ) )")},
        {"far": ("return OTHER", "return OTHER + 1")},
        {"far": ("OTHER = 4", "OTHER = 5")},
        {"far": ("LIMIT = 3", "LIMIT: int = 3  # three")},
        {"constants": ("UNUSED = 2", "UNUSED = 3")},
        {"far": ("LIMIT = 3", "\n\n\nLIMIT = 3")},
    ],
)
def test_what_does_not_count(project, change):
    change = {file: (old, new.replace("\n    ", "\n            ")) if file == "step" else (old, new) for file, (old, new) in change.items()}  # fmt: skip  # noqa: E501
    assert fingerprints(project, **change) == fingerprints(project)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"far": ("x + LIMIT", "x - LIMIT")}, "pack.far.deep"),
        ({"far": ("LIMIT = 3", "LIMIT = 4")}, "pack.far.LIMIT"),
        ({"lazy": ("np.sum", "np.prod")}, "pack.lazy.late"),
        ({"step": ("return constants.SCALE", "return -constants.SCALE")}, "pack.step.Config.scaled"),
        ({"constants": ("SCALE = 1", "SCALE = 1.0")}, "pack.constants.SCALE"),
        ({"constants": ("SCALE = 1", "SCALE = 1\nSCALE += 1")}, "pack.constants.SCALE"),
        ({"step": ("range(3)", "range(4)")}, "pack.step.work"),
    ],
)
def test_what_counts_and_its_name(project, change, name):
    before, after = fingerprints(project), fingerprints(project, **change)
    assert {found for found in before if before[found] != after[found]} == {name}


PINNED = """
    {imports}

    @{pin}("pack.aged")
    class Aged:
        def scaled(self):
            return helper(1)

    @{pin}("pack.worker")
    def work(config, output):
        return Aged

    def helper(x):
        return x
    """


def test_pinned_code_keeps_its_name_when_it_moves(project, monkeypatch):
    sys.path.insert(0, str(project.root))
    found = []
    for name, imports, pin in (
        ("toy_here", "from executor import identity", "identity"),
        ("toy_there", "import executor", "executor.identity"),
    ):
        project.write(f"{name}.py", PINNED.format(imports=imports, pin=pin), header=False)
        project.forget()
        monkeypatch.setattr(names, "_pins", {})
        module = importlib.import_module(name)
        found.append(reach((module.work,)).fingerprints)
    here, there = found
    assert set(here) == {"pack.worker", "pack.aged", "pack.aged.scaled", "toy_here.helper"}
    assert here["pack.aged.scaled"] == there["pack.aged.scaled"]
    assert set(here) ^ set(there) == {"toy_here.helper", "toy_there.helper"}
