"""What a record says it was made from: enough to build its recipe again, and what is missing for that.

origin = origin_of(record, source)
with origin.checked_out("a clone") as project:      the commit with the recorded changes, in a worktree of its own
    project / origin.recipe
"""

import contextlib
import dataclasses
from argparse import ArgumentError, ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from executor.errors import UsageError
from executor.history import git
from executor.history.provenance import packages, patch_digest
from executor.secrets import HIDDEN
from executor.storage.record import Record
from executor.storage.source import Source

_MOST_NAMED = 12


@dataclasses.dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a step was declared.

    Attributes:
        commit: full hash; folder: the project's place in the repository, `.` for its top.
        recipe: file from there; scale and overrides (`path=value`): the settings it was built with.
        patch: changes on top of the commit, without secrets.
        notes: what the record does not hold, or what is otherwise here than it was there.
    """

    commit: str
    folder: str
    recipe: str
    scale: str
    overrides: tuple[str, ...] = ()
    patch: str = ""
    notes: tuple[str, ...] = ()

    @contextlib.contextmanager
    def checked_out(self, repository: str | Path) -> Iterator[Path]:
        """The project as it was, in a worktree of its own that is gone afterwards; the user's checkout is not touched.

        Raises UsageError where the repository does not have the commit, or the recorded changes do not apply to it.
        """
        top = git.top(repository)
        if not top:
            raise UsageError(f"{repository} is in no git repository; --repository names a clone of the recipe's")
        try:
            commit = git.resolve(top, self.commit)
        except git.GitFailed as error:
            raise UsageError(
                f"commit {self.commit} is not in {top}; fetch it there (git fetch --all), or name another clone with "
                "--repository"
            ) from error
        with git.worktree(top, commit) as worktree:
            if self.patch:
                try:
                    git.apply(worktree, self.patch)
                except git.GitFailed as error:
                    raise UsageError(f"the recorded changes do not apply to commit {commit}: {error}") from error
            project = worktree / self.folder
            if not (project / self.recipe).is_file():
                raise UsageError(f"commit {commit} has no {Path(self.folder, self.recipe)}, recorded as the recipe")
            yield project


def origin_of(record: Record, source: Source, overrides: Sequence[str] = ()) -> Origin:
    """What a record was made from; `overrides` are put after the recorded ones, and stand for hidden ones.

    Raises UsageError where the record does not name a commit and a recipe.
    """
    facts = record.provenance
    shown = f"{record.address}/{record.attempt}"
    if not facts.get("recipe"):
        raise UsageError(f"{shown}: its record names no recipe, so it cannot be built again")
    if not facts.get("commit"):
        raise UsageError(
            f"{shown} was made outside of a git repository, so its recipe {facts['recipe']} cannot be checked out; "
            "the code that it ran is in source.json beside its record"
        )
    typed, hidden = _overrides(facts.get("arguments", ()))
    given = {override.partition("=")[0] for override in overrides}
    missing = [path for path in hidden if path not in given]
    if missing:
        raise UsageError(
            f"{shown}: the value of --set {', '.join(missing)} was secret and is on no record; give it again with --set"
        )
    return Origin(
        commit=facts["commit"],
        folder=facts.get("folder") or ".",
        recipe=facts["recipe"],
        scale=facts.get("scale", ""),
        overrides=(*typed, *overrides),
        patch=source.patch,
        notes=(*_patch_notes(facts, source.patch), *_package_notes(source.packages)),
    )


def _overrides(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The `--set`s of a command line, and the paths of those whose value was hidden."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--set", dest="overrides", action="append", default=[])
    try:
        found = parser.parse_known_args(list(arguments))[0].overrides
    except ArgumentError as error:
        raise UsageError(f"the recorded command line cannot be read: {error}") from error
    hidden = [item.partition("=")[0] for item in found if HIDDEN in item.partition("=")[2]]
    return [item for item in found if item.partition("=")[0] not in hidden], hidden


def _patch_notes(facts: Mapping[str, object], patch: str) -> Iterator[str]:
    digest = facts.get("patch")
    if digest and not patch:
        yield "the changes that no commit held are not beside the record, so the commit alone is built"
    elif digest and digest != patch_digest(patch):
        yield "the changes beside the record are not those that it was made with: their digest differs"
    if facts.get("patch_redacted"):
        yield "secrets were taken out of the recorded changes; code that held one may differ"
    left_out = facts.get("patch_leaves_out")
    if isinstance(left_out, list) and left_out:
        yield f"changed files too large to be recorded: {', '.join(map(str, left_out))}"
    if facts.get("patch_problem"):
        yield f"the changes that no commit held were not recorded: {facts['patch_problem']}"


def _package_notes(recorded: Mapping[str, str]) -> Iterator[str]:
    """Distributions that are of another version here, or gone."""
    here = packages() if recorded else {}
    other = [
        f"{name} {version} (here {here.get(name, 'none')})"
        for name, version in recorded.items()
        if here.get(name) != version
    ]
    if other:
        more = f", and {len(other) - _MOST_NAMED} more" if len(other) > _MOST_NAMED else ""
        yield f"{len(other)} of the packages then had another version: {', '.join(other[:_MOST_NAMED])}{more}"
