"""Eight virtual CPU devices, asked for before anything imports JAX; and a small project in a temporary folder.

`project` holds recipes as text, loaded, planned and run in this process or in one of their own.
"""

import importlib
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

FLAG = "--xla_force_host_platform_device_count"

if FLAG not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FLAG}=8".strip()

from executor.code import forget  # noqa: E402
from executor.planner import make_plan  # noqa: E402
from executor.recipe import load  # noqa: E402
from executor.run import RunOptions, run_experiment  # noqa: E402
from executor.store import Store  # noqa: E402

HEADER = """
import dataclasses, os, time
from executor import *
from executor import current, resolved

def put(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)

def get(path):
    with open(path) as file:
        return file.read()

class Scales:
    @classmethod
    def at_scale(cls, scale):
        if scale not in ("laptop", "full"):
            raise ValueError("the scales are laptop and full")
        return cls()
"""


class Project:
    """One folder with recipes and a store."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.prefix = str(root / "store")
        self.events: list = []
        (root / "pyproject.toml").write_text("")

    def write(self, name: str, text: str, header: bool = True) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text((HEADER if header else "") + textwrap.dedent(text))
        return path

    def forget(self) -> None:
        """Drop the project's modules, as a new process would."""
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if file and Path(file).is_relative_to(self.root):
                del sys.modules[name]
        importlib.invalidate_caches()
        shutil.rmtree(self.root / "__pycache__", ignore_errors=True)
        forget()

    def recipe(self, name: str = "toy_recipe.py"):
        self.forget()
        return load(str(self.root / name))

    @property
    def store(self) -> Store:
        return Store(self.prefix)

    def plan(self, *overrides: str, name: str = "toy_recipe.py", **selection) -> dict:
        recipe = self.recipe(name)
        experiment = recipe.experiment("laptop", overrides)
        plan = make_plan(experiment, self.store, recipe=recipe.name, scale="laptop", **selection)
        return {step.name: step for step in plan.steps}

    def run(self, *overrides: str, name: str = "toy_recipe.py", **options):
        recipe = self.recipe(name)
        self.events = []
        return run_experiment(
            recipe.experiment("laptop", overrides),
            self.store,
            recipe=recipe,
            scale="laptop",
            options=RunOptions(**{"inline": True, **options}),
            listener=self.events.append,
        )

    def python(self, code: str, *arguments: str, **options) -> subprocess.Popen:
        """A process of its own; its stdout is read by the caller."""
        return subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code), *arguments],
            cwd=self.root,
            stdout=subprocess.PIPE,
            text=True,
            **options,
        )


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = Project(tmp_path)
    path = list(sys.path)
    yield found
    found.forget()
    sys.path[:] = path
