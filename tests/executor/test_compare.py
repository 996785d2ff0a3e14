"""Causes first, by name; everything else inherits. And: keys differ if and only if the diff says so."""

import dataclasses
import json
import time
import tracemalloc
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from executor.comparing.compare import Diff, diff
from executor.comparing.fields import field_changes, readable
from executor.comparing.side import Side, SideStep
from executor.keys.identity import hash_json, without_names


def use(step: str, part: str = "", at: int | None = None) -> dict[str, Any]:
    return {"$input": {"step": step, "key": "", "part": part, "at": at}}


def side(label: str = "x", **steps: Any) -> Side:
    """Steps in order, each after its inputs: name=config or name=(config, extras of SideStep and the payload)."""
    found: dict[str, SideStep] = {}

    def keyed(value: Any) -> Any:
        if isinstance(value, dict):
            if "$input" in value:
                return {"$input": {**value["$input"], "key": found[value["$input"]["step"]].key}}
            return {name: keyed(item) for name, item in value.items()}
        return [keyed(item) for item in value] if isinstance(value, list) else value

    for name, declared in steps.items():
        config, extras = declared if isinstance(declared, tuple) else (declared, {})
        extras = dict(extras)
        payload = {
            "function": extras.pop("function", "steps.work"),
            "version": extras.pop("version", ""),
            "config": keyed({"$type": "steps.Config", **config}),
            "code": extras.pop("code", {"steps.work": "f1"}),
        }
        found[name] = SideStep(key=hash_json(without_names(payload)), payload=payload, **extras)
    return Side(label=label, steps=found)


def causes(found: Diff) -> dict[str, list[tuple[str, str, Any, Any]]]:
    return {c.step: [(x.kind, x.path, readable(x.old), readable(x.new)) for x in c.changes] for c in found.causes}


def inherited(found: Diff) -> dict[str, tuple[str, ...]]:
    return {step.step: step.causes for step in found.inherited}


BASE: dict[str, Any] = {
    "corpus": {"sources": ["library"]},
    "tokens": {"documents": use("corpus", "train"), "vocab": 2048},
    "train": {"data": use("tokens"), "rate": 0.1},
    "report": {"run": use("train"), "title": "t"},
}


def test_one_field_is_one_cause_and_the_rest_inherits() -> None:
    changed = {**BASE, "tokens": {**BASE["tokens"], "vocab": 4096}}
    found = diff(side(**BASE), side(**changed))
    assert causes(found) == {"tokens": [("config", "vocab", 2048, 4096)]}
    assert inherited(found) == {"train": ("tokens",), "report": ("tokens",)}
    assert found.identical == 1 and found.different and not (found.added or found.removed or found.renamed)


def test_a_step_below_two_causes_lists_both() -> None:
    changed = {**BASE, "tokens": {**BASE["tokens"], "vocab": 4096}, "train": {**BASE["train"], "rate": 0.2}}
    found = diff(side(**BASE), side(**changed))
    assert set(causes(found)) == {"tokens", "train"}
    assert inherited(found) == {"report": ("tokens", "train")}


def test_equal_sides_have_no_difference() -> None:
    found = diff(side("a", **BASE), side("b", **BASE))
    assert not found.different and found.identical == 4 and found == Diff(a="a", b="b", identical=4)


def test_types_of_numbers_are_differences() -> None:
    found = diff(side(a={"x": 1, "y": True}), side(a={"x": 1.0, "y": 1}))
    assert causes(found) == {"a": [("config", "x", 1, 1.0), ("config", "y", True, 1)]}


def test_an_input_taken_from_elsewhere_is_a_cause() -> None:
    changed = {**BASE, "train": {**BASE["train"], "data": use("tokens", "small")}}
    found = diff(side(**BASE), side(**changed))
    assert causes(found) == {"train": [("input", "data", "tokens", "tokens/small")]}
    assert inherited(found) == {"report": ("train",)}


def test_code_and_version_are_causes() -> None:
    changed = {**BASE, "corpus": (BASE["corpus"], {"code": {"steps.work": "f2", "steps.more": "f3"}, "version": "2"})}
    found = diff(side(**BASE), side(**changed))
    assert causes(found) == {
        "corpus": [
            ("code", "version", "", "2"),
            ("code", "steps.more", None, "f3"),
            ("code", "steps.work", "f1", "f2"),
        ]
    }


def test_added_and_removed_steps() -> None:
    more = {**BASE, "extra": {"run": use("train")}}
    found = diff(side(**BASE), side(**more))
    assert found.added == ("extra",) and not found.causes and found.different
    found = diff(side(**more), side(**BASE))
    assert found.removed == ("extra",) and not found.causes and found.different


def test_a_renamed_step_is_no_difference() -> None:
    renamed = {
        "corpus": BASE["corpus"],
        "tokens/code": BASE["tokens"],
        "train": {"data": use("tokens/code"), "rate": 0.1},
        "report": BASE["report"],
    }
    found = diff(side(**BASE), side(**renamed))
    assert found.renamed == (("tokens", "tokens/code"),) and not found.different and found.identical == 4


def test_renamed_below_a_change_is_matched_by_payload() -> None:
    renamed = {
        "corpus": {"sources": ["library", "more"]},
        "tokens/code": BASE["tokens"],
        "train": {"data": use("tokens/code"), "rate": 0.1},
        "report": BASE["report"],
    }
    found = diff(side(**BASE), side(**renamed))
    assert found.renamed == (("tokens", "tokens/code"),)
    assert causes(found) == {"corpus": [("config", "sources.1", None, "more")]}
    assert inherited(found) == {"tokens/code": ("corpus",), "train": ("corpus",), "report": ("corpus",)}


def test_names_that_changed_places_are_renamed_not_changed() -> None:
    found = diff(side(a={"x": 1}, b={"x": 2}), side(a={"x": 2}, b={"x": 1}))
    assert not found.different and set(found.renamed) == {("a", "b"), ("b", "a")}


def test_a_name_kept_for_a_changed_step_stays_with_it() -> None:
    found = diff(side(a={"x": 1}), side(a={"x": 2}, old={"x": 1}))
    assert causes(found) == {"a": [("config", "x", 1, 2)]} and found.added == ("old",) and not found.renamed


RUN: dict[str, Any] = {
    "tokens": {"vocab": 1},
    "pretrain": {"data": use("tokens"), "weights": {"code": 0.2, "prose": 0.8}, "start": None},
    "midtrain": {"start": use("pretrain", at=312)},
    "eval": {"run": use("midtrain")},
}
SWAP: dict[str, Any] = {
    "tokens": RUN["tokens"],
    "pretrain": RUN["pretrain"],
    "swap": (
        {
            "data": use("tokens"),
            "weights": {"code": 0.3, "math": 0.1, "prose": 0.6},
            "start": use("pretrain", at=108),
        },
        {"amends": "pretrain"},
    ),
    "midtrain": {"start": use("swap", at=312)},
    "eval": RUN["eval"],
}
SWAPPED = [
    ("config", "weights.code", 0.2, 0.3),
    ("config", "weights.prose", 0.8, 0.6),
    ("config", "weights.math", None, 0.1),
    ("input", "start", None, "pretrain@108"),
]


def test_an_amendment_is_the_one_cause_and_its_consumers_inherit() -> None:
    found = diff(side(**RUN), side(**SWAP))
    assert causes(found) == {"swap": SWAPPED}
    assert found.causes[0].amends == "pretrain"
    assert inherited(found) == {"midtrain": ("swap",), "eval": ("swap",)}
    assert not found.added and not found.removed and found.identical == 2


def test_an_amendment_taken_back_is_one_cause_too() -> None:
    found = diff(side(**SWAP), side(**RUN))
    assert causes(found) == {"swap": [(kind, path, new, old) for kind, path, old, new in _reversed(SWAPPED)]}
    assert inherited(found) == {"midtrain": ("swap",), "eval": ("swap",)}
    assert not found.added and not found.removed


def _reversed(changes: list[tuple[str, str, Any, Any]]) -> list[tuple[str, str, Any, Any]]:
    order = ["weights.code", "weights.math", "weights.prose", "start"]
    return sorted(changes, key=lambda change: order.index(change[1]))


def test_an_amendment_of_an_amendment_and_a_change_above_both() -> None:
    twice = {
        **SWAP,
        "again": (
            {**SWAP["swap"][0], "start": use("swap", at=200), "weights": {"code": 1.0}},
            {"amends": "swap"},
        ),
        "midtrain": {"start": use("again", at=312)},
    }
    order = ["tokens", "pretrain", "swap", "again", "midtrain", "eval"]
    found = diff(side(**RUN), side(**{name: twice[name] for name in order}))
    assert set(causes(found)) == {"swap", "again"}
    assert ("input", "start", "pretrain@108", "swap@200") in causes(found)["again"]
    assert inherited(found) == {"midtrain": ("swap", "again"), "eval": ("swap", "again")}
    found = diff(side(**RUN), side(**{**SWAP, "tokens": {"vocab": 2}}))
    assert set(causes(found)) == {"tokens", "swap"}
    assert inherited(found) == {
        "pretrain": ("tokens",),
        "midtrain": ("tokens", "swap"),
        "eval": ("tokens", "swap"),
    }


def test_execution_only_and_pinned_code_are_notes() -> None:
    a = side(x=({"y": 1}, {"pinned": {"f": "1", "g": "1"}, "execution_only": {"workers": 8}}))
    b = side(x=({"y": 1}, {"pinned": {"f": "2", "g": "1"}, "execution_only": {"workers": 16}}))
    found = diff(a, b)
    assert not found.different and found.identical == 1
    assert [(n.step, n.kind, [(c.path, c.old, c.new) for c in n.changes]) for n in found.notes] == [
        ("x", "execution", [("workers", 8, 16)]),
        ("x", "pinned", [("f", "1", "2")]),
    ]


def test_equal_words_under_other_identity_rules_are_a_cause() -> None:
    a = side(**BASE)
    step = a.steps["corpus"]
    b = Side(label="b", steps={**a.steps, "corpus": dataclasses.replace(step, key="other")})
    found = diff(a, b)
    assert list(causes(found)) == ["corpus"] and found.causes[0].changes[0].path == "identity rules"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"a": {"$tuple": [1, 2]}}, {"a": {"$tuple": [1, 3]}}, [("a.1", 2, 3)]),
        ({"a": [1, 2]}, {"a": {"$tuple": [1, 2]}}, [("a", [1, 2], [1, 2])]),
        ({"a": [1, 2, 9]}, {"a": [1, 5, 2, 9]}, [("a.1", None, 5)]),
        (
            {"a": [{"name": "x", "w": 1}, {"name": "y", "w": 1}]},
            {"a": [{"name": "y", "w": 2}]},
            [("a.x", {"name": "x", "w": 1}, None), ("a.y.w", 1, 2)],
        ),
        ({"a": {"$dict": [[1, "x"]]}}, {"a": {"$dict": [["1", "x"], [2, "y"]]}}, None),
        ({"a": {"$dict": [[1, "x"]]}}, {"a": {"$dict": [["1", "x"]]}}, [("a.1", "x", None), ('a."1"', None, "x")]),
        ({"o": {"$type": "Adam", "lr": 1}}, {"o": {"$type": "Lion", "lr": 1}}, None),
        ({"a": None}, {}, [("a", None, None)]),
        ({"a": {"$float": "nan"}}, {"a": 0.5}, [("a", "nan", 0.5)]),
        ({"a": {"$dict": [[1, 0.5]]}}, {"a": {"$dict": [[1, 0.25]]}}, [("a.1", 0.5, 0.25)]),
    ],
)
def test_changes_of_values(old: Any, new: Any, expected: list[tuple[str, Any, Any]] | None) -> None:
    found = [(change.path, readable(change.old), readable(change.new)) for change in field_changes(old, new)]
    assert found if expected is None else found == expected
    assert not field_changes(old, old)


def stage(start: int, **weights: float) -> dict[str, Any]:
    return {"$type": "steps.Stage", "start_step": start, "weights": weights}


STAGES = [stage(0, code=0.2, prose=0.8), stage(800, code=0.5, prose=0.5), stage(900, code=1.0, prose=0.0)]


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        (
            [STAGES[0], stage(800, code=0.3, prose=0.5), STAGES[2]],
            [("changed", "stages[start_step=800].weights.code", 0.5, 0.3)],
        ),
        (
            [STAGES[0], stage(400, code=0.0), stage(800, code=0.3, prose=0.5), STAGES[2]],
            [
                ("changed", "stages[start_step=800].weights.code", 0.5, 0.3),
                ("added", "stages[start_step=400]", None, stage(400, code=0.0)),
            ],
        ),
        ([STAGES[0], STAGES[2]], [("removed", "stages[start_step=800]", STAGES[1], None)]),
        ([STAGES[2], STAGES[0], STAGES[1]], [("moved", "stages[start_step=900]", 2, 0)]),
        (
            [STAGES[0], stage(850, code=0.5, prose=0.5), STAGES[2]],
            [("changed", "stages[start_step=800].start_step", 800, 850)],
        ),
    ],
)
@pytest.mark.parametrize("wrap", [list, lambda items: {"$tuple": items}])
def test_stages_are_compared_by_their_start(new: Any, expected: Any, wrap: Any) -> None:
    found = field_changes({"stages": wrap(STAGES)}, {"stages": wrap(new)})
    assert sorted((c.op, c.path, c.old, c.new) for c in found) == sorted(expected)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"$set": ["a", "b"]}, {"$set": ["a", "c", "b"]}, [("added", "x.1", None, "c")]),
        (["a", "b", "c"], ["c", "a", "b"], [("moved", "x.2", 2, 0)]),
        (
            {"$partial": {"function": "f", "arguments": [], "keywords": {"k": 1}}},
            {"$partial": {"function": "f", "arguments": [], "keywords": {"k": 2}}},
            [("changed", "x.keywords.k", 1, 2)],
        ),
        ({"k": None}, {}, [("removed", "x.k", None, None)]),
    ],
)
def test_other_containers(old: Any, new: Any, expected: Any) -> None:
    found = field_changes({"x": old}, {"x": new})
    assert [(c.op, c.path, c.old, c.new) for c in found] == expected


def test_changed_code_is_shown_as_lines_once_it_was_kept() -> None:
    old, new = {"steps.work": "def work():\n    return 1"}, {"steps.work": "def work():\n    return 2"}
    before = side(a=({"x": 1}, {"source": old}), b=({"x": 2}, {}))
    after = side(
        a=({"x": 1}, {"source": new, "code": {"steps.work": "f2"}}), b=({"x": 2}, {"code": {"steps.work": "f2"}})
    )
    a, b = (cause.changes[0].code for cause in diff(before, after).causes)
    assert a is not None and a.lines == ("@@ -1,2 +1,2 @@", " def work():", "-    return 1", "+    return 2")
    assert b is not None and not b.lines and "not kept" in b.missing


def test_two_that_share_nothing_say_so() -> None:
    other = {"function": "others.work"}
    found = diff(side(**BASE), side(corpus=({"y": 1}, other), more=({"y": 2}, other)))
    assert found.shares_nothing and found.different and not found.causes
    assert found.removed == tuple(BASE) and found.added == ("corpus", "more")
    assert not diff(side(a={"x": 1}), side(a=({"x": 1}, other))).shares_nothing  # a function under another name
    assert not diff(side(), side(**BASE)).shares_nothing


def test_steps_of_one_function_share_it_whatever_their_names() -> None:
    found = diff(side(x={"v": 1, "w": 2}), side(y={"v": 1, "w": 3}))
    assert not found.shares_nothing and (found.removed, found.added) == (("x",), ("y",))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"a.b": 1, "a": {"b": 1}}, {"a.b": 2, "a": {"b": 2}}, ['"a.b"', "a.b"]),
        ({"": 1}, {"": 2}, ['""']),
        (
            [{"name": "a.b", "b": 1}, {"name": "a", "b": {"b": 1}}],
            [{"name": "a.b", "b": 2}, {"name": "a", "b": {"b": 2}}],
            ['"a.b".b', "a.b.b"],
        ),
        ({"$dict": [[1.5, 1], ["1.5", 1]]}, {"$dict": [[1.5, 2], ["1.5", 2]]}, ["[1.5]", '"1.5"']),
    ],
)
def test_paths_name_one_place(old: Any, new: Any, expected: list[str]) -> None:
    assert [change.path for change in field_changes(old, new)] == expected


def test_execution_only_paths_stay_as_they_are() -> None:
    a, b = (side(x=({"y": 1}, {"execution_only": {"data.workers": n}})) for n in (8, 16))
    assert [change.path for note in diff(a, b).notes for change in note.changes] == ["data.workers"]


def test_a_side_travels_as_json() -> None:
    a = side(x=({"y": 1}, {"source": {"f": "text", "g": "text"}, "numbers": {"tokens": 1}, "pinned": {"f": "1"}}))
    text = a.to_json()
    assert Side.from_json(text) == a and text.count('"text"') == 1


def leaves() -> st.SearchStrategy[Any]:
    numbers = st.sampled_from([None, True, False, 0, 1, 1.0, 0.5, "", "1", "a"])
    return st.one_of(numbers, st.builds(lambda x: {"$float": x}, st.sampled_from(["nan", "inf"])))


def containers(items: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    fields = st.dictionaries(st.sampled_from(["a", "b", "name"]), items, max_size=3)
    pairs = st.lists(st.tuples(st.sampled_from([1, 1.0, True, None, "1", "a"]), items).map(list), max_size=3)
    return st.one_of(
        st.lists(items, max_size=3),
        st.lists(items, max_size=3).map(lambda x: {"$tuple": x}),
        fields,
        fields.map(lambda x: {"$type": "steps.C", **x}),
        pairs.filter(lambda x: len({json.dumps(key) for key, _ in x}) == len(x)).map(lambda x: {"$dict": x}),
    )


CANONICAL = st.recursive(leaves(), containers, max_leaves=8)


@settings(max_examples=300, deadline=None)
@given(CANONICAL, CANONICAL)
def test_no_changes_if_and_only_if_the_text_is_the_same(old: Any, new: Any) -> None:
    same = json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True)
    assert bool(field_changes(old, new)) is not same
    assert not field_changes(old, json.loads(json.dumps(old)))


# Random recipes, edited at random. Few names and few values, so that renames, collisions and swaps are common.
VALUES = st.sampled_from([0, 1, 1.0, True, None, [1], {"$tuple": [1]}, {"k": 1}, {"k": 1, "l": 2}])


@st.composite
def recipes(draw: st.DrawFn) -> Side:
    names = draw(st.permutations(["a", "b", "c", "d", "e"]))[: draw(st.integers(0, 5))]
    steps: dict[str, Any] = {}
    for name in names:
        config: dict[str, Any] = {"v": draw(VALUES)}
        for field in ("i", "j"):
            if steps and draw(st.booleans()):
                config[field] = use(draw(st.sampled_from(sorted(steps))), at=draw(st.sampled_from([None, 1])))
        amends = draw(st.sampled_from(sorted(steps))) if steps and draw(st.booleans()) else ""
        steps[name] = (config, {"amends": amends})
    return side(**steps)


@settings(max_examples=400, deadline=None)
@given(recipes(), recipes())
def test_keys_differ_if_and_only_if_the_diff_says_so(a: Side, b: Side) -> None:
    found = diff(a, b)
    equal = Counter(step.key for step in a.steps.values()) == Counter(step.key for step in b.steps.values())
    assert found.different is not equal
    listed = [*(c.step for c in found.causes), *(i.step for i in found.inherited), *found.added, *found.removed]
    assert len(listed) == len(set(listed)) or set(found.removed) & set(found.added)
    assert all(cause.changes for cause in found.causes)
    known = {cause.step for cause in found.causes}
    assert all(step.causes and set(step.causes) <= known for step in found.inherited)
    if equal:
        assert not found.inherited


def test_ten_thousand_steps_in_seconds() -> None:
    """A chain, changed at its root: linear in the number of steps, without recursion."""

    def chain(first: int) -> Side:
        steps: dict[str, Any] = {"s0": {"v": first}}
        for number in range(1, 10_000):
            steps[f"s{number}"] = {"v": number, "i": use(f"s{number - 1}")}
        return side(**steps)

    a, b = chain(1), chain(2)
    started = time.process_time()
    found = diff(a, b)
    assert list(causes(found)) == ["s0"] and len(found.inherited) == 9_999
    assert time.process_time() - started < 5


def test_causes_above_causes_take_memory_in_proportion() -> None:
    """A chain of which every step is a cause, but for the last two, which inherit from all of them."""

    def chain(first: int, count: int) -> Side:
        steps: dict[str, Any] = {"s0": {"v": first}}
        for number in range(1, count):
            steps[f"s{number}"] = {"v": first if number < count - 2 else 0, "n": number, "i": use(f"s{number - 1}")}
        return side(**steps)

    peaks = []
    for count in (500, 2_000):
        a, b = chain(1, count), chain(2, count)
        tracemalloc.start()
        found = diff(a, b)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        last = found.inherited[-1].causes
        assert last == tuple(f"s{number}" for number in range(count - 2)) and last is found.inherited[-2].causes
    assert peaks[1] < 6 * peaks[0]


def test_long_lists_with_other_names_are_compared_in_seconds() -> None:
    old = [{"name": f"a{i}", "u": i, "v": i} for i in range(2_000)]
    new = [{"name": f"b{i}", "u": -i - 1, "v": -i - 1} for i in range(2_000)]
    started = time.process_time()
    found = field_changes([*old, {"name": "z", "v": 0}], [*new, {"name": "z", "v": 1}])
    assert len(found) == 4_001 and time.process_time() - started < 3


def test_two_artifacts_that_were_asked_for_are_compared_with_each_other():
    """Whatever their names: of two recipes the same steps would be one added and one removed."""
    a = {"tokens": side_step("k1", n=1), "arm/with": side_step("k2", z_loss=0.1)}
    b = {"tokens": side_step("k1", n=1), "arm/without": side_step("k3", z_loss=0.0)}
    found = diff(Side(label="a", steps=a, root="arm/with"), Side(label="b", steps=b, root="arm/without"))
    assert [(cause.step, [change.path for change in cause.changes]) for cause in found.causes] == [
        ("arm/without", ["z_loss"])
    ]
    assert found.renamed == (("arm/with", "arm/without"),) and not found.added and not found.removed
    recipes = diff(Side(label="a", steps=a), Side(label="b", steps=b))
    assert (recipes.added, recipes.removed, recipes.causes) == (("arm/without",), ("arm/with",), ())
    other = {**b, "arm/without": dataclasses.replace(b["arm/without"], payload={"function": "another.one"})}
    apart = diff(Side(label="a", steps=a, root="arm/with"), Side(label="b", steps=other, root="arm/without"))
    assert apart.added == ("arm/without",), "another function is another thing"


def side_step(key, **config):
    return SideStep(key=key, payload={"function": "toy.work", "config": config, "code": {}})
