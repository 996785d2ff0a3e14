"""One runner for each artifact, across processes and machines.

    {prefix}/.leases/{content key}/000001         who holds it; created if absent, so that one of many gets it
    {prefix}/.leases/{content key}/000001.beat    rewritten by the holder while it lives
    {prefix}/.leases/{content key}/000001.end     how it ended; created if absent, so that it ends in one way only

A lease ends by a commit (which names the attempt), by a release, or by a takeover. Who takes number n + 1 from a holder
that seems dead first ends number n, so a holder that was merely asleep finds its lease ended and cannot commit; if it
was faster, the lease ended by its commit and the next one finds the artifact. Creating a file that must be absent is
all that this needs of a store: no clocks are compared, and no listing has to be fresh.

A watcher thinks a holder dead when its beat has not changed for a whole period of the watcher's own clock, and at once
when the holder was on this machine and its process is gone.
"""

import dataclasses
import json
import threading
import time
from collections.abc import Callable
from typing import Any

from executor.errors import LeaseLost
from executor.retry import is_passing
from executor.storage.processes import Process, is_alive, this_process
from executor.storage.stamps import now
from executor.storage.store import Store

PERIOD_SECONDS = 60.0
"""A beat that has not changed for this long is a dead holder's; beats are a quarter of it apart."""
_PATIENCE_PERIODS = 10
"""For so many periods a holder goes on trying to beat against a store that fails."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Holder:
    """Who holds a lease: its number, process and attempt, and since when (for people).

    `worker` is the name under which a cluster knows the process, empty where it has none.
    """

    number: int
    process: Process
    attempt: str
    since: str
    name: str = ""
    worker: str = ""

    @property
    def host(self) -> str:
        return self.process.host

    @property
    def pid(self) -> int:
        return self.process.pid


_let_go: set[tuple[str, str, int]] = set()
"""Leases this process released, also those whose release a full disk kept it from writing down."""


def holder(store: Store, content_key: str) -> Holder | None:
    """Who holds the lease, as far as one look can tell; None where it is free or its process is gone."""
    found = _unended(store, content_key, 0)[1]
    return found if found is not None and _lives(store, content_key, found) else None


class Watch:
    """Looks at a lease that somebody else holds, until it is free.

    Attributes:
        number: the highest number that may be taken over; what `Lease.take` wants to be told.
    """

    def __init__(self, store: Store, content_key: str) -> None:
        self.store, self.content_key = store, content_key
        self.number = 0
        self._seen: tuple[int, bytes] = (-1, b"")
        self._since = time.monotonic()

    def look(self) -> Holder | None:
        """The holder while it seems alive; None when the lease can be taken."""
        number, found = _unended(self.store, self.content_key, 0)
        if found is not None and _lives(self.store, self.content_key, found):
            beat = self.store.files.read(_file(self.content_key, number, ".beat")) or b""
            if (number, beat) != self._seen:
                self._seen, self._since = (number, beat), time.monotonic()
            if time.monotonic() - self._since < PERIOD_SECONDS:
                return found
        self.number = number
        return None


class Lease:
    """A lease held by this process, kept alive by a thread."""

    def __init__(self, store: Store, content_key: str, number: int) -> None:
        self.store, self.content_key, self.number = store, content_key, number
        self.lost = ""
        self.on_lost: Callable[[], None] = lambda: None
        self._period = PERIOD_SECONDS
        self._stop = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._keep, daemon=True, name=f"lease {content_key[:8]}")

    @classmethod
    def take(
        cls, store: Store, content_key: str, *, name: str, attempt: str, worker: str = "", after: int = 0
    ) -> "Lease | Holder":
        """The lease, or who has it. Number `after` (of a `Watch`) may be taken from a holder that seems alive."""
        body = {"process": dataclasses.asdict(this_process()), "attempt": attempt, "since": now()}
        data = json.dumps(body | {"name": name, "worker": worker}, sort_keys=True).encode()
        floor = 0
        while True:
            number, found = _unended(store, content_key, floor)
            if found is not None:
                if number > after and _lives(store, content_key, found):
                    return found
                store.files.create(_file(content_key, number, ".end"), _ending(by="takeover", attempt=attempt))
            if store.files.create(_file(content_key, number + 1), data):
                lease = cls(store, content_key, number + 1)
                lease._thread.start()
                return lease
            floor = number + 1  # somebody was faster; a listing may not show it yet

    def check(self) -> None:
        """Raise LeaseLost where somebody took the lease over."""
        if not self.lost and not self._ended and self.store.files.read(self._end_file()) is not None:
            self.lost = "another process took the lease over"
        if self.lost:
            raise LeaseLost(f"{self.lost}; what this attempt wrote is not published, and the other's result counts")

    def commit(self, attempt: str) -> None:
        """End the lease by this attempt's success; LeaseLost where it ended otherwise before."""
        self._stop_beating()  # a beat in the same moment would find the lease ended, and take that for a loss
        if not self.lost and not self._end(by="commit", attempt=attempt):
            self.lost = "another process took the lease over"
        self.check()

    def release(self) -> None:
        """End the lease, however the attempt went; does nothing more where it has ended."""
        self._stop_beating()
        _let_go.add((self.store.prefix, self.content_key, self.number))
        if not self.lost and not self._ended:
            self._end(by="release", attempt="")

    def _stop_beating(self) -> None:
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _end(self, **ending: str) -> bool:
        self._ended = self.store.files.create(self._end_file(), _ending(**ending))
        return self._ended

    def _end_file(self) -> str:
        return _file(self.content_key, self.number, ".end")

    def _keep(self) -> None:
        """Beat, and look whether we still are the holder; storage errors that pass are tried again."""
        last, count = time.monotonic(), 0
        while not self._stop.wait(self._period / 4):
            try:
                self.check()
                count += 1
                self.store.files.write(_file(self.content_key, self.number, ".beat"), str(count).encode())
                last = time.monotonic()
            except LeaseLost:
                break
            except Exception as error:
                passing = isinstance(error, OSError) or is_passing(error)
                if not passing or time.monotonic() - last > self._period * _PATIENCE_PERIODS:
                    self.lost = f"the lease could not be kept: {type(error).__name__}: {error}"
                    break
        if self.lost and not self._stop.is_set():
            self.on_lost()


def _unended(store: Store, content_key: str, floor: int) -> tuple[int, Holder | None]:
    """The highest number (at least `floor`), and its holder unless that lease has ended."""
    names = set(store.files.names(f".leases/{content_key}"))
    number = max([floor, *(int(name) for name in names if name.isdigit())])
    if number == 0 or f"{number:06d}.end" in names:
        return number, None
    data = store.files.read(_file(content_key, number))
    if data is None or store.files.read(_file(content_key, number, ".end")) is not None:
        return number, None
    return number, _parse(number, data)


def _parse(number: int, data: bytes) -> Holder:
    """A damaged file is somebody's all the same: only its beat tells whether that one lives."""
    try:
        found: dict[str, Any] = json.loads(data)
        return Holder(number=number, process=Process(**found.pop("process")), **found)
    except (ValueError, TypeError, KeyError):
        unknown = Process(host="unknown", machine="unknown", pid=0, started="")
        return Holder(number=number, process=unknown, attempt="", since="")


def _lives(store: Store, content_key: str, found: Holder) -> bool:
    """False where the holder is known to be gone."""
    if found.process == this_process() and (store.prefix, content_key, found.number) in _let_go:
        return False
    return is_alive(found.process) is not False


def _file(content_key: str, number: int, ending: str = "") -> str:
    return f".leases/{content_key}/{number:06d}{ending}"


def _ending(**ending: str) -> bytes:
    return json.dumps(ending, sort_keys=True).encode()
