"""A store that misbehaves on purpose: `faulty:///folder` is that local folder, through fsspec, with faults.

The faults are a JSON list in the file that `$MARINADE_FAULTS` names, so that every process of a test shares them:

    [{"kind": "error", "error": "503", "op": "write", "match": "record.json$", "times": 2}]

    kind     error      raises `error`: an HTTP code, or ConnectionError
             lost       does it, then raises ConnectionError: the answer was lost
             hang       sleeps for `seconds` first
             truncate   writes half of the bytes and says nothing
             stale      serves a listing it remembers, until invalidate_cache() is called
             shared     `create` replaces what is there
    op       read, write, create, list or any; match: a regular expression that the path has to contain
    times    how often, over all processes; without it for ever

Every call is noted in `FaultyFileSystem.calls` as (op, path, start, end), in seconds.
"""

import itertools
import json
import os
import re
import time
from typing import Any, ClassVar

import fsspec
from fsspec.implementations.local import LocalFileSystem

VARIABLE = "MARINADE_FAULTS"


class HttpError(Exception):
    """As gcsfs raises it: not an OSError, and the status in `code`."""

    def __init__(self, code: int) -> None:
        super().__init__(f"status {code}")
        self.code = code


class FaultyFileSystem(LocalFileSystem):
    protocol = ("faulty",)
    local_file = False
    calls: ClassVar[list[tuple[str, str, float, float]]] = []
    listings: ClassVar[dict[str, Any]] = {}
    delay_seconds: ClassVar[float] = 0.0

    def __init__(self, **options: Any) -> None:
        super().__init__(auto_mkdir=True, **options)

    @classmethod
    def _strip_protocol(cls, path: Any) -> str:
        return LocalFileSystem._strip_protocol(str(path).removeprefix("faulty://"))

    def unstrip_protocol(self, name: str) -> str:
        return f"faulty://{self._strip_protocol(name)}"

    def cat_file(self, path, start=None, end=None, **kwargs):
        return self._done("read", path, lambda: LocalFileSystem.cat_file(self, path, start=start, end=end))

    def info(self, path, **kwargs):
        return self._done("read", path, lambda: LocalFileSystem.info(self, path))

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        op = "create" if mode == "create" else "write"
        data = bytes(value)
        if _claimed("truncate", op, path):
            data = data[: len(data) // 2]
        exclusive = op == "create" and not _claimed("shared", op, path)
        self._done(op, path, lambda: _put(self._strip_protocol(path), data, exclusive))

    def ls(self, path, detail=False, **kwargs):
        path = self._strip_protocol(path)

        def listed() -> Any:
            found = LocalFileSystem.ls(self, path, detail=True)
            return [info for info in found if not info["name"].rpartition("/")[2].startswith(".putting-")]

        if _claimed("stale", "list", path):
            found = self.listings[path] if path in self.listings else self._done("list", path, listed)
            self.listings[path] = found
        else:
            found = self._done("list", path, listed)
        return found if detail else [info["name"] for info in found]

    def find(self, path, maxdepth=None, withdirs=False, detail=False, **kwargs):
        """One call, as object stores list."""
        top = self._strip_protocol(path)

        def listed() -> dict[str, Any]:
            files = [top] if os.path.isfile(top) else []
            files += [os.path.join(parent, name) for parent, _, names in os.walk(top) for name in names]
            return {file: LocalFileSystem.info(self, file) for file in sorted(files)}

        if _claimed("stale", "list", top):
            key = top + "/**"
            self.listings[key] = self.listings[key] if key in self.listings else self._done("list", top, listed)
            found = self.listings[key]
        else:
            found = self._done("list", top, listed)
        return found if detail else list(found)

    def invalidate_cache(self, path=None):
        self.listings.clear()

    def _done(self, op: str, path: Any, call: Any) -> Any:
        path = self._strip_protocol(path)
        start = time.monotonic()
        try:
            for fault in _claim("error", op, path):
                raise (
                    ConnectionError("reset") if fault["error"] == "ConnectionError" else HttpError(int(fault["error"]))
                )
            time.sleep(self.delay_seconds + sum(fault["seconds"] for fault in _claim("hang", op, path)))
            result = call()
            if _claimed("lost", op, path):
                raise ConnectionError("connection reset before the answer came")
            return result
        finally:
            self.calls.append((op, path, start, time.monotonic()))


def _put(path: str, data: bytes, exclusive: bool) -> None:
    """All of a file or none of it, as an object store does."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = f"{os.path.dirname(path)}/.putting-{os.getpid()}-{next(_numbers)}"
    with open(temporary, "wb") as file:
        file.write(data)
    if not exclusive:
        os.replace(temporary, path)
        return
    try:
        os.link(temporary, path)
    finally:
        os.unlink(temporary)


_numbers = itertools.count()


def _claimed(kind: str, op: str, path: Any) -> bool:
    return bool(_claim(kind, op, str(path)))


def _claim(kind: str, op: str, path: str) -> list[dict[str, Any]]:
    """The faults of a kind that strike this call; one with `times` leaves a file for every strike."""
    listed = os.environ.get(VARIABLE, "")
    if not listed or not os.path.exists(listed):
        return []
    with open(listed) as file:
        faults = json.load(file)
    return [
        fault
        for number, fault in enumerate(faults)
        if fault["kind"] == kind
        and fault.get("op", "any") in (op, "any")
        and re.search(fault.get("match", ""), path)
        and _strikes(f"{listed}.{number}", fault.get("times"))
    ]


def _strikes(mark: str, times: int | None) -> bool:
    for strike in range(times or 0):
        try:
            os.close(os.open(f"{mark}.{strike}", os.O_CREAT | os.O_EXCL))
            return True
        except FileExistsError:
            continue
    if times is None:
        open(mark, "w").close()
    return times is None


fsspec.register_implementation("faulty", FaultyFileSystem, clobber=True)
