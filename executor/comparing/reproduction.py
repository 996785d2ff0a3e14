"""A record held against its recipe as it was then: do the keys agree, and does a rerun write the same?

found = compare_keys(lineage, rebuilt)         rebuilt: what the recipe declares at the recorded commit
outputs = compare_outputs(lineage, rerun)      rerun: the lineage of the same step in another store
"""

import dataclasses
from typing import Literal

from executor.comparing.compare import Diff, diff
from executor.comparing.fields import Change, field_changes
from executor.comparing.side import Side, inputs_first
from executor.errors import MarinadeError
from executor.history.lineage import Lineage
from executor.storage.record import InputRecord, Record

OPAQUE = "attempt:"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Keys:
    """The recipe key on record and the one of today; `diff` is the recorded side against the rebuilt one."""

    recorded: str
    rebuilt: str
    diff: Diff

    @property
    def agree(self) -> bool:
        return self.recorded == self.rebuilt


@dataclasses.dataclass(frozen=True, kw_only=True)
class Output:
    """What a step wrote then and what the rerun wrote.

    Attributes:
        by: `content`, or `result` for an opaque step (checkpoints), whose bytes differ between equal runs.
        recorded, rerun: digests; `rerun` is empty where the rerun has no such artifact.
        files: of differing content, those that are not equal or on one side only.
        changes: in what the step's function returned.
        inputs: raw data that it read with another digest.
    """

    step: str
    by: Literal["content", "result"]
    recorded: str
    rerun: str
    files: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    inputs: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        same = bool(self.rerun) if self.by == "result" else self.recorded == self.rerun
        return same and not self.changes


def compare_keys(lineage: Lineage, rebuilt: Side) -> Keys:
    """Raises MarinadeError where the recipe has no step of that name."""
    root = lineage.root
    if root.name not in rebuilt.steps:
        raise MarinadeError(f"{rebuilt.label} declares no step {root.name}; it declares {', '.join(rebuilt.steps)}")
    records = lineage.by_step()
    kept = {name: step for name, step in rebuilt.steps.items() if name in records}
    recorded = Side.of_records(f"the record of {root.address}/{root.attempt}", records)
    return Keys(
        recorded=root.recipe_key,
        rebuilt=rebuilt.steps[root.name].key,
        diff=diff(recorded, Side(label=rebuilt.label, steps=kept)),
    )


def compare_outputs(lineage: Lineage, rerun: Lineage) -> tuple[Output, ...]:
    """Every step behind the artifact that has a record, inputs first."""
    recorded, found = lineage.by_step(), rerun.by_step()
    order = inputs_first(Side.of_records("", recorded).steps)
    return tuple(_output(recorded[name], found.get(name)) for name in order)


def _output(before: Record, now: Record | None) -> Output:
    opaque = before.digest.startswith(OPAQUE)
    if now is None:
        return Output(step=before.name, by="result" if opaque else "content", recorded=before.digest, rerun="")
    return Output(
        step=before.name,
        by="result" if opaque else "content",
        recorded=before.digest,
        rerun=now.digest,
        files=() if opaque else _files(before, now),
        changes=field_changes(before.result, now.result),
        inputs=_raw_inputs(before, now),
    )


def _files(before: Record, now: Record) -> tuple[str, ...]:
    old, new = ({file.path: file.digest for file in record.files} for record in (before, now))
    return tuple(path for path in sorted(old | new) if old.get(path) != new.get(path))


def _raw_inputs(before: Record, now: Record) -> tuple[str, ...]:
    """Raw data has no step that could be compared: what was read of it is known by its listing."""
    old, new = ({_place(item): item.digest for item in record.inputs} for record in (before, now))
    return tuple(
        f"{step}{part}"
        for (field, step, part), digest in old.items()
        if digest.startswith("listing:") and new.get((field, step, part)) != digest
    )


def _place(item: InputRecord) -> tuple[str, str, str]:
    return item.path, item.step, f"/{item.part}" if item.part else ""
