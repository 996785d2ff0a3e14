"""Over random values: equal ones hash equally, different ones differ. Over random recipes and edits: keys differ if
and only if `diff` says so (nextflow#7202)."""

import copy
import dataclasses
import json
import pickle
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from executor import Input, Step, added, execution, fingerprint
from executor.comparing.compare import diff
from executor.comparing.side import Side
from executor.keys.changes import payload_changes
from executor.keys.graph import Graph
from executor.keys.identity import canonical_json, without_names

TEXTS = st.sampled_from(["", "1", "a", "$tuple", "$type", "\u00e9", "e\u0301", "https://me:x@h", "https://me:y@h"])
JSON_LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 2), st.sampled_from([0.0, -0.0, 1.0, 0.5, 1e-5]), TEXTS
)
LEAVES = st.one_of(JSON_LEAVES, st.sampled_from([b"", b"1", float("nan"), 2**70, 1j, range(2)]))


@dataclasses.dataclass(frozen=True)
class Box:
    value: object = None
    rate: float = 1.0
    more: object = added(default=0, born=0)
    workers: object = execution(8)


def json_values() -> st.SearchStrategy[Any]:
    return st.recursive(
        JSON_LEAVES,
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
        max_leaves=6,
    )


def values() -> st.SearchStrategy[Any]:
    keys = st.one_of(st.none(), st.booleans(), st.integers(0, 2), TEXTS)
    return st.recursive(
        LEAVES,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.lists(inner, max_size=3).map(tuple),
            st.dictionaries(keys, inner, max_size=3),
            st.frozensets(st.integers(0, 2), max_size=2),
            st.builds(Box, inner, st.sampled_from([1, 1.0, 2.0]), more=inner, workers=inner),
        ),
        max_leaves=8,
    )


def form(value: Any) -> Any:
    """What a value is, said independently of the encoder: equal forms are equal values."""
    if isinstance(value, Box):
        return ("Box", form(value.value), form(float(value.rate)), form(value.more))
    if isinstance(value, list | tuple):
        return (type(value).__name__, *map(form, value))
    if isinstance(value, dict):
        return ("dict", frozenset((form(key), form(item)) for key, item in value.items()))
    if isinstance(value, frozenset):
        return ("set", frozenset(map(form, value)))
    return (type(value).__name__, repr(value))


def reordered(value: Any) -> Any:
    """The same value with every dict in the opposite order, execution-only fields aside."""
    if isinstance(value, Box):
        return Box(reordered(value.value), value.rate, more=reordered(value.more), workers="others")
    if isinstance(value, list | tuple):
        return type(value)(map(reordered, value))
    if isinstance(value, dict):
        return {key: reordered(item) for key, item in reversed(value.items())}
    return value


@settings(max_examples=100, deadline=None)
@given(values())
def test_copies_and_other_orders_hash_equally(value: Any) -> None:
    expected = fingerprint(value)
    for other in (copy.deepcopy(value), pickle.loads(pickle.dumps(value)), reordered(value)):
        assert fingerprint(other) == expected


@settings(max_examples=100, deadline=None)
@given(json_values())
def test_a_round_trip_through_json_changes_nothing(value: Any) -> None:
    assert fingerprint(json.loads(json.dumps(value))) == fingerprint(value)


@settings(max_examples=200, deadline=None)
@given(values(), values())
def test_equal_hashes_if_and_only_if_equal_values(first: Any, second: Any) -> None:
    assert (fingerprint(first) == fingerprint(second)) is (form(first) == form(second))


def leaves(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to the leaves of lists, tuples and dicts."""
    if isinstance(value, list | tuple):
        return [path for number, item in enumerate(value) for path in leaves(item, (*at, number))]
    if isinstance(value, dict):
        return [path for key, item in value.items() for path in leaves(item, (*at, key))]
    return [at]


def with_leaf(value: Any, path: tuple[Any, ...], leaf: Any) -> Any:
    if not path:
        return leaf
    if isinstance(value, dict):
        return {key: with_leaf(item, path[1:], leaf) if key == path[0] else item for key, item in value.items()}
    return type(value)(with_leaf(item, path[1:], leaf) if n == path[0] else item for n, item in enumerate(value))


@settings(max_examples=150, deadline=None)
@given(st.data(), values(), LEAVES)
def test_one_other_leaf_is_another_hash(data: st.DataObject, value: Any, leaf: Any) -> None:
    paths = leaves(value)
    if not paths:
        return
    changed = with_leaf(value, data.draw(st.sampled_from(paths)), leaf)
    assert (fingerprint(changed) == fingerprint(value)) is (form(changed) == form(value))


@dataclasses.dataclass(frozen=True)
class Config:
    value: object = 0
    one: Input | None = None
    many: tuple[Input, ...] = ()
    grown: object = added(default=0, born=0)
    workers: int = execution(8)
    advice: Input | None = execution(None)


def work(config, output):
    return None


def play(config, output):
    return None


@dataclasses.dataclass(frozen=True)
class Declared:
    """A step before it is built: inputs are (name, part, milestone) of steps declared before it."""

    function: Any
    value: Any
    grown: int
    workers: int
    one: tuple[str, str, int | None] | None
    many: tuple[tuple[str, str, int | None], ...]
    advice: str
    amends: str
    code: str
    version: str
    uses: tuple[Any, ...]


NAMES = ["a", "b", "c", "d", "e"]


@st.composite
def declared(draw: st.DrawFn, before: tuple[str, ...]) -> Declared:
    inputs = st.tuples(st.sampled_from(before or ("",)), st.sampled_from(["", "x"]), st.sampled_from([None, 1]))
    inputs = inputs.map(lambda found: (found[0], "" if found[2] else found[1], found[2]))
    names = st.sampled_from(["", *before])
    return Declared(
        function=draw(st.sampled_from([work, work, play])),
        value=draw(st.sampled_from([0, 0, 1, 1.0, (1,), [1], {"k": 1}, work])),
        grown=draw(st.sampled_from([0, 0, 1])),
        workers=draw(st.sampled_from([8, 16])),
        one=draw(st.none() | inputs) if before else None,
        many=tuple(draw(st.lists(inputs, max_size=2))) if before else (),
        advice=draw(names),
        amends=draw(names),
        code=draw(st.sampled_from(["rerun", "rerun", "pin"])),
        version=draw(st.sampled_from(["", "", "2"])),
        uses=draw(st.sampled_from([(), (), ("tenacity",), (play,)])),
    )


@st.composite
def recipes(draw: st.DrawFn) -> dict[str, Declared]:
    found: dict[str, Declared] = {}
    for name in draw(st.permutations(NAMES))[: draw(st.integers(0, 4))]:
        found[name] = draw(declared(tuple(found)))
    return found


@st.composite
def edited(draw: st.DrawFn, recipe: dict[str, Declared]) -> dict[str, Declared]:
    """A recipe after one to three edits: a field, what is taken of an input, a step renamed, added or taken out."""
    recipe = dict(recipe)
    for _ in range(draw(st.integers(1, 3))):
        edit = draw(st.sampled_from(["field", "input", "rename", "add", "remove"])) if recipe else "add"
        free = [name for name in NAMES if name not in recipe]
        if edit == "field":
            name = draw(st.sampled_from(list(recipe)))
            new = draw(declared(tuple(list(recipe)[: list(recipe).index(name)])))
            field = draw(st.sampled_from([field.name for field in dataclasses.fields(Declared)]))
            recipe[name] = dataclasses.replace(recipe[name], **{field: getattr(new, field)})
        elif edit == "input":
            for name, step in recipe.items():
                if step.one is not None:
                    taken = draw(st.sampled_from([("", None), ("x", None), ("", 1), ("", 2)]))
                    recipe[name] = dataclasses.replace(step, one=(step.one[0], *taken))
        elif edit == "rename" and free:
            old, new_name = draw(st.sampled_from(list(recipe))), draw(st.sampled_from(free))
            recipe = {new_name if name == old else name: _renamed(step, old, new_name) for name, step in recipe.items()}
        elif edit == "add" and free:
            recipe[draw(st.sampled_from(free))] = draw(declared(tuple(recipe)))
        elif edit == "remove":
            recipe.pop(draw(st.sampled_from(list(recipe))))
    return recipe


def _renamed(step: Declared, old: str, new: str) -> Declared:
    def name(found: str) -> str:
        return new if found == old else found

    return dataclasses.replace(
        step,
        one=step.one and (name(step.one[0]), *step.one[1:]),
        many=tuple((name(source), part, at) for source, part, at in step.many),
        advice=name(step.advice),
        amends=name(step.amends),
    )


def graph_of(recipe: dict[str, Declared]) -> Graph:
    """Built as a recipe would; an input that an edit took out is none."""
    steps: dict[str, Step] = {}

    def taken(found: tuple[str, str, int | None] | None) -> Any:
        if found is None or found[0] not in steps:
            return None
        source, part, at = steps[found[0]], found[1], found[2]
        return source.at_step(at) if at is not None else source / part if part else source

    for name, step in recipe.items():
        many = tuple(source for found in step.many if (source := taken(found)) is not None)
        config = Config(
            value=step.value,
            one=taken(step.one),
            many=many,
            grown=step.grown,
            workers=step.workers,
            advice=steps.get(step.advice),
        )
        steps[name] = Step(
            name, step.function, config, code=step.code, version=step.version, uses=step.uses,
            amends=steps.get(step.amends),
        )  # type: ignore[arg-type]  # fmt: skip
    return Graph.of(list(steps.values()))


def as_recorded(graph: Graph) -> Side:
    """The side as a later process reads it from a run's JSON."""
    steps = {
        name: {
            "key": graph.keys[name],
            "payload": graph.payloads[name],
            "amends": step.amends.name if step.amends else "",
            "pinned": graph.code[name].fingerprints if step.code == "pin" else None,
            "execution_only": graph.execution_only[name],
        }
        for name, step in graph.steps.items()
    }
    return Side.of_run("a", json.loads(json.dumps(steps)))


@settings(max_examples=150, deadline=None)
@given(st.data(), recipes())
def test_keys_differ_if_and_only_if_the_diff_says_so(data: st.DataObject, recipe: dict[str, Declared]) -> None:
    before, after = graph_of(recipe), graph_of(data.draw(edited(recipe)))
    found = diff(as_recorded(before), Side.of_graph("b", after))
    assert found.different is (Counter(before.keys.values()) != Counter(after.keys.values()))
    assert all(cause.changes for cause in found.causes)
    assert "identity rules" not in {change.path for cause in found.causes for change in cause.changes}, (
        "no reason found"
    )
    known = {cause.step for cause in found.causes}
    assert all(step.causes and set(step.causes) <= known for step in found.inherited)
    told = {*known, *(step.step for step in found.inherited), *found.added}
    assert {name for name, key in after.keys.items() if key not in before.keys.values()} <= told


@settings(max_examples=100, deadline=None)
@given(st.data(), recipes())
def test_a_plan_has_a_reason_if_and_only_if_the_key_is_another(
    data: st.DataObject, recipe: dict[str, Declared]
) -> None:
    before, after = graph_of(recipe), graph_of(data.draw(edited(recipe)))
    for name in before.steps.keys() & after.steps.keys():
        reasons = payload_changes(json.loads(json.dumps(before.payloads[name])), after.payloads[name])
        texts = {canonical_json(without_names(graph.payloads[name])) for graph in (before, after)}
        assert (len(texts) == 1) is (before.keys[name] == after.keys[name])
        assert bool(reasons) is (before.keys[name] != after.keys[name])
