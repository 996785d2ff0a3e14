"""Recipes at git revisions: `recipes/hero_535b.py@main~2`, built in a process of their own.

    with files_of(repository, "main~2") as checkout:
        build_side(checkout, "recipes/hero_535b.py", scale="laptop")

The files of the revision lie in a temporary folder, first on that process's path; nothing in the user's checkout is
touched. Its own engine builds it where it can hand the steps over, else the one that runs now.
"""

import contextlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from executor.comparing.declared import UNKNOWN_SCALE
from executor.comparing.side import Side
from executor.errors import MarinadeError, UsageError
from executor.history import git

_ENGINE = Path(__file__).resolve().parents[1]
_DECLARED = Path("executor", "comparing", "declared.py")


def split(typed: str) -> tuple[str, str]:
    """`recipes/x.py@main~2` -> the recipe and the revision, empty for none; a file of that very name is no revision."""
    name, at, revision = typed.rpartition("@")
    if not at or not name.endswith(".py") or os.path.exists(typed):
        return typed, ""
    return name, revision


def side_at(typed: str, *, scale: str, overrides: Sequence[str] = ()) -> Side:
    """What the recipe declared at the revision that `typed` names.

    Raises UsageError where there is no repository, no such revision, no such file in it, or the recipe cannot be built.
    """
    name, revision = split(typed)
    file = Path(name).absolute()
    folder = next(parent for parent in file.parents if parent.is_dir())
    repository = repository_of(folder)
    path = file.parent.resolve().relative_to(repository.resolve()) / file.name
    with files_of(repository, revision) as checkout:
        if not (checkout / path).is_file():
            beside = sorted(found.name for found in (checkout / path).parent.glob("*.py"))
            raise UsageError(
                f"{typed}: there is no {path} at {revision}; beside it there {', '.join(beside) or 'is nothing'}"
            )
        try:
            side = build_side(checkout, str(path), scale=scale, overrides=overrides)
        except MarinadeError as error:
            raise UsageError(f"{typed}: {error}") from error
    if not side.steps:
        raise UsageError(f"{typed}: it knows no scale {scale} there")
    return Side(label=typed, steps=side.steps)


@contextlib.contextmanager
def files_of(repository: Path, revision: str) -> Iterator[Path]:
    """The files of a revision in a temporary folder. Raises UsageError where there is no such revision."""
    try:
        data = git.archive(repository, git.resolve(repository, revision))
    except git.GitFailed as error:
        raise UsageError(str(error)) from error
    with tempfile.TemporaryDirectory(prefix="marinade-revision-") as folder:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            archive.extractall(folder, filter="data")
        yield Path(folder).resolve()


def repository_of(folder: Path) -> Path:
    """The top of the git repository that a folder is in. Raises UsageError where there is none."""
    found = git.top(folder)
    if not found:
        raise UsageError(f"{folder} is in no git repository, so there are no revisions to compare")
    return Path(found)


def build_side(checkout: Path, recipe: str, *, scale: str, overrides: Sequence[str] = ()) -> Side:
    """What a checkout's recipe declares; nothing at a scale it does not know. An engine of the checkout's own from
    before steps could be handed over is deleted, and the one that runs now is used.

    Raises MarinadeError with what that process said where it cannot be built.
    """
    if (checkout / "executor").is_dir() and not (checkout / _DECLARED).is_file():
        shutil.rmtree(checkout / "executor")
    command = [sys.executable, "-m", "executor.comparing.declared", recipe, scale, *overrides]
    done = subprocess.run(command, cwd=checkout, env=environment_of(checkout), capture_output=True, text=True)
    if done.returncode == UNKNOWN_SCALE:
        return Side(label=recipe, steps={})
    if done.returncode:
        raise MarinadeError(f"{recipe} cannot be built: {done.stderr.strip()[-1500:]}")
    return Side.from_json(done.stdout)


def environment_of(checkout: Path) -> dict[str, str]:
    """Variables of a process in which a checkout's modules are the ones that count."""
    path = os.pathsep.join([str(checkout), str(_ENGINE.parent)])
    return {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
