"""From what a person types to a record: an address under the prefix, a path, a checkpoint in an artifact, a record."""

import dataclasses
import os

from executor.errors import MarinadeError, StoreError, UsageError
from executor.storage.locate import locate, read_record
from executor.storage.record import Record
from executor.storage.store import Store, default_prefix


def find_record(typed: str, prefix: str | None) -> Record:
    """The record of the artifact that `typed` belongs to.

    Raises UsageError that says where it was looked for.
    """
    store = Store(prefix or default_prefix())
    if _is_place(typed):
        try:
            return read_record(typed)
        except StoreError as error:
            raise UsageError(str(error)) from error
    under = f"{store.prefix}/{typed.strip('/')}"
    try:
        return read_record(under)
    except StoreError:
        pass
    raise UsageError(
        f"{typed} is neither a path nor an artifact under {store.prefix}; "
        "marinade status RECIPE lists addresses, --prefix says where to look"
    )


def find_artifact(typed: str, prefix: str | None) -> tuple[Store, Record]:
    """The same with the store it lies in, in which `record.address` is its address."""
    record = find_record(typed, prefix)
    store = Store(prefix or default_prefix())
    place = typed if _is_place(typed) else f"{store.prefix}/{typed.strip('/')}"
    parent, name, _ = locate(place)
    root = f"{parent.prefix}/{name}".removesuffix(f"/{record.address}")
    if root == f"{parent.prefix}/{name}":  # it was moved to another name
        return parent, dataclasses.replace(record, address=name)
    return Store(root), record


def _is_place(typed: str) -> bool:
    """A URL or a path; what it names may be gone, and its record be there."""
    return "://" in typed or os.path.isabs(typed) or os.path.exists(typed)


def is_recipe(typed: str) -> bool:
    """A file of Python, or a module's name; anything else is an artifact or a record."""
    if typed.endswith(".py"):
        return True
    return typed.replace(".", "").isidentifier() and "." in typed and not os.path.exists(typed)


def trace_artifact(typed: str, prefix: str | None):
    """The lineage behind what was typed."""
    from executor.history.lineage import trace

    root = find_record(typed, prefix)
    return trace(typed, root, _read)


def _read(location: str) -> Record:
    try:
        return read_record(location)
    except MarinadeError as error:
        raise StoreError(str(error)) from error
