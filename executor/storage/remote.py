"""Files in an object store, through fsspec: a store that is busy, silent or forgetful must cost time, never a result.

A storage library says "not now" in its own words (an HttpError 503, a ProxyError, an OSError with EBUSY), may never
answer, may have done what it reports as failed, and may list what was there a minute ago. So every call here has a time
limit, what passes is tried again (the policy is in retry.py), listings are never taken from a cache, and a `create`
whose answer was lost is told from one that came second by looking at the bytes.

Invariant: what is raised here is an OSError that names the URL; ConnectionError or TimeoutError where trying again
later may help.
"""

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from typing import Any

from executor import retry
from executor.errors import StoreError
from executor.secrets import redact
from executor.storage.files import FileInfo, Files, has_magic

_CALL_SECONDS = 60.0
"""One small read or write; the retries of the storage library itself are part of it."""
_LISTING_SECONDS = 600.0
"""One listing: a thousand names a page, page after page."""
_BLOCK = 8 << 20
_PROBE = ".index/exclusive"
_PROBES = 4

_PASSING_ERRNOS = {errno.EBUSY, errno.ETIMEDOUT, errno.EAGAIN, errno.EREMOTEIO, errno.ENETUNREACH, errno.EHOSTUNREACH}
_PASSING_CLASSES = {
    # of requests, aiohttp, botocore and gcsfs: broken or refused connections, a 502, a body that was cut short
    "ConnectionError", "Timeout", "ChunkedEncodingError", "ClientConnectionError", "ClientPayloadError",
    "HTTPClientError", "ChecksumError", "TransportError",
}  # fmt: skip

_AS_THEY_ARE = (
    FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError, TypeError,
    NotImplementedError,
)  # fmt: skip

_memory = threading.Lock()


class RemoteFiles(Files):
    """A folder in an object store."""

    def __init__(self, root: str) -> None:
        import fsspec

        self.root = root
        self.scheme = root.partition("://")[0]
        options: dict[str, Any] = {}
        if self.scheme == "gs":
            options["use_listings_cache"] = False
            if os.environ.get("STORAGE_EMULATOR_HOST"):
                options |= {"token": "anon", "project": "emulated"}
        try:
            self.fs, base = fsspec.core.url_to_fs(root, **options)
        except ImportError as error:
            raise StoreError(
                f"{redact(root)}: no library for {self.scheme}:// is installed here ({error}); "
                "add that package to the project's dependencies"
            ) from error
        except ValueError as error:
            raise StoreError(
                f"{redact(root)}: {error}; a prefix is a local folder or the URL of an object store, as gs://bucket/name"
            ) from error
        self.base = str(base).rstrip("/")

    def _path(self, path: str) -> str:
        return f"{self.base}/{path}" if path else self.base

    def _call[R](self, path: str, call: Callable[[], R], seconds: float | None = None) -> R:
        """The answer of a call, within a time limit, tried again while it fails with what passes."""
        limit = seconds or _CALL_SECONDS

        def once() -> R:
            try:
                return _within(limit, call)
            except Exception as error:
                raise _in_words(error, f"{self.root}/{path}".rstrip("/")) from error

        return retry.storage_retrying()(once)

    def read(self, path: str) -> bytes | None:
        try:
            return self._call(path, lambda: bytes(self.fs.cat_file(self._path(path))))
        except (FileNotFoundError, IsADirectoryError):
            return None

    def read_all(self, path: str) -> Iterator[bytes]:
        size = self._call(path, lambda: self._fresh().info(self._path(path))["size"])
        for start in range(0, size, _BLOCK):
            yield self._call(path, lambda start=start: self._block(path, start, min(start + _BLOCK, size)))

    def _block(self, path: str, start: int, end: int) -> bytes:
        data = bytes(self.fs.cat_file(self._path(path), start=start, end=end))
        if len(data) != end - start:
            raise ConnectionError(f"{len(data)} bytes came, {end - start} were asked for")
        return data

    def write(self, path: str, data: bytes, *, checked: bool = False) -> None:
        def put() -> None:
            self.fs.pipe_file(self._path(path), data)
            if not checked:
                return
            try:
                found = bytes(self.fs.cat_file(self._path(path)))
            except FileNotFoundError:
                found = b""
            if found != data:
                raise ConnectionError(f"{len(data)} bytes were written, {len(found)} others are there")

        self._call(path, put)

    def create(self, path: str, data: bytes, *, checked: bool = False) -> bool:
        if not self._call(path, lambda: self._create(path, data)):
            return False
        if checked and self.read(path) != data:  # cut short; it is ours, so nobody else writes it
            self.write(path, data, checked=True)
        return True

    def _create(self, path: str, data: bytes) -> bool:
        # The memory file system looks first and writes then; within its one process a lock makes that one act.
        with _memory if self.scheme == "memory" else contextlib.nullcontext():
            try:
                self.fs.pipe_file(self._path(path), data, mode="create")
            except FileExistsError:
                # An earlier try, ours or one inside the storage library, may have succeeded without being told so.
                return bytes(self.fs.cat_file(self._path(path))) == data
        return True

    def delete(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._call(path, lambda: self._fresh().rm(self._path(path), recursive=True), _LISTING_SECONDS)

    def names(self, folder: str) -> list[str]:
        try:
            found = self._call(folder, lambda: self._fresh().ls(self._path(folder), detail=False), _LISTING_SECONDS)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(name.rstrip("/").rpartition("/")[2] for name in found)

    def find(self, folder: str) -> dict[str, FileInfo]:
        top = self._path(folder)
        return _relative(self._call(folder, lambda: self._fresh().find(top, detail=True), _LISTING_SECONDS), top)

    def _fresh(self) -> Any:
        """The file system without what it remembers of listings: another process may have written since."""
        self.fs.invalidate_cache()
        return self.fs

    def modified(self, path: str) -> float | None:
        try:
            return self._call(path, lambda: self._fresh().modified(self._path(path))).timestamp()
        except FileNotFoundError:
            return None

    def digest(self, path: str, info: FileInfo) -> str:
        return info.mark if info.has_checksum else self.sha256(path)

    def expand(self) -> dict[str, FileInfo]:
        if not has_magic(self.base):
            return self.find("")
        fixed = self.base
        while has_magic(fixed):
            fixed = fixed.rpartition("/")[0]
        found = self._call("", lambda: self._fresh().glob(self.base, detail=True), _LISTING_SECONDS)
        return _relative(found, fixed)

    def check_exclusive(self) -> None:
        """Raise StoreError unless this store creates an object only where there is none.

        Several threads create one fixed object, which stays: at most one may be told that it did, and none after that.
        """
        from fsspec.spec import AbstractFileSystem

        if not self.fs.async_impl and type(self.fs).pipe_file is AbstractFileSystem.pipe_file:
            raise StoreError(_unfit(self.root, f"fsspec's {type(self.fs).__name__} looks first and writes then"))
        from executor.storage.stamps import new_id

        bodies = [f"{index} {new_id()}" for index in range(_PROBES)]
        try:
            told = self.each(lambda body: self.create(_PROBE, body.encode()), bodies)
            again = self.create(_PROBE, new_id().encode())
        except (NotImplementedError, TypeError) as error:
            raise StoreError(_unfit(self.root, f"{type(error).__name__}: {error}")) from error
        except OSError as error:
            raise StoreError(
                f"{redact(self.root)} cannot be written: {redact(str(error))}; "
                "see that the bucket exists and that the credentials of this process may write to it"
            ) from error
        if sum(told.values()) > 1 or again:
            raise StoreError(_unfit(self.root, f"{sum(told.values()) + again} writers were told that theirs is there"))


def _unfit(root: str, found: str) -> str:
    return (
        f"{redact(root)}: this store cannot keep two processes apart: an object must be created only where there is "
        f"none, and one writer of several be told so; found: {found}. "
        "Use a local folder, gs:// or s3:// (fsspec's pipe_file(..., mode='create') has to be one act of the store)"
    )


def _relative(found: dict[str, dict[str, Any]], top: str) -> dict[str, FileInfo]:
    return {
        path[len(top) :].lstrip("/"): _info(info) for path, info in found.items() if info.get("type") != "directory"
    }


def _info(info: dict[str, Any]) -> FileInfo:
    for name, field in (("md5", "md5Hash"), ("crc32c", "crc32c"), ("etag", "ETag"), ("etag", "etag")):
        if info.get(field):
            return FileInfo(size=int(info.get("size") or 0), mark=f"{name}:{str(info[field]).strip(chr(34))}")
    stamp = info.get("mtime") or info.get("updated") or info.get("created") or info.get("LastModified") or ""
    return FileInfo(size=int(info.get("size") or 0), mark=f"mtime:{stamp}")


def _within[R](seconds: float, call: Callable[[], R]) -> R:
    """The answer of a call, or TimeoutError; the thread of a call that never answers is left behind, and ends no exit.

    Waits a second at a time, so that a step can be interrupted meanwhile.
    """
    answer: Future[R] = Future()

    def work() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=work, daemon=True, name="storage").start()
    left = seconds
    while left > 0 and not answer.done():
        wait([answer], timeout=min(1.0, left))
        left -= 1.0
    if not answer.done():
        raise TimeoutError(f"no answer within {seconds:g} s")
    return answer.result()


def _in_words(error: Exception, url: str) -> Exception:
    """The error of a storage library as an OSError that names the URL, by whether it passes."""
    if isinstance(
        error, FileNotFoundError | FileExistsError | PermissionError | IsADirectoryError | NotADirectoryError
    ):
        return error
    if isinstance(error, TypeError | NotImplementedError | StoreError):
        return error
    text = f"{redact(url)}: {redact(str(error)) or type(error).__name__}"
    if isinstance(error, TimeoutError):
        return TimeoutError(text)
    names = {kind.__name__ for kind in type(error).__mro__}
    if retry.is_passing(error) or names & _PASSING_CLASSES or getattr(error, "errno", None) in _PASSING_ERRNOS:
        return ConnectionError(text)
    if isinstance(error, OSError) and error.errno is not None:
        return error
    return OSError(f"{redact(url)}: {type(error).__name__}: {redact(str(error))}")
