"""Every recipe whose steps differ between two revisions of a repository: what a pull request changes.

    for one in changed_recipes(before, after, build):
        one.recipe, one.diff            "recipes/hero_535b.py", Diff(...)

Not the files decide but what they declare: a helper edited in `steps/` changes every recipe whose steps reach it. Each
recipe is built in a process of its own, with its revision first on the path and that revision's engine.
"""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

from executor.comparing.compare import Diff, diff
from executor.comparing.side import Side
from executor.errors import MarinadeError

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
