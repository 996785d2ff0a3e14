"""One side of a comparison: the steps of a recipe, of a run, or behind an artifact, as name -> key and payload.

A payload is canonical JSON in which an input stands as `{"$input": {"step", "key", "part", "at"}}`; the name in it is
for people and for comparing *by name*, the key is what was hashed.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from executor.comparing.items import comparable
from executor.comparing.source_text import KeptTexts, UnitTexts

if TYPE_CHECKING:
    from executor.keys.graph import Graph
    from executor.storage.record import Record


@dataclasses.dataclass(frozen=True, kw_only=True)
class SideStep:
    """One step as one side knows it.

    Attributes:
        payload: what the key hashes.
        amends: name of the step that this one amends, empty for none.
        pinned: fingerprints of the reachable code that does not enter the key, None where they were not kept.
        execution_only: dotted path -> value of the fields that do not enter the key, None where they were not kept.
        source: qualified name -> text of the code that the step reaches, read when asked for; None where not kept.
        numbers: what the step's config offered (executor.planning.estimate), None where not kept.
        address: of the artifact, empty where there is none.
    """

    key: str
    payload: Mapping[str, Any]
    amends: str = ""
    pinned: Mapping[str, str] | None = None
    execution_only: Mapping[str, Any] | None = None
    source: Mapping[str, str] | None = None
    numbers: Mapping[str, float | int] | None = None
    address: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Side:
    """All steps of one side by name; `label` is what the user typed, `root` the step of the artifact that was meant,
    empty for a recipe or a run."""

    label: str
    steps: Mapping[str, SideStep]
    root: str = ""

    @classmethod
    def of_graph(cls, label: str, graph: "Graph") -> "Side":
        """A recipe as it stands."""
        from executor.planning.estimate import offered

        numbers = offered(graph)
        return cls(
            label=label,
            steps={
                name: SideStep(
                    key=graph.keys[name],
                    payload=graph.payloads[name],
                    amends=step.amends.name if step.amends else "",
                    pinned=graph.code[name].fingerprints if step.code == "pin" else None,
                    execution_only=graph.execution_only[name],
                    source=UnitTexts(graph.code[name].places),
                    numbers=numbers[name],
                )
                for name, step in graph.steps.items()
            },
        )

    @classmethod
    def of_run(
        cls,
        label: str,
        steps: Mapping[str, Mapping[str, Any]],
        source: Callable[[str], Mapping[str, str]] | None = None,
    ) -> "Side":
        """A run, from the `steps` of its `.runs` entry; `source(name)` reads the code kept of a step."""
        return cls(
            label=label,
            steps={
                name: SideStep(
                    key=step["key"],
                    payload=step["payload"],
                    amends=step.get("amends", ""),
                    pinned=step.get("pinned"),
                    execution_only=step.get("execution_only"),
                    source=_kept(source, name),
                    numbers=step.get("numbers"),
                    address=step.get("address", ""),
                )
                for name, step in steps.items()
            },
        )

    @classmethod
    def of_records(cls, label: str, records: Mapping[str, "Record"]) -> "Side":
        """What stands behind an artifact, from the records by step name, its own first."""
        return cls(
            label=label,
            root=next(iter(records), ""),
            steps={
                name: SideStep(
                    key=record.recipe_key,
                    payload=record.payload,
                    amends=record.amends,
                    pinned=None if record.payload.get("code") else record.code,
                    execution_only=record.execution_only,
                    source=record.source or None,
                    address=record.address,
                )
                for name, record in records.items()
            },
        )

    def to_json(self) -> str:
        """The whole side as text, for another process; every source text is written once."""
        texts: dict[str, int] = {}
        steps = {}
        for name, step in self.steps.items():
            fields = {field.name: getattr(step, field.name) for field in dataclasses.fields(step)}
            if step.source is not None:
                fields["source"] = {unit: texts.setdefault(text, len(texts)) for unit, text in step.source.items()}
            steps[name] = fields
        return json.dumps({"label": self.label, "texts": list(texts), "steps": steps})

    @classmethod
    def from_json(cls, text: str) -> "Side":
        """What `to_json` wrote."""
        data = json.loads(text)
        steps = {}
        for name, fields in data["steps"].items():
            if fields["source"] is not None:
                fields["source"] = {unit: data["texts"][number] for unit, number in fields["source"].items()}
            steps[name] = SideStep(**fields)
        return cls(label=data["label"], steps=steps)


def _kept(source: Callable[[str], Mapping[str, str]] | None, name: str) -> Mapping[str, str] | None:
    return None if source is None else KeptTexts(lambda: source(name))


def input_text(reference: Mapping[str, Any]) -> str:
    """An input as people write it: `tokens/code`, `corpus/train`, `hero/pretrain@108000`."""
    text = reference["step"]
    if reference.get("at") is not None:
        text += f"@{reference['at']}"
    return f"{text}/{reference['part']}" if reference.get("part") else text


def input_names(payload: Any) -> list[str]:
    """Names of the steps that a payload reads, in config order, each once."""
    found: dict[str, None] = {}
    stack = [payload]
    while stack:
        value = stack.pop()
        if isinstance(value, Mapping):
            if "$input" in value:
                found[value["$input"]["step"]] = None
            else:
                stack.extend(reversed(list(value.values())))
        elif isinstance(value, list | tuple):
            stack.extend(reversed(value))
    return list(found)


def inputs_first(steps: Mapping[str, SideStep]) -> list[str]:
    """All names, each after the steps it reads; without recursion, a chain may be 10,000 long."""
    inputs = {name: [i for i in input_names(step.payload) if i in steps] for name, step in steps.items()}
    order: dict[str, None] = {}
    for root in steps:
        stack = [root]
        while stack:
            name = stack[-1]
            waiting = [i for i in inputs[name] if i not in order] if name not in order else []
            if waiting:
                stack.extend(waiting)
            else:
                order[stack.pop()] = None
    return list(order)


def with_input_names(value: Any, name: Callable[[str, str], str]) -> Any:
    """Replace each input reference by `{"$input": text to compare, "shown": text for people, "reference": itself}`.

    `name(step, key)` gives the step's name for the comparison.
    """
    if isinstance(value, Mapping):
        if "$input" in value:
            reference = value["$input"]
            compared = input_text({**reference, "step": name(reference["step"], reference.get("key", ""))})
            kept = {part: reference.get(part) for part in ("step", "part", "at")}
            return {"$input": compared, "shown": input_text(reference), "reference": kept}
        return {key: with_input_names(item, name) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [with_input_names(item, name) for item in value]
    return value


@dataclasses.dataclass(frozen=True, kw_only=True)
class Names:
    """How the steps of one side are called while it is compared.

    Attributes:
        forks: amendments on this side -> the step they amend; a consumer of one counts as a consumer of the original.
        old_of: name here -> name on the old side.
        unmatched: put before a name that has no counterpart, so that it equals nothing.
    """

    steps: Mapping[str, SideStep]
    forks: Mapping[str, str] = dataclasses.field(default_factory=dict)
    old_of: Mapping[str, str] | None = None
    unmatched: str = ""

    def name(self, name: str, key: str) -> str:
        if name not in self.steps:
            return f"{name}#{key}"
        while name in self.forks:
            name = self.forks[name]
        return name if self.old_of is None else self.old_of.get(name, self.unmatched + name)

    def payload(self, step: SideStep) -> dict[str, Any]:
        """The step's own payload: inputs by name, no keys."""
        return with_input_names(step.payload, self.name)


def payload_text(payload: Any) -> str:
    """Equal for equal payloads, the words for people in inputs left out."""
    return json.dumps(comparable(payload), sort_keys=True)
