"""Files under one URL: what the store and raw inputs need of a file system, and no more.

Local paths are handled here (temp file, fsync, rename or link), so that a plan imports no storage library; everything
else goes through fsspec, in remote.py. Paths given to a `Files` are relative to its root.

Invariant: a reader sees all of a file or none of it; `create` succeeds for one caller only.
"""

import abc
import dataclasses
import errno
import functools
import hashlib
import itertools
import os
import secrets
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
_BLOCK = 1 << 20
_PROCESS = secrets.token_hex(4)
_numbers = itertools.count()
"""With the process's number they make names of temporary files, on a folder that several hosts share, too."""
_THREADS = 64


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileInfo:
    """Size in bytes, and the store's checksum (or the mtime, where there is none) as text."""

    size: int
    mark: str = ""

    @property
    def has_checksum(self) -> bool:
        """True where the mark is a checksum of the content, which equals that of the same content elsewhere."""
        return self.mark.startswith(("md5:", "crc32c:"))


class Files(abc.ABC):
    """Files under a root."""

    root: str

    @abc.abstractmethod
    def read(self, path: str) -> bytes | None:
        """All of a file, None where there is none."""

    @abc.abstractmethod
    def write(self, path: str, data: bytes, *, checked: bool = False) -> None:
        """Put a file, replacing it in one move. `checked`: read it back, and raise where it is not what was written."""

    @abc.abstractmethod
    def create(self, path: str, data: bytes, *, checked: bool = False) -> bool:
        """Put a file if there is none; False where somebody was first.

        The bytes have to say whose they are (an attempt, a process): where these very bytes are there already they may
        be an earlier try of this caller of which the answer was lost, and True is a right answer.
        """

    @abc.abstractmethod
    def delete(self, path: str) -> None:
        """Remove a file, or a folder and all below it; nothing happens where there is none."""

    @abc.abstractmethod
    def names(self, folder: str) -> list[str]:
        """Names in a folder, sorted; empty where there is none."""

    @abc.abstractmethod
    def find(self, folder: str) -> dict[str, FileInfo]:
        """Every file below a folder by relative path; a file itself is found under the name ''."""

    @abc.abstractmethod
    def modified(self, path: str) -> float | None:
        """When a file was written, seconds since 1970 by the store's clock; None where there is no file."""

    @abc.abstractmethod
    def digest(self, path: str, info: FileInfo) -> str:
        """Digest of a file's content: the store's checksum where it has one, else sha256 of its bytes."""

    @abc.abstractmethod
    def read_all(self, path: str) -> Iterable[bytes]:
        """The bytes of a file in blocks."""

    @abc.abstractmethod
    def check_exclusive(self) -> None:
        """Raise StoreError, with what to use instead, where `create` cannot keep two writers apart."""

    @abc.abstractmethod
    def expand(self) -> dict[str, FileInfo]:
        """Files that the root, taken as a file, folder or glob, stands for."""

    def read_many(self, paths: Iterable[str]) -> dict[str, bytes]:
        """Those of the files that exist."""
        found = self.each(self.read, paths)
        return {path: data for path, data in found.items() if data is not None}

    def each(self, function: Callable[[str], T], paths: Iterable[str]) -> dict[str, T]:
        """`function` of each path, several at once where that saves waiting."""
        wanted = list(dict.fromkeys(paths))
        if len(wanted) < 2 or isinstance(self, LocalFiles):
            return {path: function(path) for path in wanted}
        with ThreadPoolExecutor(min(_THREADS, len(wanted))) as pool:
            return dict(zip(wanted, pool.map(function, wanted), strict=True))

    def sha256(self, path: str) -> str:
        digest = hashlib.sha256()
        for block in self.read_all(path):
            digest.update(block)
        return "sha256:" + digest.hexdigest()

    def listing(self) -> list[list[Any]]:
        """[relative path, size, checksum or mtime] of the files the root stands for, sorted."""
        return sorted([path, info.size, info.mark] for path, info in self.expand().items())

    def content_digest(self) -> str:
        """sha256 of the file at the root; of the lines `path size sha256` where it is a folder."""
        found = self.expand()
        if list(found) == [""]:
            return self.sha256("")
        lines = "".join(f"{path} {found[path].size} {self.sha256(path)}\n" for path in sorted(found))
        return "sha256:" + hashlib.sha256(lines.encode()).hexdigest()


def together(*writes: Callable[[], object]) -> None:
    """Make several independent writes at once; all have ended when this returns or raises what one of them raised."""
    futures = [_writers().submit(write) for write in writes]
    wait(futures)
    for future in futures:
        future.result()


@functools.cache
def _writers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(4, thread_name_prefix="write")


def has_magic(path: str) -> bool:
    return any(character in path for character in "*?[")


class LocalFiles(Files):
    """A folder of this machine."""

    def __init__(self, root: str) -> None:
        self.root = root

    def _path(self, path: str) -> Path:
        return Path(self.root, path) if path else Path(self.root)

    def read(self, path: str) -> bytes | None:
        try:
            with open(f"{self.root}/{path}" if path else self.root, "rb") as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def read_all(self, path: str) -> Iterable[bytes]:
        with self._path(path).open("rb") as file:
            while block := file.read(_BLOCK):
                yield block

    def write(self, path: str, data: bytes, *, checked: bool = False) -> None:
        target = self._path(path)
        temporary = self._temporary(target, data)
        try:
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise
        _sync_folder(target.parent)

    def create(self, path: str, data: bytes, *, checked: bool = False) -> bool:
        target = self._path(path)
        temporary = self._temporary(target, data)
        try:
            os.link(temporary, target)
        except FileExistsError:
            # A network file system may have made the link and lost the answer: then the file has two names.
            return os.stat(temporary).st_nlink > 1
        except OSError as error:
            if error.errno in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP):
                text = "this file system cannot make hard links, by which two processes are kept apart; use another"
                raise OSError(error.errno, text, str(target)) from error
            raise
        finally:
            os.unlink(temporary)
        _sync_folder(target.parent)
        return True

    def _temporary(self, target: Path, data: bytes) -> str:
        folder = str(target.parent)
        name = f"{folder}/.writing-{_PROCESS}-{os.getpid()}-{next(_numbers)}"
        try:
            file = open(name, "xb")  # noqa: SIM115 - closed below
        except FileNotFoundError:
            os.makedirs(folder, exist_ok=True)
            file = open(name, "xb")  # noqa: SIM115
        try:
            with file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            os.unlink(name)
            raise
        return name

    def delete(self, path: str) -> None:
        target = self._path(path)
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(name for name in os.listdir(self._path(folder)) if not name.startswith(".writing-"))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def find(self, folder: str) -> dict[str, FileInfo]:
        top = str(self._path(folder))
        found: dict[str, FileInfo] = {}
        if os.path.isfile(top):
            return {"": _local_info(top)}
        for parent, _, names in os.walk(top):
            for name in names:
                path = os.path.join(parent, name)
                relative = path[len(top) :].lstrip(os.sep).replace(os.sep, "/")
                try:
                    found[relative] = _local_info(path)
                except FileNotFoundError:  # a temporary file of a writer still at work
                    continue
        return found

    def modified(self, path: str) -> float | None:
        try:
            return self._path(path).stat().st_mtime
        except FileNotFoundError:
            return None

    def digest(self, path: str, info: FileInfo) -> str:
        return self.sha256(path)

    def check_exclusive(self) -> None:
        """Nothing to ask: `link` fails where there is such a name."""

    def expand(self) -> dict[str, FileInfo]:
        if not has_magic(self.root) or os.path.exists(self.root):
            return self.find("")
        import glob

        fixed = self.root
        while has_magic(fixed):
            fixed = os.path.dirname(fixed)
        found = {}
        for path in glob.glob(self.root, recursive=True):
            if os.path.isfile(path):
                found[os.path.relpath(path, fixed).replace(os.sep, "/")] = _local_info(path)
        return found


def _local_info(path: str) -> FileInfo:
    status = os.stat(path)
    return FileInfo(size=status.st_size, mark=f"mtime:{status.st_mtime_ns}")


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError:  # some mounted folders cannot be synced; the file itself was
        pass
    finally:
        os.close(handle)
