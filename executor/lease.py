"""One runner for each artifact, across processes and machines.

    {prefix}/.leases/{content key}/000001          who holds it; created if absent, so that one of many gets it
    {prefix}/.leases/{content key}/000001.beat     rewritten by the holder; says `released` at the end

The highest number is the holder, and the fence that a commit checks: whoever takes over creates the next number, and
the former holder's commit finds it. No clocks are compared: a watcher takes over when the beat has not changed for a
whole period of its own clock, and at once when the holder was on this machine and its process is gone.
"""

import dataclasses
import json
import threading
import time
from collections.abc import Callable

from executor.errors import LeaseLost
from executor.processes import Process, is_alive, this_process
from executor.retry import is_passing
from executor.store import Store, now

PERIOD_SECONDS = 60.0
"""A beat that has not changed for this long is a dead holder's; beats are a quarter of it apart."""
_POLL_SECONDS = 0.3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Holder:
    """Who holds a lease: its number, process and attempt, and since when (for people)."""

    number: int
    process: Process
    attempt: str
    since: str
    name: str = ""

    @property
    def host(self) -> str:
        return self.process.host

    @property
    def pid(self) -> int:
        return self.process.pid


_let_go: set[tuple[str, str, int]] = set()
"""Leases this process released, also those whose release a full disk kept it from writing down."""


def _lives(store: Store, content_key: str, found: Holder) -> bool:
    """False where the holder is known to be gone."""
    if found.process == this_process() and (store.prefix, content_key, found.number) in _let_go:
        return False
    return is_alive(found.process) is not False


def _folder(content_key: str) -> str:
    return f".leases/{content_key}"


def _file(content_key: str, number: int, ending: str = "") -> str:
    return f"{_folder(content_key)}/{number:06d}{ending}"


def _latest(store: Store, content_key: str) -> int:
    numbers = [int(name) for name in store.files.names(_folder(content_key)) if name.isdigit()]
    return max(numbers, default=0)


def _read(store: Store, content_key: str, number: int) -> tuple[Holder | None, bytes]:
    """The holder of that number and its last beat; None where it released."""
    if number == 0:
        return None, b""
    data = store.files.read(_file(content_key, number))
    beat = store.files.read(_file(content_key, number, ".beat")) or b""
    if data is None or json.loads(beat or b"{}").get("released"):
        return None, beat
    found = json.loads(data)
    process = Process(**found.pop("process"))
    return Holder(number=number, process=process, **found), beat


def holder(store: Store, content_key: str) -> Holder | None:
    """Who holds the lease, as far as one look can tell; None where it is free or its process is gone."""
    found, _ = _read(store, content_key, _latest(store, content_key))
    return found if found is not None and _lives(store, content_key, found) else None


class Lease:
    """A lease held by this process, kept alive by a thread."""

    def __init__(self, store: Store, content_key: str, number: int, period_seconds: float) -> None:
        self.store, self.content_key, self.number = store, content_key, number
        self.lost = ""
        self.on_lost: Callable[[], None] = lambda: None
        self._period = period_seconds
        self._stop = threading.Event()
        self._count = 0
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._keep, daemon=True, name=f"lease {content_key[:8]}")

    @classmethod
    def acquire(
        cls,
        store: Store,
        content_key: str,
        *,
        name: str,
        attempt: str,
        period_seconds: float = PERIOD_SECONDS,
        waiting: Callable[[Holder], None] = lambda _: None,
        give_up: Callable[[], bool] = lambda: False,
    ) -> "Lease | None":
        """Wait until the lease is ours; None when `give_up` says so."""
        seen: tuple[int, bytes] = (-1, b"")
        since = time.monotonic()
        while not give_up():
            number = _latest(store, content_key)
            found, beat = _read(store, content_key, number)
            if found is not None and _lives(store, content_key, found):
                if (number, beat) != seen:
                    seen, since = (number, beat), time.monotonic()
                    waiting(found)
                if time.monotonic() - since < period_seconds:
                    time.sleep(min(_POLL_SECONDS, period_seconds / 4))
                    continue
            body = {"process": dataclasses.asdict(this_process()), "attempt": attempt, "since": now(), "name": name}
            if store.files.create(_file(content_key, number + 1), json.dumps(body, sort_keys=True).encode()):
                lease = cls(store, content_key, number + 1, period_seconds)
                lease._thread.start()
                return lease
        return None

    def check(self) -> None:
        """Raise LeaseLost unless this lease is still the highest."""
        if not self.lost and _latest(self.store, self.content_key) > self.number:
            self.lost = "another process took the lease over"
        if self.lost:
            raise LeaseLost(f"{self.lost}; what this attempt wrote is not published, and the other's result counts")

    def release(self) -> None:
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join()
        _let_go.add((self.store.prefix, self.content_key, self.number))
        if not self.lost:
            self._beat(released=True)

    def _beat(self, released: bool = False) -> None:
        with self._lock:
            self._count += 1
            data = {"count": self._count, "released": released}
            self.store.files.write(_file(self.content_key, self.number, ".beat"), json.dumps(data).encode())

    def _keep(self) -> None:
        """Beat, and look whether we still are the holder; storage errors that pass are tried again."""
        last = time.monotonic()
        while not self._stop.wait(self._period / 4):
            try:
                self.check()
                self._beat()
                last = time.monotonic()
            except LeaseLost:
                break
            except Exception as error:
                if not (isinstance(error, OSError) or is_passing(error)) or time.monotonic() - last > self._period * 10:
                    self.lost = f"the lease could not be kept: {type(error).__name__}: {error}"
                    break
        if self.lost and not self._stop.is_set():
            self.on_lost()
