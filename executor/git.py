"""What git knows of a folder: commit, branch, and the changes that no commit holds. Nothing in the checkout is touched.

git.commit(folder)     "3baf10d…", empty where there is no repository
git.patch(folder)      text that turns that commit into what lies here, files never added included
"""

import dataclasses
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from executor.errors import MarinadeError

MOST_PATCH_BYTES = 1 << 20
"""A file whose change is larger is left out of a patch and named."""
_SECONDS = 60


@dataclasses.dataclass(frozen=True, kw_only=True)
class Patch:
    """Changes against a commit.

    Attributes:
        text: a unified diff that `git apply` takes, empty when there are no changes.
        left_out: files whose changes are not in it, for their size.
    """

    text: str = ""
    left_out: tuple[str, ...] = ()


class GitFailed(MarinadeError):
    """Git said no; the message is git's own."""


def run(folder: str | Path, *arguments: str, environment: Mapping[str, str] | None = None, given: str = "") -> str:
    """Output of a git command in a folder. Raises GitFailed with what git wrote, or that there is no git."""
    try:
        found = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            input=given.encode(),
            capture_output=True,
            timeout=_SECONDS,
            check=False,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0", **(environment or {})},
        )
    except OSError as error:
        raise GitFailed(f"git cannot be run: {error}") from error
    except subprocess.TimeoutExpired as error:
        raise GitFailed(f"git {' '.join(arguments)} took longer than {_SECONDS} s") from error
    if found.returncode != 0:
        raise GitFailed(found.stderr.decode(errors="replace").strip() or f"git {arguments[0]} failed")
    return found.stdout.decode(errors="surrogateescape")


def ask(folder: str | Path, *arguments: str) -> str:
    """The same without line ends, empty where git has no answer."""
    try:
        return run(folder, *arguments).strip()
    except GitFailed:
        return ""


def top(folder: str | Path) -> str:
    """The repository's folder, empty where there is none."""
    return ask(folder, "rev-parse", "--show-toplevel")


def commit(folder: str | Path) -> str:
    """The commit that is checked out, empty where there is none."""
    return ask(folder, "rev-parse", "--verify", "HEAD^{commit}")


def branch(folder: str | Path) -> str:
    """The branch that is checked out, empty for a detached head."""
    return ask(folder, "symbolic-ref", "--short", "HEAD")


def patch(folder: str | Path, most_bytes: int = MOST_PATCH_BYTES) -> Patch:
    """All changes of the repository that a folder lies in; files that were never added and are not ignored are in it.

    They are staged in an index of their own, so that the user's stays as it is. Raises GitFailed.
    """
    root = top(folder)
    if not root or not commit(root):
        return Patch()
    with tempfile.TemporaryDirectory(prefix="marinade-index-") as aside:
        objects = run(root, "rev-parse", "--path-format=absolute", "--git-path", "objects").strip()
        # New blobs go aside as well: what a patch was made from is no part of the user's repository.
        own = {
            "GIT_INDEX_FILE": f"{aside}/index",
            "GIT_OBJECT_DIRECTORY": f"{aside}/objects",
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": objects,
        }
        os.mkdir(f"{aside}/objects")
        run(root, "read-tree", "HEAD", environment=own)
        left_out = _too_large(root, most_bytes)
        paths = [".", *(f":(exclude,literal){path}" for path in left_out)]
        run(root, "add", "--all", "--", *paths, environment=own)
        text = run(root, "diff", "--cached", "--binary", "--no-color", "--no-ext-diff", "HEAD", environment=own)
    return Patch(text=text, left_out=tuple(left_out))


def _too_large(root: str, most_bytes: int) -> list[str]:
    """Changed and new files that are larger than what a patch takes."""
    listed = run(root, "status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames")
    paths = [entry[3:] for entry in listed.split("\0") if len(entry) > 3]
    return [path for path in paths if _size(Path(root, path)) > most_bytes]


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def apply(folder: str | Path, text: str) -> None:
    """Turn a checkout into what a patch was made from. Raises GitFailed when it does not apply."""
    if text:
        run(folder, "apply", "--whitespace=nowarn", "-", given=text)


def resolve(folder: str | Path, revision: str) -> str:
    """The commit that a revision names. Raises GitFailed naming it."""
    try:
        return run(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}").strip()
    except GitFailed as error:
        raise GitFailed(f"{revision}: no such revision in {top(folder) or folder}") from error


def has(folder: str | Path, commit: str, path: str) -> bool:
    """Whether a file stands in a commit."""
    return bool(ask(folder, "cat-file", "-t", f"{commit}:{path}"))


def changed(folder: str | Path, base: str, head: str = "") -> Sequence[str]:
    """Paths that differ between two commits, or between one and what lies here; from the repository's root."""
    found = run(top(folder) or folder, "diff", "--name-only", "-z", "--no-renames", base, *([head] if head else []))
    return [path for path in found.split("\0") if path]
