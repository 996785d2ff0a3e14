"""What is known of each step's result, and what follows from it: input digests, content keys, locations.

The content key of a step is the hash of its payload with the content digest of every input in place of its key. It is
known once all inputs are.
"""

import copy
import dataclasses
import functools
import types
from typing import Any

from executor.errors import MarinadeError
from executor.external import RawData
from executor.keys.graph import Graph, InputRef
from executor.keys.identity import hash_json
from executor.secrets import redact
from executor.step import Milestone, Output, Step
from executor.storage.record import InputRecord, MilestoneRecord, Record
from executor.storage.store import Store


@dataclasses.dataclass(kw_only=True)
class Result:
    """What a step has: a finished artifact, published milestones, or raw data found in place."""

    record: Record | None = None
    milestones: dict[int, MilestoneRecord] = dataclasses.field(default_factory=dict)
    raw: RawData | None = None


class Results:
    """Results by step name, over one graph and one store."""

    def __init__(self, graph: Graph, store: Store) -> None:
        self.graph, self.store = graph, store
        self.known: dict[str, Result] = {}

    def of(self, name: str) -> Result:
        return self.known.setdefault(name, Result())

    def digest(self, reference: InputRef) -> str:
        """Content digest of an input; empty while it is unknown. Raises where the artifact lacks the part."""
        result = self.known.get(reference.step)
        if result is None:
            return ""
        if result.raw is not None:
            if reference.part and result.raw.digest:
                return f"{result.raw.digest}/{reference.part}"
            return result.raw.digest
        if reference.at is not None:
            found = result.milestones.get(reference.at)
            return found.digest if found is not None else ""
        if result.record is None:
            return ""
        digest = result.record.part_digest(reference.part)
        if not digest:
            files = ", ".join(file.path for file in result.record.files[:8])
            raise MarinadeError(
                f"step {reference.step} has no {reference.part!r} among what it wrote ({files or 'nothing'}); "
                f"name a file or folder that it writes, or run it again with --force {reference.step}"
            )
        return digest

    def location(self, reference: InputRef) -> str:
        """Where an input lies."""
        result = self.known[reference.step]
        if result.raw is not None:
            base, part = result.raw.location, reference.part
            return f"{base.rstrip('/')}/{part}" if part else base
        if reference.at is not None:
            found = result.milestones[reference.at]
            return self.store.location(found.address, found.attempt, found.part)
        assert result.record is not None
        return self.store.location(result.record.address, result.record.attempt, reference.part)

    def content_key(self, name: str) -> str:
        """The step's content key; empty while an input is not known."""
        digests: dict[tuple[str, str, int | None], str] = {}
        for reference in self.graph.inputs[name]:
            if reference.execution_only:
                continue
            digest = self.digest(reference)
            if not digest:
                return ""
            digests[reference.step, reference.part, reference.at] = digest
        payload = self.graph.payloads[name]
        return hash_json({**payload, "config": _with_digests(payload["config"], digests)})

    def input_records(self, name: str) -> tuple[InputRecord, ...]:
        return tuple(
            InputRecord(
                path=reference.path,
                step=reference.step,
                part=f"@{reference.at}" if reference.at is not None else reference.part,
                recipe_key=self.graph.keys[reference.step],
                digest=self.digest(reference),
                location=redact(self.location(reference)),
                execution_only=reference.execution_only,
            )
            for reference in self.graph.inputs[name]
        )

    def resolved_config(self, name: str) -> Any:
        """The step's config with locations in place of inputs."""

        def locate(value: Step | Output | Milestone) -> str:
            step = value if isinstance(value, Step) else value.step
            part = value.part if isinstance(value, Output) else ""
            at = value.at if isinstance(value, Milestone) else None
            return self.location(InputRef(path="", step=self.graph.names[id(step)], part=part, at=at))

        return _replaced(self.graph.steps[name].config, locate)


def _with_digests(value: Any, digests: dict[tuple[str, str, int | None], str]) -> Any:
    if isinstance(value, dict):
        if set(value) == {"$input"}:
            found = value["$input"]
            digest = digests[found["step"], found["part"], found["at"]]
            return {"$input": {"digest": digest, "part": found["part"], "at": found["at"]}}
        return {name: _with_digests(item, digests) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_digests(item, digests) for item in value]
    return value


def _replaced(value: Any, locate: Any) -> Any:
    """A copy with every input replaced; what holds no input is the same object. Validation is not run again."""
    if isinstance(value, Step | Output | Milestone):
        return locate(value)
    if type(value) in (list, tuple):
        items = [_replaced(item, locate) for item in value]
        return value if all(new is old for new, old in zip(items, value, strict=True)) else type(value)(items)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_replaced(item, locate) for item in value))
    if isinstance(value, dict | types.MappingProxyType):
        changed = {key: _replaced(item, locate) for key, item in value.items()}
        if isinstance(value, dict) and all(changed[key] is item for key, item in value.items()):
            return value
        return changed
    if isinstance(value, functools.partial):
        arguments = [_replaced(item, locate) for item in value.args]
        return functools.partial(value.func, *arguments, **_replaced(value.keywords, locate))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changes = {}
        for field in dataclasses.fields(value):
            item = getattr(value, field.name)
            new = _replaced(item, locate)
            if new is not item:
                changes[field.name] = new
        if not changes:
            return value
        twin = copy.copy(value)
        for name, item in changes.items():
            object.__setattr__(twin, name, item)
        return twin
    return value
