"""Records -> everything that stands behind an artifact.

    lineage = trace("/…/artifacts/hero/pretrain-ab12…/0001/checkpoints/step-300", read_record)
    lineage.root            that step's record
    lineage.ancestors       all records it was made from, itself first, each before the ones that it read

Invariant: every edge is an input as it was read, with its digest; nothing is inferred from names.
"""

import concurrent.futures
import dataclasses
from collections.abc import Callable

from executor.errors import UsageError
from executor.storage.record import InputRecord, Record


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ancestor:
    """One record and its inputs, each with an index into `Lineage.ancestors`, None when its record is gone."""

    record: Record
    inputs: tuple[tuple[InputRecord, int | None], ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lineage:
    """The record asked for is `ancestors[0]`; `missing` are locations whose record could not be read, and why."""

    asked: str
    ancestors: tuple[Ancestor, ...]
    missing: tuple[tuple[str, str], ...] = ()

    @property
    def root(self) -> Record:
        return self.ancestors[0].record

    def by_step(self) -> dict[str, Record]:
        """All records by the step's name; where two of one name stand behind the artifact (a forced rerun in between),
        the farther one also has its attempt."""
        found: dict[str, Record] = {}
        for item in self.ancestors:
            name = item.record.name
            found[f"{name} ({item.record.attempt})" if name in found else name] = item.record
        return found


def trace(asked: str, root: Record, read: Callable[[str], Record]) -> Lineage:
    """All ancestors of `root`, breadth first, each level read in parallel.

    `read(location)` gives the record of the artifact that a location belongs to; an input whose record cannot be read
    ends that branch and is listed as missing.
    """
    numbers: dict[tuple[str, str], int] = {_identity(root): 0}
    records = [root]
    sources: dict[str, int | None] = {}
    missing: list[tuple[str, str]] = []
    level = [root]
    with concurrent.futures.ThreadPoolExecutor(max_workers=16) as pool:
        while level:
            wanted = dict.fromkeys(i.location for record in level for i in record.inputs if i.location not in sources)
            level = []
            for location, found in zip(wanted, pool.map(lambda at: _read(read, at), wanted), strict=True):
                if isinstance(found, str):
                    sources[location] = None
                    missing.append((location, found))
                    continue
                if _identity(found) not in numbers:
                    numbers[_identity(found)] = len(records)
                    records.append(found)
                    level.append(found)
                sources[location] = numbers[_identity(found)]
    ancestors = tuple(
        Ancestor(record=record, inputs=tuple((i, sources[i.location]) for i in record.inputs)) for record in records
    )
    return Lineage(asked=asked, ancestors=ancestors, missing=tuple(missing))


def _read(read: Callable[[str], Record], location: str) -> Record | str:
    """The record, or why there is none: a lineage with a gap is worth more than an error."""
    try:
        return read(location)
    except Exception as error:
        return str(error) or type(error).__name__


def _identity(record: Record) -> tuple[str, str]:
    return (record.address, record.attempt)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PathStep:
    """One link of `why`: a record, and the input through which the one before it read it (None for the first)."""

    record: Record
    through: InputRecord | None


def why(lineage: Lineage, ancestor: str) -> tuple[PathStep, ...]:
    """The shortest path from the artifact to an ancestor, named by step, address or location.

    Raises UsageError naming what there is when no ancestor answers to that name.
    """
    targets = {number for number, item in enumerate(lineage.ancestors) if _answers(item.record, ancestor)}
    if not targets:
        names = ", ".join(sorted({item.record.name for item in lineage.ancestors[1:]})) or "none"
        raise UsageError(
            f"{ancestor} is not among the ancestors of {lineage.root.name} ({lineage.asked}); they are: {names}"
        )
    came: dict[int, tuple[int, InputRecord] | None] = {0: None}
    queue = [0]
    for number in queue:
        if number in targets:
            return _path(lineage, came, number)
        for through, source in lineage.ancestors[number].inputs:
            if source is not None and source not in came:
                came[source] = (number, through)
                queue.append(source)
    raise AssertionError("every ancestor is reachable from the root")


def _path(lineage: Lineage, came: dict[int, tuple[int, InputRecord] | None], number: int) -> tuple[PathStep, ...]:
    path: list[PathStep] = []
    at: int | None = number
    while at is not None:
        link = came[at]
        path.append(PathStep(record=lineage.ancestors[at].record, through=link[1] if link else None))
        at = link[0] if link else None
    return tuple(reversed(path))


def _answers(record: Record, name: str) -> bool:
    return name == record.name or f"/{record.address}/" in f"/{name.strip('/')}/"
