"""From a location (an artifact's folder, a checkpoint, a file in it) to the record of how it came to be."""

import dataclasses

from executor.errors import StoreError
from executor.secrets import redact
from executor.storage.places import open_files
from executor.storage.record import Record
from executor.storage.store import Store


def read_record(location: str) -> Record:
    """The record of the artifact that a location belongs to: an artifact's folder, an attempt, a file in it.

    The attempt that the location names counts, so a checkpoint leads to the attempt that wrote it.
    """
    store, address, attempt = locate(location)
    record = store.attempt(address, attempt) if attempt else store.record(address)
    if record is None:
        raise StoreError(f"{redact(location)}: no record of {f'attempt {attempt} of ' if attempt else ''}{address}")
    return dataclasses.replace(record, source=store.source(address, record.attempt).functions)


def locate(location: str) -> tuple[Store, str, str]:
    """The store (rooted at the artifact's parent folder), address and attempt that a location belongs to."""
    files = open_files(location)
    here, below = files.root, ""
    while True:
        parent, _, name = here.rpartition("/")
        if not name or parent.endswith(":/"):
            break
        if name != ".step" and {"attempts", "record.json"} & set(open_files(here + "/.step").names("")):
            attempt = below.split("/")[0]
            if attempt == ".step":
                parts = below.split("/")
                attempt = parts[2] if len(parts) > 2 and parts[1] == "attempts" else ""
            return Store(parent), name, attempt
        here, below = parent, f"{name}/{below}" if below else name
    raise StoreError(f"{redact(location)}: belongs to no artifact (no .step folder there or above it)")
