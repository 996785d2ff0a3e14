"""Files under one URL: what the store and raw inputs need of a file system, and no more.

Local paths are handled directly (temp file, fsync, rename or link), so that a plan imports no storage library;
everything else goes through fsspec. Paths given to a `Files` are relative to its root.

Invariant: a reader sees all of a file or none of it; `create` succeeds for one caller only.
"""

import abc
import dataclasses
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from executor.errors import StoreError

T = TypeVar("T")
_BLOCK = 1 << 20
_THREADS = 32


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileInfo:
    """Size in bytes, and the store's checksum (or the mtime, where there is none) as text."""

    size: int
    mark: str = ""


def normal_url(url: str) -> str:
    """One spelling for one place: local paths absolute, no trailing slash, no `file://`."""
    if url.startswith("file://"):
        url = url.removeprefix("file://")
    elif "://" in url:
        scheme, _, rest = url.partition("://")
        return f"{scheme}://{rest.rstrip('/')}"
    return os.path.abspath(os.path.expanduser(url))


def open_files(url: str) -> "Files":
    url = normal_url(url)
    return RemoteFiles(url) if "://" in url else LocalFiles(url)


class Files(abc.ABC):
    """Files under a root."""

    root: str

    @abc.abstractmethod
    def read(self, path: str) -> bytes | None:
        """All of a file, None where there is none."""

    @abc.abstractmethod
    def write(self, path: str, data: bytes) -> None:
        """Put a file, replacing it in one move."""

    @abc.abstractmethod
    def create(self, path: str, data: bytes) -> bool:
        """Put a file if there is none; False where somebody was first."""

    @abc.abstractmethod
    def names(self, folder: str) -> list[str]:
        """Names in a folder, sorted; empty where there is none."""

    @abc.abstractmethod
    def find(self, folder: str) -> dict[str, FileInfo]:
        """Every file below a folder by relative path; a file itself is found under the name ''."""

    @abc.abstractmethod
    def digest(self, path: str, info: FileInfo) -> str:
        """Digest of a file's content: the store's checksum where it has one, else sha256 of its bytes."""

    @abc.abstractmethod
    def read_all(self, path: str) -> Iterable[bytes]:
        """The bytes of a file in blocks."""

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

    def write(self, path: str, data: bytes) -> None:
        target = self._path(path)
        temporary = self._temporary(target, data)
        try:
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise
        _sync_folder(target.parent)

    def create(self, path: str, data: bytes) -> bool:
        target = self._path(path)
        temporary = self._temporary(target, data)
        try:
            os.link(temporary, target)
        except FileExistsError:
            return False
        finally:
            os.unlink(temporary)
        _sync_folder(target.parent)
        return True

    def _temporary(self, target: Path, data: bytes) -> str:
        folder = str(target.parent)
        try:
            handle, name = tempfile.mkstemp(dir=folder, prefix=".writing-")
        except FileNotFoundError:
            os.makedirs(folder, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=folder, prefix=".writing-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            os.unlink(name)
            raise
        return name

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

    def digest(self, path: str, info: FileInfo) -> str:
        return self.sha256(path)

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


class RemoteFiles(Files):
    """A folder in an object store, through fsspec; listings are never served from its cache."""

    def __init__(self, root: str) -> None:
        import fsspec

        self.root = root
        scheme = root.partition("://")[0]
        options: dict[str, Any] = {}
        if scheme in ("gs", "gcs"):
            options["use_listings_cache"] = False
            if os.environ.get("STORAGE_EMULATOR_HOST"):
                options |= {"token": "anon", "project": "emulated"}
        try:
            self.fs, self.base = fsspec.core.url_to_fs(root, **options)
        except (ImportError, ValueError) as error:
            raise StoreError(f"{root}: {error}") from error
        self.base = self.base.rstrip("/")

    def _path(self, path: str) -> str:
        return f"{self.base}/{path}" if path else self.base

    def read(self, path: str) -> bytes | None:
        try:
            return _retried(lambda: self.fs.cat_file(self._path(path)))
        except (FileNotFoundError, IsADirectoryError):
            return None

    def read_all(self, path: str) -> Iterable[bytes]:
        with self.fs.open(self._path(path), "rb") as file:
            while block := file.read(_BLOCK):
                yield block  # type: ignore[misc]

    def write(self, path: str, data: bytes) -> None:
        _retried(lambda: self.fs.pipe_file(self._path(path), data))

    def create(self, path: str, data: bytes) -> bool:
        try:
            self.fs.pipe_file(self._path(path), data, mode="create")
        except FileExistsError:
            return False
        return True

    def names(self, folder: str) -> list[str]:
        self.fs.invalidate_cache()
        try:
            found = _retried(lambda: self.fs.ls(self._path(folder), detail=False))
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(name.rstrip("/").rpartition("/")[2] for name in found)

    def find(self, folder: str) -> dict[str, FileInfo]:
        self.fs.invalidate_cache()
        top = self._path(folder)
        return self._relative(_retried(lambda: self.fs.find(top, detail=True)), top)

    def _relative(self, found: dict[str, dict[str, Any]], top: str) -> dict[str, FileInfo]:
        return {path[len(top) :].lstrip("/"): _remote_info(info) for path, info in found.items()}

    def digest(self, path: str, info: FileInfo) -> str:
        return info.mark if info.mark.startswith(("md5:", "crc32c:")) else self.sha256(path)

    def expand(self) -> dict[str, FileInfo]:
        if not has_magic(self.base):
            return self.find("")
        self.fs.invalidate_cache()
        fixed = self.base
        while has_magic(fixed):
            fixed = fixed.rpartition("/")[0]
        return self._relative(_retried(lambda: self.fs.glob(self.base, detail=True)), fixed)


def _remote_info(info: dict[str, Any]) -> FileInfo:
    for name, field in (("md5", "md5Hash"), ("crc32c", "crc32c"), ("etag", "ETag"), ("etag", "etag")):
        if info.get(field):
            return FileInfo(size=int(info.get("size") or 0), mark=f"{name}:{str(info[field]).strip(chr(34))}")
    stamp = info.get("mtime") or info.get("updated") or info.get("created") or info.get("LastModified") or ""
    return FileInfo(size=int(info.get("size") or 0), mark=f"mtime:{stamp}")


def _retried[R](call: Callable[[], R]) -> R:
    """Storage errors that pass (429, 5xx, broken connections) are tried again, with backoff."""
    from executor.retry import storage_retrying

    return storage_retrying()(call)
