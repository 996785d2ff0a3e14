"""What an attempt is run from: recipe, command line, commit with its changes, versions, machine.

Collected once a run, in the driver, and only when something will run. What only the worker can know (host, devices) it
adds itself.
"""

import dataclasses
import hashlib
import os
import platform
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from executor.history import git
from executor.keys.names import project_of_file
from executor.recipe import Recipe
from executor.secrets import redact

_MAIN = ("marinade", "marin-levanter", "jax", "jaxlib", "numpy", "ray", "tokenizers", "optax", "equinox")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Provenance:
    """What a run's attempts have in common.

    Attributes:
        facts: small JSON for every record.
        patch: text of the changes that no commit holds, without secrets.
        packages: every installed distribution -> version.
    """

    facts: dict[str, Any]
    patch: str
    packages: dict[str, str]

    @classmethod
    def of(cls, recipe: Recipe, scale: str, arguments: Sequence[str], run_id: str, prefix: str) -> "Provenance":
        """Raises nothing: where git fails the record says so. The store at `prefix` is no part of the patch."""
        commit = git.commit(recipe.root)
        found, problem = git.Patch(), ""
        if commit:
            try:
                found = git.patch(recipe.root, without=prefix if "://" not in prefix else "")
            except git.GitFailed as error:
                problem = str(error)
        patch = redact(found.text)
        installed = packages()
        facts: dict[str, Any] = {
            "run": run_id,
            "recipe": recipe.name,
            "module": recipe.module,
            "scale": scale,
            "arguments": list(arguments),
            "command": list(sys.argv),
            "folder": _folder(recipe) if commit else "",
            "commit": commit,
            "branch": git.branch(recipe.root) if commit else "",
            "modified": bool(found.text or found.left_out),
            "patch": patch_digest(patch),
            "python": platform.python_version(),
            "platform": platform.platform(),
            "driver": socket.gethostname(),
            "versions": {name: installed[name] for name in _MAIN if name in installed},
        }
        if problem:
            facts["patch_problem"] = problem
        if found.left_out:
            facts["patch_leaves_out"] = list(found.left_out)
        if patch != found.text:
            facts["patch_redacted"] = True
        return cls(facts=facts, patch=patch, packages=installed)


def devices() -> list[str]:
    """The accelerators (or CPU devices) that this process computed on: `4 x NVIDIA GB200 (gpu)`.

    Empty when it did not: asking JAX would start it, and take a GPU's memory, in processes that never wanted it.
    """
    bridge = sys.modules.get("jax._src.xla_bridge")
    if bridge is None or not bridge.backends_are_initialized():
        return []
    counts: dict[str, int] = {}
    for device in sys.modules["jax"].devices():
        kind = f"{device.device_kind} ({device.platform})"
        counts[kind] = counts.get(kind, 0) + 1
    return [f"{count} x {kind}" for kind, count in counts.items()]


def packages() -> dict[str, str]:
    """Every installed distribution -> version, read off the names of the folders that installers write: two hundred
    files of metadata need not be opened."""
    found: dict[str, str] = {}
    for folder in sys.path:
        for item in Path(folder or ".").glob("*.dist-info"):
            name, _, version = item.name.removesuffix(".dist-info").partition("-")
            found.setdefault(name.replace("_", "-").lower(), version)
    return dict(sorted(found.items()))


def patch_digest(patch: str) -> str:
    """Empty for no changes."""
    return "sha256:" + hashlib.sha256(patch.encode(errors="surrogateescape")).hexdigest() if patch else ""


def _folder(recipe: Recipe) -> str:
    """The project's place in its repository, `.` for the top."""
    project = project_of_file(Path(recipe.file))
    top = git.top(project)
    return Path(os.path.relpath(project, Path(top).resolve())).as_posix() if top else ""
