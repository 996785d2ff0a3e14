"""Every recipe whose steps differ between two revisions of a repository: what a pull request changes.

    for one in changed_recipes(before, after, build):
        one.recipe, one.diff            "recipes/hero_535b.py", Diff(...)

Not the files decide but what they declare: a helper edited in `steps/` changes every recipe whose steps reach it. Each
recipe is built in a process of its own, with its revision first on the path and that revision's engine.
"""

import contextlib
import dataclasses
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from executor.compare import Diff, diff
from executor.declared import UNKNOWN_SCALE
from executor.errors import MarinadeError, UsageError
from executor.side import Side

_FOLDER = "recipes"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChangedRecipe:
    """One recipe that differs; `problem` says why it could not be compared, and `diff` is None then."""

    recipe: str
    diff: Diff | None
    problem: str = ""


def changed_recipes(before: Path, after: Path, build: Callable[[Path, str], Side]) -> Iterator[ChangedRecipe]:
    """The recipes of two checkouts, by name, that differ or have something to note; one that only one has is all new.

    `build(checkout, recipe)` raises MarinadeError where a recipe cannot be built.
    """
    for recipe in sorted({*recipe_files(before), *recipe_files(after)}):
        sides = []
        try:
            for checkout, name in ((before, "base"), (after, "head")):
                there = (checkout / recipe).is_file()
                side = build(checkout, recipe) if there else Side(label=recipe, steps={})
                sides.append(dataclasses.replace(side, label=f"{recipe} ({name}{'' if there else ', not there'})"))
        except MarinadeError as error:
            yield ChangedRecipe(recipe=recipe, diff=None, problem=str(error))
            continue
        found = diff(*sides)
        if found.different or found.notes:
            yield ChangedRecipe(recipe=recipe, diff=found)


def recipe_files(checkout: Path) -> list[str]:
    """`recipes/*.py`, without those whose name begins with an underscore."""
    files = sorted((checkout / _FOLDER).glob("*.py"))
    return [f"{_FOLDER}/{file.name}" for file in files if not file.name.startswith("_")]


@contextlib.contextmanager
def files_of(repository: Path, revision: str) -> Iterator[Path]:
    """The files of a revision in a temporary folder; nothing in the repository is touched.

    Raises UsageError where there is no such revision.
    """
    command = ["git", "-C", str(repository), "archive", "--format=tar", revision]
    done = subprocess.run(command, capture_output=True)
    if done.returncode:
        raise UsageError(f"{revision}: git cannot read this revision: {done.stderr.decode(errors='replace').strip()}")
    with tempfile.TemporaryDirectory(prefix="marinade-revision-") as folder:
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
            archive.extractall(folder, filter="data")
        yield Path(folder)


def repository_of(folder: Path) -> Path:
    """The top of the git repository that a folder is in."""
    done = subprocess.run(["git", "-C", str(folder), "rev-parse", "--show-toplevel"], capture_output=True, text=True)
    if done.returncode:
        raise UsageError(f"{folder} is in no git repository, so there are no revisions to compare")
    return Path(done.stdout.strip())


def build_side(checkout: Path, recipe: str, *, scale: str, overrides: Sequence[str] = ()) -> Side:
    """What a checkout's recipe declares, built by that checkout's own engine; nothing at a scale it does not know.

    Raises MarinadeError with what that process said where it cannot be built.
    """
    if not (checkout / "executor" / "declared.py").is_file():
        raise MarinadeError(
            f"{recipe}: the engine of this revision cannot hand its steps over (it has no executor/declared.py); "
            "compare with a later revision"
        )
    command = [sys.executable, "-m", "executor.declared", recipe, scale, *overrides]
    environment = {**os.environ, "PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
    if done.returncode == UNKNOWN_SCALE:
        return Side(label=recipe, steps={})
    if done.returncode:
        raise MarinadeError(f"{recipe} cannot be built: {done.stderr.strip()[-1500:]}")
    return Side.from_json(done.stdout)
