"""From what a person types to a record: an address under the prefix, a path, a checkpoint in an artifact, a record."""

import os

from executor.errors import MarinadeError, StoreError, UsageError
from executor.record import Record
from executor.store import Store, default_prefix, read_record


def find_record(typed: str, prefix: str | None) -> Record:
    """The record of the artifact that `typed` belongs to.

    Raises UsageError that says where it was looked for.
    """
    store = Store(prefix or default_prefix())
    if "://" in typed or os.path.exists(typed):
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


def trace_artifact(typed: str, prefix: str | None):
    """The lineage behind what was typed."""
    from executor.lineage import trace

    root = find_record(typed, prefix)
    return trace(typed, root, _read)


def _read(location: str) -> Record:
    try:
        return read_record(location)
    except MarinadeError as error:
        raise StoreError(str(error)) from error
