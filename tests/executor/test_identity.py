# ruff: noqa: E501 - recipes and tables as text
"""Equal values hash equally everywhere; different ones differ; what has no stable form is an error with a place."""

import dataclasses
import datetime
import decimal
import enum
import functools
import os
import subprocess
import sys
from pathlib import Path, PurePosixPath, PureWindowsPath
from types import MappingProxyType

import numpy as np
import pytest

from executor import IdentityError, Input, Secret, Step, added, execution, fingerprint, identity
from executor.keys.identity import Encoder, canonical_json


@dataclasses.dataclass(frozen=True)
class Adam:
    lr: float = 0.1


@dataclasses.dataclass(frozen=True)
class Lion:
    lr: float = 0.1


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    rates: tuple[float, ...] = (1.0,)
    by_name: dict[str, float] = dataclasses.field(default_factory=dict)
    loose: object = None
    maybe: float | None = None
    either: int | float = 1


@dataclasses.dataclass(frozen=True)
class Old:
    hidden: int = 1


@dataclasses.dataclass(frozen=True)
class Grown:
    hidden: int = 1
    z_loss: float = added(default=0.0, born=0.0)
    workers: int = execution(8)


@dataclasses.dataclass(frozen=True)
class Takes:
    documents: Input
    several: tuple[Input, ...] = ()


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Access(enum.Flag):
    READ = 1
    WRITE = 2


def work(config, output):
    return None


def play(config, output):
    return None


VALUES = [
    None, True, False, 0, 1, -1, 1.0, 0.0, -0.0, float("nan"), float("inf"), float("-inf"), "1", "", "true", "\u00e9", "e\u0301",
    b"1", b"", [], (), {}, [1], (1,), [1, 2], [2, 1], [[1]], [True], [1.0], {"a": 1}, {"a": 1.0}, {1: "a"}, {"1": "a"},
    {True: "a"}, {1.5: "a"}, {None: "a"}, {(1, 2): 3}, {"$tuple": [1]}, {"$type": "x"}, {1}, {1, 2}, {"1"}, set(),
    range(3), range(4), slice(1, 2), 1j, decimal.Decimal("1.0"), datetime.date(2026, 1, 1),
    datetime.datetime(2026, 1, 1), datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), datetime.timedelta(days=1),
    Color.RED, Color.BLUE, Access.READ, Access.READ | Access.WRITE, Adam(), Lion(), Adam(0.2), Adam, Lion, work, play, len,
    functools.partial(work, 1), functools.partial(work, 2), functools.partial(play, 1), functools.partial(work, x=1),
    PurePosixPath("a/b"), "a/b", "https://me:x@host", "https://me:y@host", "https://***@host", Secret("A"), Secret("B"), np.float32(1), np.float64(1), np.int64(1), np.bool_(True),
    np.zeros(2), np.zeros(2, np.float32), np.zeros((2, 1)), np.ones(2), 2**70, 2.0**70,
]  # fmt: skip


def test_different_values_differ():
    seen: dict[str, object] = {}
    for value in VALUES:
        key = fingerprint(value)
        assert key not in seen, f"{value!r} and {seen[key]!r} have one fingerprint"
        seen[key] = value


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1}),
        ({"x", "y", "z"}, {"z", "y", "x"}),
        (frozenset({1}), {1}),
        (1e-5, 0.00001),
        (Adam(1), Adam(1.0)),
        (range(0, 3, 2), range(0, 4, 2)),
        (range(5, 5), range(0)),
        (PurePosixPath("a/b"), PureWindowsPath("a\\b")),
        (MappingProxyType({"a": 1}), {"a": 1}),
        (Slotted([1, 2]), Slotted((1.0, 2.0))),
        (Slotted(by_name={"a": 1}), Slotted(by_name={"a": 1.0})),
        (Slotted(maybe=1), Slotted(maybe=1.0)),
        (np.arange(4, dtype=">i4"), np.arange(4, dtype="<i4")),
        (np.zeros((4, 4)).T, np.zeros((4, 4))),
        (Grown(z_loss=0), Grown(z_loss=0.0, workers=99)),
        (["bert"] * 2, ["bert", "be" + "rt"]),
    ],
)
def test_equal_values_agree(first, second):
    assert fingerprint(first) == fingerprint(second)


def test_types_that_decide_nothing_keep_int_and_float_apart():
    assert fingerprint(Slotted(loose=1)) != fingerprint(Slotted(loose=1.0))
    assert fingerprint(Slotted(either=1)) != fingerprint(Slotted(either=1.0))
    assert fingerprint(Adam(True)) != fingerprint(Adam(1))


def test_a_field_at_the_value_it_was_born_with_is_not_there():
    encoded = Encoder().encode(Grown())
    assert "z_loss" not in encoded and "workers" not in encoded
    assert {name: value for name, value in encoded.items() if name != "$type"} == {"hidden": 1}
    assert fingerprint(Grown(z_loss=1e-4)) != fingerprint(Grown())


def test_golden_canonical_form():
    """Pinned: a change here gives every artifact of every store another key."""
    config = Slotted((1,), {"b": 2, "a": 1}, {"k": (1, {2: "two"}), "s": {3, 1}, "n": float("nan")}, None, 1)
    name = f"{__name__}.Slotted"
    assert canonical_json(Encoder().encode(config)).replace(name, "Slotted") == (
        '{"$type":"Slotted","by_name":{"a":1.0,"b":2.0},"either":1,'
        '"loose":{"k":{"$tuple":[1,{"$dict":[[2,"two"]]}]},"n":{"$float":"nan"},"s":{"$set":[3,1]}},'
        '"maybe":null,"rates":{"$tuple":[1.0]}}'
    )
    assert fingerprint({"a": [1, 1.0, "1", None, True]}) == (
        "577d9c8b4b93f1594e69d55129634f674ea2ede7f6923ff3f5f9adb07cfa0059"
    )


@pytest.mark.parametrize("seed", ["0", "1", "4242"])
def test_same_in_a_process_with_another_hash_seed(seed):
    code = (
        "from executor import fingerprint\n"
        "print(fingerprint([{'x', 'y', 'zebra', 'w'}, {'b': 1, 'a': {('q', 1): 2}}, frozenset({1.5, 'a', None})]))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
    )
    here = fingerprint([{"x", "y", "zebra", "w"}, {"b": 1, "a": {("q", 1): 2}}, frozenset({1.5, "a", None})])
    assert found.stdout.strip() == here


class Opaque:
    pass


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (lambda: 0, "lambda"),
        (Opaque(), "no stable form"),
        (Opaque().__init__, "no name of its own"),
        (object(), "no stable form"),
        (Path, None),
        (np.array([object()]), "array"),
        (np.zeros(1 << 18), "bytes is data"),
        (iter([]), "no stable form"),
    ],
)
def test_what_has_no_stable_form_names_its_field(value, said):
    if said is None:
        fingerprint(Slotted(loose={"deep": [value]}))
        return
    with pytest.raises(IdentityError, match=r"loose\.deep\.0.*" + said):
        fingerprint(Slotted(loose={"deep": [value]}))


def test_closures_and_local_classes_are_errors():
    def inner():
        return said

    said = 1
    with pytest.raises(IdentityError, match="inside a function"):
        fingerprint(Slotted(loose=inner))

    @dataclasses.dataclass
    class Local:
        x: int = 1

    with pytest.raises(IdentityError, match="inside a function"):
        fingerprint(Local())


def test_a_list_that_contains_itself_is_an_error():
    value: list = []
    value.append(value)
    with pytest.raises(IdentityError, match="contains itself"):
        fingerprint(value)


@pytest.mark.parametrize(
    "config",
    [Takes("gs://me:hunter2@x/y"), Takes(Step("a", work, Adam()), ("/tmp/x",)), Takes(Path("/tmp/x"))],  # type: ignore[arg-type]
)
def test_a_plain_string_or_path_where_an_input_belongs_is_an_error(config):
    with pytest.raises(IdentityError, match="raw inputs are steps") as error:
        fingerprint(config)
    assert "hunter2" not in str(error.value)


def test_an_input_counts_by_what_its_step_is_not_by_its_name():
    one, same, other = Step("a", work, Adam()), Step("b", work, Adam()), Step("a", play, Adam())
    assert fingerprint(Takes(one)) == fingerprint(Takes(same))
    assert fingerprint(Takes(one)) != fingerprint(Takes(other))
    assert fingerprint(Takes(one)) != fingerprint(Takes(one / "train"))
    assert fingerprint(Takes(one)) != fingerprint(Takes(one.at_step(3)))


def test_identity_pins_a_name_and_no_two_things_have_one():
    @identity("tests.pinned")
    @dataclasses.dataclass
    class Unused:
        x: int = 1

    with pytest.raises(IdentityError, match=r"tests\.pinned"):
        identity("tests.pinned")(Opaque)
    assert identity("tests.pinned.work")(play) is play
    try:
        assert Encoder().encode(play) == {"$function": "tests.pinned.work"}
    finally:
        del play.__dict__["__marinade_identity__"]


def test_secrets_are_named_never_read(monkeypatch):
    monkeypatch.setenv("TOKEN_FOR_TEST", "value-of-the-token")
    assert "value-of-the-token" not in canonical_json(Encoder().encode({"token": Secret("TOKEN_FOR_TEST")}))


def test_zones_of_one_name_and_two_offsets_differ():
    one, two = (datetime.timezone(datetime.timedelta(hours=hours), "X") for hours in (1, 2))
    assert fingerprint(one) != fingerprint(two)
    assert fingerprint(one) == fingerprint(datetime.timezone(datetime.timedelta(minutes=60), "X"))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (Slotted(loose={"deep": np.ma.masked_array([1, 2], mask=[True, False])}), r"loose\.deep: a masked array"),
        (Slotted(loose=np.ma.masked), r"loose: a masked array"),
        (Adam(10**400), r"lr: an int of 1329 bits is too large for a float"),
    ],
)
def test_what_would_lose_its_meaning_is_an_error_with_a_place(value, said):
    with pytest.raises(IdentityError, match=said):
        fingerprint(value)
