"""Everything that lies under a prefix, artifact by artifact, found by walking it: the index is not asked.

An artifact's folder is one with a `.step` in it; nothing of another kind lies below it.
"""

import dataclasses
from collections.abc import Iterable

from executor.storage.acceptance import Acceptance
from executor.storage.index import IndexEntry
from executor.storage.record import MilestoneRecord, Record
from executor.storage.store import Store


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stored:
    """What lies at one address.

    Attributes:
        record: the one that counts, None where no attempt finished.
        attempts: records of all attempts, newest first.
        folders: the attempts that have data.
    """

    address: str
    record: Record | None = None
    attempts: tuple[Record, ...] = ()
    milestones: tuple[MilestoneRecord, ...] = ()
    acceptances: tuple[Acceptance, ...] = ()
    folders: tuple[str, ...] = ()

    @property
    def records(self) -> tuple[Record, ...]:
        return (*([self.record] if self.record is not None else []), *self.attempts)

    @property
    def content_keys(self) -> tuple[str, ...]:
        """One, as a rule; none where nothing was recorded."""
        found = [record.content_key for record in (*self.records, *self.milestones)]
        return tuple(dict.fromkeys(found))

    @property
    def name(self) -> str:
        """The step's name when this was made; else the address."""
        found = (*self.records, *self.milestones)
        return found[0].name if found else self.address


def inventory(store: Store) -> dict[str, Stored]:
    """All artifacts by address. Raises StoreError for a record that cannot be read."""
    return store.files.each(lambda address: stored_at(store, address), addresses(store))


def addresses(store: Store) -> list[str]:
    """Where artifacts, or attempts at them, lie. Level by level, so that no data is listed."""
    found: list[str] = []
    level: Iterable[str] = [""]
    while level:
        following: list[str] = []
        for folder, names in store.files.each(store.files.names, level).items():
            if ".step" in names:
                found.append(folder)
            else:
                following += [f"{folder}/{name}".lstrip("/") for name in names if not name.startswith(".")]
        level = following
    return sorted(found)


def stored_at(store: Store, address: str) -> Stored:
    """What lies at one address now."""
    keys = [name.removesuffix(".json") for name in store.files.names(f"{address}/.step/accepted")]
    return Stored(
        address=address,
        record=store.record(address),
        attempts=store.attempts(address),
        milestones=tuple(store.milestones(address).values()),
        acceptances=tuple(store.acceptances((address, key) for key in keys).values()),
        folders=tuple(name for name in store.files.names(address) if name != ".step"),
    )


def reindex(store: Store) -> int:
    """Write the index anew from records and acceptances; how many entries. What it leads to is checked when it is used,
    so an entry too many does no harm."""
    found = inventory(store).values()
    entries = 0
    for stored in sorted(found, key=lambda stored: stored.record.ended if stored.record is not None else ""):
        for key in stored.content_keys:
            store.index.enter_content(IndexEntry(content_key=key, address=stored.address))
        for record in [stored.record] if stored.record is not None else []:
            store.index.enter(record.recipe_key, IndexEntry(content_key=record.content_key, address=stored.address))
        for acceptance in stored.acceptances:
            store.accept(acceptance)
        entries += len(stored.content_keys) + (stored.record is not None) + 2 * len(stored.acceptances)
    return entries
