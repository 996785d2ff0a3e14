"""Deleting what `gc` found, so that whoever looks meanwhile finds a whole artifact or none.

The lease of the content key is held, so that no run begins it meanwhile; the record goes first, so that the artifact
ceases to exist before its data does; attempts' records go last, so that a deletion that was cut short is found and
ended by the next one.
"""

import dataclasses
from collections.abc import Iterator

from executor.storage.inventory import stored_at
from executor.storage.lease import Lease
from executor.storage.stamps import new_id
from executor.storage.store import Store
from executor.upkeep.gc import Collection, Garbage


@dataclasses.dataclass(frozen=True, kw_only=True)
class Deleted:
    """One piece of garbage and what became of it; `skipped` says why it is still there, empty when it is gone."""

    garbage: Garbage
    skipped: str = ""


def delete(store: Store, collection: Collection) -> Iterator[Deleted]:
    """Delete piece by piece; each is looked at again first, and left alone where something happened to it."""
    index = _recipe_keys(store) if collection.garbage else {}
    for garbage in collection.garbage:
        yield Deleted(garbage=garbage, skipped=_delete(store, collection, garbage, index.get(garbage.address, ())))


def _delete(store: Store, collection: Collection, garbage: Garbage, recipe_keys: tuple[str, ...]) -> str:
    leases: list[Lease] = []
    try:
        for key in garbage.stored.content_keys:
            lease = _take(store, key, garbage.name)
            if lease is None:
                return "leased by another process"
            leases.append(lease)
        if set(store.run_ids()) - collection.run_ids:
            return "a run started meanwhile and may need it; run gc again"
        if stored_at(store, garbage.address) != garbage.stored:
            return "it changed meanwhile; run gc again"
        if garbage.attempt:
            store.files.delete(f"{garbage.address}/{garbage.attempt}")
        else:
            _delete_artifact(store, garbage, recipe_keys)
        return ""
    finally:
        for lease in leases:
            lease.release()


def _delete_artifact(store: Store, garbage: Garbage, recipe_keys: tuple[str, ...]) -> None:
    files, address, stored = store.files, garbage.address, garbage.stored
    files.delete(f"{address}/.step/record.json")
    files.delete(f"{address}/.step/milestones")
    for key in recipe_keys:
        files.delete(f".index/recipe/{key}.json")
    for key, entry in store.index.lookup("content", stored.content_keys).items():
        if entry.address == address:
            files.delete(f".index/content/{key}.json")
    for acceptance in stored.acceptances:
        files.delete(f".index/accepted/{acceptance.content_key}.json")
    for attempt in stored.folders:
        files.delete(f"{address}/{attempt}")
    files.delete(address)


def _take(store: Store, content_key: str, name: str) -> Lease | None:
    """The lease, unless somebody has it: gc waits for nobody."""
    lease = Lease.take(store, content_key, name=name, attempt=f"gc-{new_id()}")
    return lease if isinstance(lease, Lease) else None


def _recipe_keys(store: Store) -> dict[str, tuple[str, ...]]:
    """Address -> the recipe keys that the index leads to it; many can, since early cutoff enters each."""
    names = store.files.names(".index/recipe")
    found: dict[str, tuple[str, ...]] = {}
    for key, entry in store.index.lookup("recipe", [name.removesuffix(".json") for name in names]).items():
        found[entry.address] = (*found.get(entry.address, ()), key)
    return found
