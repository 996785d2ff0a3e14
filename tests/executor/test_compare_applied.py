"""Applying what a diff lists to A gives the keys of B: nothing is left out, nothing is only for people.

Only the JSON of the diff and A are read; the applying is written here, from what docs/diff.md says.
"""

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from executor.comparing.compare import diff
from executor.comparing.fields import field_changes
from executor.comparing.side import Side, SideStep, input_names
from executor.keys.identity import canonical_json, hash_json, without_names
from executor.render.as_json import change_json, diff_json


def inner(value: Any) -> Any:
    """What `at` goes on in: the items of a tuple or set, what a partial holds."""
    if isinstance(value, dict) and len(value) == 1:
        return next((value[mark] for mark in ("$tuple", "$set", "$partial") if mark in value), value)
    return value


def child(value: Any, part: Any) -> Any:
    value = inner(value)
    if isinstance(value, dict) and "$dict" in value:
        return next(item for key, item in value["$dict"] if json.dumps(key, sort_keys=True) == part)
    return value[part]


def put(value: Any, part: Any, item: Any) -> None:
    value = inner(value)
    if isinstance(value, dict) and "$dict" in value:
        rest = [pair for pair in value["$dict"] if json.dumps(pair[0], sort_keys=True) != part]
        value["$dict"][:] = sorted([*rest, [json.loads(part), item]], key=lambda pair: canonical_json(pair[0]))
    else:
        value[part] = item


def drop(value: Any, part: Any) -> None:
    value = inner(value)
    if isinstance(value, dict) and "$dict" in value:
        value["$dict"][:] = [pair for pair in value["$dict"] if json.dumps(pair[0], sort_keys=True) != part]
    else:
        del value[part]


def applied(config: Any, changes: list[dict[str, Any]]) -> Any:
    """The config with the changes made: values first, then items taken out from the back and put in from the front."""
    box = {"": json.loads(json.dumps(config))}
    lists: dict[tuple[Any, ...], tuple[list[int], list[tuple[int, Any]]]] = {}

    def at(parts: list[Any]) -> Any:
        found = box[""]
        for part in parts:
            found = child(found, part)
        return found

    for change in changes:
        if change["op"] == "changed":
            *parts, last = ["", *change["at"]]
            put(box if not parts else at(parts[1:]), last, new_value(change))
    for change in changes:
        *parts, last = change["at"] or [None]
        if change["op"] == "changed":
            continue
        holder = at(parts)
        if not isinstance(inner(holder), list):
            put(holder, last, new_value(change)) if change["op"] == "added" else drop(holder, last)
            continue
        out, come = lists.setdefault(tuple(parts), ([], []))
        if change["op"] in ("removed", "moved"):
            out.append(last)
        if change["op"] == "added":
            come.append((last, new_value(change)))
        if change["op"] == "moved":
            come.append((change["to"], child(holder, last)))
    for parts, (out, come) in sorted(lists.items(), key=lambda pair: -len(pair[0])):  # inner lists first
        items = inner(at(list(parts)))
        moved_in = sorted(come, key=lambda pair: pair[0])
        for number in sorted(out, reverse=True):
            del items[number]
        for number, item in moved_in:
            items.insert(number, item)
    return box[""]


def new_value(change: dict[str, Any]) -> Any:
    return change["exact"]["new"] if "exact" in change else change["new"]


def leaves() -> st.SearchStrategy[Any]:
    numbers = st.sampled_from([None, True, False, 0, 1, 1.0, 0.5, "", "1", "a"])
    return st.one_of(numbers, st.builds(lambda x: {"$float": x}, st.sampled_from(["nan", "inf"])))


def containers(items: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(items, max_size=4)
    fields = st.dictionaries(st.sampled_from(["a", "b", "a.b", "a.b.name", "", "name"]), items, max_size=4)
    stage = st.builds(
        lambda s, w, x: {"$type": "C", "start": s, "weight": w, "x": x}, st.integers(0, 4), leaves(), items
    )
    keys = st.sampled_from([1, 1.0, True, None, "1", "a", "1.0", "a.b"])
    pairs = st.lists(st.tuples(keys, items).map(list), max_size=3, unique_by=lambda pair: json.dumps(pair[0]))
    return st.one_of(
        lists,
        lists.map(lambda x: {"$tuple": x}),
        lists.map(lambda x: {"$set": sorted({json.dumps(i): i for i in x}.values(), key=hash_json)}),
        fields,
        fields.map(lambda x: {"$type": "steps.C", **x}),
        fields.map(lambda x: {"$partial": {"function": "f", "arguments": [], "keywords": x}}),
        pairs.map(lambda x: {"$dict": sorted(x, key=lambda pair: canonical_json(pair[0]))}),
        st.lists(stage, max_size=5, unique_by=lambda x: x["start"]),
    )


CONFIGS = st.recursive(leaves(), containers, max_leaves=12)


def check_values(old: Any, new: Any) -> None:
    changes = [change_json(change) for change in field_changes(old, new)]
    shown = Counter((change["path"], change["op"] == "added") for change in changes)
    assert not shown or max(shown.values()) == 1, "two changes under one path"
    assert canonical_json(applied(old, json.loads(json.dumps(changes)))) == canonical_json(new)


@st.composite
def edited(draw: st.DrawFn) -> tuple[Any, Any]:
    """Two configs that have much in common: items of one list, taken out, put in and in another order."""
    items = draw(st.lists(CONFIGS, min_size=1, max_size=6))
    more = [*items, *draw(st.lists(CONFIGS, max_size=2))]
    return {"x": items, "y": more[0]}, {"x": draw(st.permutations(more))[: draw(st.integers(0, 8))], "y": more[-1]}


@settings(max_examples=300, deadline=None)
@given(CONFIGS, CONFIGS, edited())
def test_changes_applied_to_a_config_give_the_other(old: Any, new: Any, pair: tuple[Any, Any]) -> None:
    check_values(old, new)
    check_values(*pair)


@pytest.mark.slow
@settings(max_examples=5_000, deadline=None)
@given(CONFIGS, CONFIGS, edited())
def test_many_changes_applied_to_a_config_give_the_other(old: Any, new: Any, pair: tuple[Any, Any]) -> None:
    check_values(old, new)
    check_values(*pair)


def keyed(payload: Any, keys: dict[str, str]) -> Any:
    """The payload with its inputs' keys put in."""
    if isinstance(payload, dict):
        if "$input" in payload:
            return {"$input": {**payload["$input"], "key": keys[payload["$input"]["step"]]}}
        return {name: keyed(item, keys) for name, item in payload.items()}
    return [keyed(item, keys) for item in payload] if isinstance(payload, list) else payload


VALUES = st.sampled_from([0, 1, 1.0, True, None, [1], {"$tuple": [1]}, {"k": 1}, {"k": 1, "l": 2}])


@st.composite
def recipes(draw: st.DrawFn) -> Side:
    """Few names, functions and values, so that renames, collisions, swaps and amendments are common."""
    steps: dict[str, SideStep] = {}
    for name in draw(st.permutations(["a", "b", "c", "d", "e"]))[: draw(st.integers(0, 5))]:
        config: dict[str, Any] = {"$type": "steps.Config", "v": draw(VALUES), "many": []}
        for field in ("i", "j", "many", "many"):
            if steps and draw(st.booleans()):
                at = draw(st.sampled_from([None, 1]))
                read = {"$input": {"step": draw(st.sampled_from(sorted(steps))), "part": "", "at": at}}
                config.__setitem__(field, read) if field != "many" else config["many"].append(read)
        payload = {
            "function": draw(st.sampled_from(["steps.f", "steps.f", "steps.g"])),
            "version": draw(st.sampled_from(["", "", "2"])),
            "config": config,
            "code": draw(st.sampled_from([{"steps.f": "1"}, {"steps.f": "1"}, {"steps.f": "2", "steps.h": "1"}])),
        }
        payload = keyed(payload, {known: step.key for known, step in steps.items()})
        amends = draw(st.sampled_from(sorted(steps))) if steps and draw(st.booleans()) else ""
        steps[name] = SideStep(key=hash_json(without_names(payload)), payload=payload, amends=amends)
    return Side(label="x", steps=steps)


def renamed_inputs(payload: Any, new_of: dict[str, str]) -> Any:
    if isinstance(payload, dict):
        if "$input" in payload:
            read = payload["$input"]
            return {"$input": {**read, "step": new_of.get(read["step"], read["step"])}}
        return {name: renamed_inputs(item, new_of) for name, item in payload.items()}
    return [renamed_inputs(item, new_of) for item in payload] if isinstance(payload, list) else payload


def with_changes(payload: dict[str, Any], changes: list[dict[str, Any]]) -> dict[str, Any]:
    payload = json.loads(json.dumps(payload))
    for change in changes:
        if change["kind"] == "code" and change["path"] in ("function", "version"):
            payload[change["path"]] = change["new"]
        elif change["kind"] == "code" and change["op"] == "removed":
            del payload["code"][change["path"]]
        elif change["kind"] == "code":
            payload["code"][change["path"]] = change["new"]
    payload["config"] = applied(payload["config"], [c for c in changes if c["kind"] != "code"])
    return payload


def check_recipes(a: Side, b: Side) -> None:
    found = json.loads(json.dumps(diff_json(diff(a, b))))
    equal = Counter(step.key for step in a.steps.values()) == Counter(step.key for step in b.steps.values())
    assert (found["causes"] or found["added"] or found["removed"]) is not equal
    if equal:
        assert not found["inherited"]
    old_of = {pair["new"]: pair["old"] for pair in found["renamed"]}
    new_of = {old: new for new, old in old_of.items()}
    changes = {cause["step"]: cause for cause in found["causes"]}
    inherited = {one["step"] for one in found["inherited"]}
    keys: dict[str, str] = {}
    for name in b.steps:  # declared after its inputs
        if name in found["added"]:
            keys[name] = b.steps[name].key
            continue
        old = old_of.get(name, name)
        if name not in changes and name not in inherited:
            keys[name] = a.steps[old].key
            continue
        cause = changes.get(name, {"changes": [], "amends": ""})
        if cause["amends"] and cause["amends"] in b.steps and name not in old_of:
            payload = b.steps[cause["amends"]].payload
        else:
            payload = renamed_inputs(a.steps[old].payload, new_of)
        payload = with_changes(payload, cause["changes"])
        for change in found["rewired"].get(name, []):
            *parts, last = change["at"]
            holder = payload["config"]
            for part in parts:
                holder = child(holder, part)
            put(holder, last, new_value(change))
        read = {step: keys[step] for step in input_names(payload)}
        keys[name] = hash_json(without_names(keyed(payload, read)))
    assert keys == {name: step.key for name, step in b.steps.items()}


@settings(max_examples=300, deadline=None)
@given(recipes(), recipes())
def test_a_diff_applied_to_a_gives_the_keys_of_b(a: Side, b: Side) -> None:
    check_recipes(a, b)


@pytest.mark.slow
@settings(max_examples=5_000, deadline=None)
@given(recipes(), recipes())
def test_many_diffs_applied_to_a_give_the_keys_of_b(a: Side, b: Side) -> None:
    check_recipes(a, b)
