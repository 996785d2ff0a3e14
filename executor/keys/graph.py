"""Steps as a graph: order, inputs, payloads and recipe keys. No I/O beyond reading the project's source.

    graph = Graph.of(experiment.targets)
    graph.steps["tokens/code"], graph.keys["tokens/code"], graph.inputs["tokens/code"]

Two equal steps are one. Two different steps of one name, and cycles, are errors that show both places.
Invariant: walked without recursion, so that a chain of 10,000 steps is nothing special.
"""

import dataclasses
from collections.abc import Iterable
from typing import Any

from executor.errors import IdentityError, MarinadeError
from executor.keys.code import Code, Valued, reach
from executor.keys.identity import Encoder, FoundInput, canonical_json, hash_json, without_names
from executor.keys.names import qualified_name
from executor.keys.uses import things_used
from executor.step import Step

_NAME = "letters, digits, dot, dash, underscore, and / between parts"


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputRef:
    """One input of a step: the config field that holds it, and what it takes from which step."""

    path: str
    step: str
    part: str = ""
    at: int | None = None
    execution_only: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Graph:
    """All steps that some targets depend on, every step after its inputs.

    Attributes:
        inputs: name -> its inputs, in config order, execution-only ones too.
        payloads: name -> what its recipe key hashes.
        keys: name -> recipe key.
        code: name -> the code its function reaches.
        things: name -> what the code is reached from: the function, classes and functions in the config, what it uses.
        outside: name -> functions and classes in execution-only fields; their source is recorded and counts nowhere.
        execution_only: name -> dotted path -> JSON of the fields that are in no key.
        secrets: name -> environment variables that hold its secrets.
    """

    targets: tuple[str, ...]
    steps: dict[str, Step]
    inputs: dict[str, tuple[InputRef, ...]]
    payloads: dict[str, dict[str, Any]]
    keys: dict[str, str]
    code: dict[str, Code]
    things: dict[str, tuple[Any, ...]]
    outside: dict[str, tuple[Any, ...]]
    execution_only: dict[str, dict[str, Any]]
    secrets: dict[str, tuple[str, ...]]
    consumers: dict[str, tuple[str, ...]]
    names: dict[int, str] = dataclasses.field(repr=False)

    @classmethod
    def of(cls, targets: Iterable[Step]) -> "Graph":
        wanted = tuple(targets)
        for target in wanted:
            if not isinstance(target, Step):
                raise MarinadeError(f"a target is a Step, not {type(target).__name__}: {target!r}")
        return _Builder(wanted).build()

    def key_of(self, step: Step) -> str:
        return self.keys[self.names[id(step)]]


@dataclasses.dataclass(kw_only=True, eq=False)
class _Node:
    step: Step
    origin: str
    encoder: Encoder
    config: Any
    function: str
    things: tuple[Any, ...]


class _Builder:
    def __init__(self, targets: tuple[Step, ...]) -> None:
        self.targets = targets
        self.nodes: dict[int, _Node] = {}
        self.order: list[_Node] = []

    def build(self) -> Graph:
        self._walk()
        steps: dict[str, Step] = {}
        origins: dict[str, str] = {}
        keys: dict[str, str] = {}
        payloads: dict[str, dict[str, Any]] = {}
        code: dict[str, Code] = {}
        things: dict[str, tuple[Any, ...]] = {}
        names: dict[int, str] = {}
        inputs: dict[str, tuple[InputRef, ...]] = {}
        for node in self.order:
            step, name = node.step, node.step.name
            for found in node.encoder.inputs:
                found.slot["key"] = keys[names[id(found.step)]]
            reached = reach(node.things)
            payload = _payload(node, reached)
            key = hash_json(without_names(payload))
            names[id(step)] = name
            if name in steps:
                if keys[name] != key:
                    raise MarinadeError(_two_of_one_name(name, origins[name], payloads[name], node.origin, payload))
                continue
            steps[name], origins[name], keys[name], payloads[name], code[name] = (
                step,
                node.origin,
                key,
                payload,
                reached,
            )
            things[name] = node.things
            inputs[name] = tuple(_reference(found) for found in node.encoder.inputs)
        consumers: dict[str, dict[str, None]] = {name: {} for name in steps}
        for name, references in inputs.items():
            for reference in references:
                consumers[reference.step].setdefault(name)
        encoders = {node.step.name: node.encoder for node in reversed(self.order)}
        return Graph(
            targets=tuple(dict.fromkeys(target.name for target in self.targets)),
            steps=steps,
            inputs=inputs,
            payloads=payloads,
            keys=keys,
            code=code,
            things=things,
            outside={name: tuple(encoders[name].outside) for name in steps},
            execution_only={name: encoders[name].execution_only for name in steps},
            secrets={name: tuple(encoders[name].secrets) for name in steps},
            consumers={name: tuple(found) for name, found in consumers.items()},
            names=names,
        )

    def _walk(self) -> None:
        """Depth first, with a stack of our own: every step comes after its inputs."""
        done: set[int] = set()
        path: dict[int, Step] = {}
        stack: list[tuple[Step, str, bool]] = [(target, "targets", False) for target in reversed(self.targets)]
        while stack:
            step, origin, leaving = stack.pop()
            if leaving:
                del path[id(step)]
                done.add(id(step))
                self.order.append(self.nodes[id(step)])
                continue
            if id(step) in done:
                continue
            if id(step) in path:
                names = [found.name for found in path.values()]
                start = list(path).index(id(step))
                raise MarinadeError("the steps form a cycle: " + " -> ".join([*names[start:], step.name]))
            path[id(step)] = step
            node = self.nodes[id(step)] = _node(step, origin)
            stack.append((step, origin, True))
            for found in reversed(node.encoder.inputs):
                stack.append((found.step, f"{step.name}: {found.path}", False))


def _node(step: Step, origin: str) -> _Node:
    if not isinstance(step.name, str) or not _is_name(step.name):
        raise MarinadeError(f"{origin}: {step.name!r} is no name for a step; names have {_NAME}")
    if not dataclasses.is_dataclass(step.config) or isinstance(step.config, type):
        raise MarinadeError(
            f"step {step.name} ({origin}): its config is {type(step.config).__name__}, it has to be a frozen dataclass"
        )
    encoder = Encoder()
    try:
        function = qualified_name(step.function, "function")
        config = encoder.encode(step.config)
        used = things_used(step.uses)
    except IdentityError as error:
        raise IdentityError(f"step {step.name}: {error}") from error
    things = (step.function, *map(Valued, encoder.classes), *encoder.functions, *used)
    return _Node(step=step, origin=origin, encoder=encoder, config=config, function=function, things=things)


def _payload(node: _Node, reached: Code) -> dict[str, Any]:
    """What the recipe key hashes. `packages` is there only where there are any: a step without keeps its key."""
    payload: dict[str, Any] = {
        "function": node.function,
        "version": node.step.version,
        "config": node.config,
        "code": {},
    }
    if node.step.code == "rerun":
        payload["code"] = dict(reached.units)
        if reached.packages:
            payload["packages"] = dict(reached.packages)
    return payload


def _is_name(name: str) -> bool:
    parts = name.split("/")
    return all(
        part and part.strip(".") and part.replace("-", "").replace("_", "").replace(".", "").isalnum() for part in parts
    )


def _reference(found: FoundInput) -> InputRef:
    return InputRef(
        path=found.path, step=found.step.name, part=found.part, at=found.at, execution_only=found.execution_only
    )


def _two_of_one_name(name: str, first: str, old: dict[str, Any], second: str, new: dict[str, Any]) -> str:
    from executor.keys.changes import payload_changes

    lines = [f"two different steps are named {name}: one from {first}, one from {second}. They differ in:"]
    lines += [
        f"  {change.path or change.kind}: {canonical_json(change.old)} and {canonical_json(change.new)}"
        for change in payload_changes(old, new)[:5]
    ]
    return "\n".join([*lines, "give one of them another name"])
