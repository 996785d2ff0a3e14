"""What can be deleted: artifacts, and data of attempts, that nothing needs any more.

Kept is what

    a given recipe reaches as it stands: its artifacts, and unfinished attempts that it would resume
    a run younger than `keep_days` names, or one that never said that it ended and whose work is younger
    is leased now
    was made, published or accepted within `keep_days`
    any of these was made from, by the records: the whole lineage, milestones too

and of a kept artifact, the data of the attempt that counts, of attempts behind a milestone or another record's input,
and of all attempts while there is none that counts. Attempts' records and logs stay as long as their artifact.

Ages come from the stamps in records of runs and attempts, and for an attempt that never said how it ended from the
last beat of its lease; they are compared with this host's clock, so hosts' clocks are assumed to agree within days.

Invariant: deciding changes nothing; deleting holds the lease of the content key, and takes the record away first.
"""

import dataclasses
import datetime
import math
import socket
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

from executor.errors import StoreError
from executor.planning.planner import Prepared
from executor.storage.inventory import Stored, inventory
from executor.storage.lease import holder
from executor.storage.processes import start_time
from executor.storage.record import RunRecord
from executor.storage.store import Store

_DAY = 86_400.0

Place = tuple[str, str]
"""Address and attempt."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Garbage:
    """An artifact that nothing needs; with `attempt`, only the data of that attempt.

    Attributes:
        files, size: what goes, records and logs included.
        idle_days: since it was made or a run used it.
        why: why it is not needed, in words.
        recipe: the recipe that it was made by, as far as that is known.
        stored: what lay at the address when this was decided.
    """

    name: str
    address: str
    attempt: str = ""
    files: int
    size: int
    idle_days: float
    why: str
    recipe: str = ""
    stored: Stored = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Collection:
    """What `gc` found.

    Attributes:
        kept: address -> why, in one word: recipe, run, lease, age, lineage.
        unknown: addresses in which no record says what they are; they are left alone.
        run_ids: the runs that were looked at; a later one may need what was garbage.
    """

    prefix: str
    keep_days: float
    garbage: tuple[Garbage, ...]
    kept: Mapping[str, str]
    unknown: tuple[str, ...]
    run_ids: frozenset[str]


def collect(store: Store, plans: Sequence[Prepared], *, keep_days: float, now: float) -> Collection:
    """Decide what can be deleted. `plans` come from `survey`; `now` in seconds since 1970.

    Raises StoreError for records that cannot be read: what they need is not known.
    """
    run_ids = store.run_ids()
    runs, stored = store.files.each(store.run, run_ids), inventory(store)
    if store.unreadable:
        path, found = next(iter(store.unreadable.items()))
        raise StoreError(
            f"{store.prefix}/{path} cannot be read ({found}), so what it needs is not known; "
            "move it away, or run its step again, before anything is deleted"
        )
    needs = _Needs(store, stored, list(runs.values()), keep_days, now)
    for prepared in plans:
        needs.recipe(prepared)
    needs.leases()
    needs.age()
    needs.runs()
    needs.lineage()
    return Collection(
        prefix=store.prefix,
        keep_days=keep_days,
        garbage=tuple(needs.garbage()),
        kept=needs.kept,
        unknown=tuple(address for address, found in needs.stored.items() if not found.content_keys),
        run_ids=frozenset(run_ids),
    )


class _Needs:
    """What is needed, mark by mark."""

    def __init__(
        self, store: Store, stored: dict[str, Stored], runs: list[RunRecord], keep_days: float, now: float
    ) -> None:
        self.store, self.stored, self.all_runs = store, stored, runs
        self.keep_days, self.now = keep_days, now
        self.kept: dict[str, str] = {}
        self.named: set[Place] = set()
        self.address_of = {key: address for address, found in stored.items() for key in found.content_keys}
        keys = {step["key"] for run in runs for step in run.steps.values()}
        self.entries = {key: entry.address for key, entry in store.index.lookup("recipe", sorted(keys)).items()}
        self.idle = {address: self._idle_days(found) for address, found in stored.items()}
        self.used = {address: math.inf for address in stored}

    def recipe(self, prepared: Prepared) -> None:
        unsettled = []
        for step in prepared.plan.steps:
            result = prepared.results.of(step.name)
            if result.record is not None:
                self._keep(result.record.address, "recipe", result.record.attempt)
            elif result.raw is None:
                unsettled.append(prepared.graph.keys[step.name])
            for milestone in result.milestones.values():
                self._keep(milestone.address, "recipe", milestone.attempt)
            self._keep(self.address_of.get(step.content_key, ""), "recipe")
        # What an input's rerun may lead back to, if it writes the same.
        for entry in self.store.index.lookup("recipe", unsettled).values():
            self._keep(entry.address, "recipe")

    def leases(self) -> None:
        leased = set(self.store.files.names(".leases")) & set(self.address_of)
        holders = self.store.files.each(lambda key: holder(self.store, key), sorted(leased))
        for key, found in holders.items():
            if found is not None:
                self._keep(self.address_of[key], "lease")

    def age(self) -> None:
        for address, days in self.idle.items():
            if days < self.keep_days:
                self._keep(address, "age")

    def runs(self) -> None:
        for run in self.all_runs:
            places = [place for place in self._places_of(run) if place[0] in self.stored]
            days = self._days([run.started, run.ended])
            for address, _ in places:
                self.used[address] = min(self.used[address], days)
            if days < self.keep_days or (not run.ended and self._goes_on(run, places)):
                for address, attempt in places:
                    self._keep(address, "run", attempt)

    def lineage(self) -> None:
        waiting = deque(self.kept)
        while waiting:
            for record in self.stored[waiting.popleft()].records:
                for read in record.inputs:
                    for address, attempt in self._places_in(read.location):
                        if address not in self.kept:
                            waiting.append(address)
                        self._keep(address, "lineage", attempt)

    def garbage(self) -> Iterator[Garbage]:
        for address, found in self.stored.items():
            if address in self.kept:
                yield from self._superseded(found)
            elif found.content_keys:
                days = min(self.idle[address], self.used[address])
                why = f"no given recipe reaches it; unused for {days:.0f} days"
                yield self._garbage(found, "", days, why)

    def _superseded(self, found: Stored) -> Iterator[Garbage]:
        """Data of attempts of a kept artifact that do not count and that nothing can go on from."""
        if found.record is None or self.kept[found.address] == "lease":
            return
        counting = {found.record.attempt, *(milestone.attempt for milestone in found.milestones)}
        attempts = {record.attempt: record for record in found.attempts}
        for attempt in found.folders:
            record = attempts.get(attempt)
            if record is None or attempt in counting or (found.address, attempt) in self.named:
                continue
            days = self._attempt_days(found, attempt)
            if days >= self.keep_days:
                ended = "was superseded" if record.finished else f"ended as {record.status.replace('_', ' ')}"
                why = f"attempt {record.number} {ended} {days:.0f} days ago; attempt {found.record.number} counts"
                yield self._garbage(found, attempt, days, why)

    def _garbage(self, found: Stored, attempt: str, days: float, why: str) -> Garbage:
        files = self.store.files.find(f"{found.address}/{attempt}".rstrip("/"))
        made = next((record.provenance.get("recipe", "") for record in found.records), "")
        return Garbage(
            name=found.name,
            address=found.address,
            attempt=attempt,
            files=len(files),
            size=sum(info.size for info in files.values()),
            idle_days=days,
            why=why,
            recipe=made,
            stored=found,
        )

    def _keep(self, address: str, why: str, attempt: str = "") -> None:
        if address in self.stored:
            self.kept.setdefault(address, why)
            if attempt:
                self.named.add((address, attempt))

    def _goes_on(self, run: RunRecord, places: list[Place]) -> bool:
        """Whether a run without an end may still go on, or ended without a word not long ago."""
        here = run.host == socket.gethostname() and start_time(run.pid) is not None
        return here or any(
            self.kept.get(address) == "lease" or self.idle[address] < self.keep_days for address, _ in places
        )

    def _places_of(self, run: RunRecord) -> Iterator[Place]:
        """What a run names: the keys and addresses it planned, what its keys led to, the attempts it ended with."""
        for step in (*run.steps.values(), *run.outcome.values()):
            yield step.get("address", ""), step.get("attempt", "")
            yield self.address_of.get(step.get("content_key", ""), ""), ""
            yield self.entries.get(step.get("key", ""), ""), ""

    def _places_in(self, location: str) -> Iterator[Place]:
        """The artifact that a recorded location belongs to, wherever the store lay when it was recorded."""
        parts = location.split("/")
        for end in range(len(parts), 0, -1):
            for start in range(end):
                address = "/".join(parts[start:end])
                if address in self.stored:
                    yield address, parts[end] if end < len(parts) else ""

    def _idle_days(self, found: Stored) -> float:
        """Days since something was made at an address."""
        stamps = [milestone.published for milestone in found.milestones]
        stamps += [acceptance.accepted for acceptance in found.acceptances]
        attempts = [self._attempt_days(found, record.attempt) for record in found.attempts]
        counts = [found.record.started, found.record.ended] if found.record is not None else []
        return min([self._days([*stamps, *counts]), *attempts])

    def _attempt_days(self, found: Stored, attempt: str) -> float:
        record = next(record for record in found.attempts if record.attempt == attempt)
        days = self._days([record.started, record.ended])
        if not record.ended:
            days = min(days, self._beat_days(record.content_key))
        return days

    def _beat_days(self, content_key: str) -> float:
        """Days since somebody last held the lease of a content key."""
        folder = f".leases/{content_key}"
        beats = [self.store.files.modified(f"{folder}/{name}") for name in self.store.files.names(folder)]
        return min([(self.now - beat) / _DAY for beat in beats if beat is not None], default=math.inf)

    def _days(self, stamps: Iterable[str]) -> float:
        """Days since the latest of some ISO 8601 times; without any, for ever."""
        return min(
            [(self.now - datetime.datetime.fromisoformat(stamp).timestamp()) / _DAY for stamp in stamps if stamp],
            default=math.inf,
        )
