"""What git knows of a folder: commit, branch, and the changes that no commit holds. Nothing in the checkout is touched.

git.commit(folder)     "3baf10d…", empty where there is no repository
git.patch(folder)      text that turns that commit into what lies here, files never added included
git.archive(folder, git.resolve(folder, "main~2"))      a revision's files
with git.worktree(folder, commit) as place:             a checkout of its own
"""

import contextlib
import dataclasses
import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from executor.errors import MarinadeError

MOST_FILE_BYTES, MOST_PATCH_BYTES = 1 << 20, 8 << 20
"""A changed file that is larger, and files beyond what all changed ones may have together, are left out and named."""
_SECONDS, _CHECKOUT_SECONDS = 60, 1800


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


def commit(folder: str | Path) -> str:
    """The commit that is checked out, empty where there is none."""
    return _ask(folder, "rev-parse", "--verify", "HEAD^{commit}")


def branch(folder: str | Path) -> str:
    """The branch that is checked out, empty for a detached head."""
    return _ask(folder, "symbolic-ref", "--short", "HEAD")


def top(folder: str | Path) -> str:
    """The repository's folder, empty where there is none."""
    return _ask(folder, "rev-parse", "--show-toplevel")


def resolve(folder: str | Path, revision: str) -> str:
    """The commit that a revision names. Raises GitFailed naming it."""
    try:
        named = f"{revision}^{{commit}}"
        return _text(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", named).strip()
    except GitFailed as error:
        raise GitFailed(f"{revision}: there is no such revision in {top(folder) or folder}") from error


def archive(folder: str | Path, commit: str) -> bytes:
    """A commit's files as a tar archive. Raises GitFailed."""
    return _run(folder, "archive", "--format=tar", commit)


@contextlib.contextmanager
def worktree(folder: str | Path, commit: str) -> Iterator[Path]:
    """A commit checked out in a temporary folder, without the repository's hooks; gone afterwards. Raises GitFailed."""
    with tempfile.TemporaryDirectory(prefix="marinade-worktree-") as aside:
        place = Path(aside).resolve() / "checkout"
        added = ("worktree", "add", "--quiet", "--detach", str(place), commit)
        _run(folder, "-c", f"core.hooksPath={os.devnull}", *added, seconds=_CHECKOUT_SECONDS)
        try:
            yield place
        finally:
            _run(folder, "worktree", "remove", "--force", str(place))


def apply(folder: str | Path, patch: str) -> None:
    """Put a patch's changes into the files of a checkout. Raises GitFailed; then none of them is there."""
    _run(folder, "apply", "--whitespace=nowarn", "-", given=patch.encode(errors="surrogateescape"))


def patch(folder: str | Path, *, without: str | Path = "", most_bytes: int = MOST_FILE_BYTES) -> Patch:
    """All changes of the repository that a folder lies in; files that were never added and are not ignored are in it.

    They are staged in an index of their own, so that the user's stays as it is. What lies under `without` is left out
    in silence: a store inside the checkout is no part of its source. Raises GitFailed.
    """
    root = top(folder)
    if not root or not commit(root):
        return Patch()
    below = _below(root, without) if without else ""
    apart = [_except(below)] if below else []
    with tempfile.TemporaryDirectory(prefix="marinade-index-") as aside:
        objects = _text(root, "rev-parse", "--path-format=absolute", "--git-path", "objects").strip()
        # New blobs go aside as well: what a patch was made from is no part of the user's repository.
        own = {
            "GIT_INDEX_FILE": f"{aside}/index",
            "GIT_OBJECT_DIRECTORY": f"{aside}/objects",
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": objects,
        }
        os.mkdir(f"{aside}/objects")
        _run(root, "read-tree", "HEAD", environment=own)
        changed = _changed(root, apart)
        left_out = tuple(_too_large(root, changed, most_bytes))
        taken = "\0".join(sorted(set(changed) - set(left_out))).encode(errors="surrogateescape")
        if taken:
            words = ("--literal-pathspecs", "add", "--all", "--pathspec-from-file=-", "--pathspec-file-nul")
            _run(root, *words, environment=own, given=taken)
        text = _text(root, "diff", "--cached", "--binary", "--no-color", "--no-ext-diff", "HEAD", environment=own)
    return Patch(text=text, left_out=left_out)


def _changed(root: str, apart: Iterable[str]) -> list[str]:
    """Changed and new files, by path from the root."""
    status = ("status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames")
    return [entry[3:] for entry in _text(root, *status, "--", ".", *apart).split("\0") if len(entry) > 3]


def _too_large(root: str, paths: Iterable[str], most_bytes: int) -> list[str]:
    """Those that a patch does not take; small ones go first, so that what is left out is the least in number."""
    left_out, taken = [], 0
    for size, path in sorted((_size(Path(root, path)), path) for path in paths):
        if size > most_bytes or taken + size > MOST_PATCH_BYTES:
            left_out.append(path)
        else:
            taken += size
    return left_out


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _below(root: str, path: str | Path) -> str:
    """A path from the root; empty for the root itself and for what lies elsewhere."""
    whole, folder = Path(path).resolve(), Path(root).resolve()
    return whole.relative_to(folder).as_posix() if folder in whole.parents else ""


def _except(path: str) -> str:
    """What makes git pass over a path."""
    return f":(exclude,literal){path}"


def _ask(folder: str | Path, *arguments: str) -> str:
    """Git's answer without line ends, empty where it has none."""
    try:
        return _text(folder, *arguments).strip()
    except GitFailed:
        return ""


def _text(folder: str | Path, *arguments: str, environment: Mapping[str, str] | None = None) -> str:
    return _run(folder, *arguments, environment=environment).decode(errors="surrogateescape")


def _run(
    folder: str | Path,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    given: bytes = b"",
    seconds: float = _SECONDS,
) -> bytes:
    """Output of a git command in a folder. Raises GitFailed with what git wrote, or that there is no git."""
    try:
        found = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            input=given,
            capture_output=True,
            timeout=seconds,
            check=False,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0", **(environment or {})},
        )
    except OSError as error:
        raise GitFailed(f"git cannot be run: {error}") from error
    except subprocess.TimeoutExpired as error:
        raise GitFailed(f"git {arguments[0]} took longer than {seconds:.0f} s") from error
    if found.returncode != 0:
        raise GitFailed(found.stderr.decode(errors="replace").strip() or f"git {arguments[0]} failed")
    return found.stdout
