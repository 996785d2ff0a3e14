"""Values of every kind, by name; run as a script or imported, prints their fingerprints as JSON.

The digests that they must have stand in `fingerprints.json`. One of them changes only with the scheme of identity, and
then every artifact of every store has another key.
"""

import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import json
import re
import typing
import uuid
from pathlib import PurePosixPath
from types import MappingProxyType

import numpy as np

from executor import Input, Secret, Step, added, execution, external, fingerprint, identity


class Color(enum.Enum):
    RED = 1


class Access(enum.Flag):
    READ = 1
    WRITE = 2


@dataclasses.dataclass(frozen=True)
class Adam:
    lr: float = 0.1
    betas: tuple[float, ...] = (0.9, 0.95)
    z_loss: float = added(default=0.0, born=0.0)
    workers: int = execution(8)


@identity("golden.lion")
@dataclasses.dataclass(frozen=True, slots=True)
class Lion:
    lr: float = 0.1


@dataclasses.dataclass(frozen=True)
class Reads:
    source: Input | None = None
    many: dict[str, Input] = dataclasses.field(default_factory=dict)


class Pair(typing.NamedTuple):
    left: int
    right: int


def work(config, output):
    return None


first = Step("first", work, Adam(), code="pin")
raw = external("gs://bucket/data", digest="sha256:" + "0" * 64)

VALUES = {
    "none": None,
    "true": True,
    "int": 1,
    "large int": 2**70,
    "float": 1.0,
    "small float": 1e-5,
    "negative zero": -0.0,
    "nan": float("nan"),
    "infinity": float("-inf"),
    "text": "1",
    "composed": "\u00e9",
    "decomposed": "e\u0301",
    "surrogate": "\ud800",
    "url": "https://host/x?page=1",
    "url with a password": "https://me:hunter2@host/x",
    "bytes": b"\x00\xff",
    "list": [1, 1.0, "1", None, True],
    "tuple": (1, (2, [3])),
    "dict": {"b": 1, "a": {"d": 2, "c": 3}},
    "typed keys": {1: "a", "1": "b", False: "c", None: "d", 1.5: "e", (1, 2): "f"},
    "dollar keys": {"$tuple": [1]},
    "set": {"x", "y", 3, None},
    "mapping": MappingProxyType({"a": 1}),
    "range": range(0, 10, 3),
    "slice": slice(1, None, 2),
    "complex": 1 + 2j,
    "decimal": decimal.Decimal("1.10"),
    "fraction": fractions.Fraction(1, 3),
    "date": datetime.date(2026, 1, 2),
    "naive time": datetime.datetime(2026, 1, 2, 3, 4, 5, 6),
    "utc time": datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
    "duration": datetime.timedelta(days=1, microseconds=1),
    "uuid": uuid.UUID(int=7),
    "pattern": re.compile("a+", re.IGNORECASE),
    "path": PurePosixPath("a/b"),
    "enum": Color.RED,
    "flags": Access.READ | Access.WRITE,
    "class": Adam,
    "function": work,
    "partial": functools.partial(work, 1, output="x"),
    "dataclass": Adam(),
    "dataclass, grown": Adam(lr=1, z_loss=1e-4, workers=16),
    "dataclass, pinned name": Lion(),
    "named tuple": Pair(1, 2),
    "secret": Secret("HF_TOKEN"),
    "numpy scalar": np.float32(0.5),
    "numpy array": np.arange(6, dtype=np.int16).reshape(2, 3),
    "numpy dtype": np.dtype("bool"),
    "step": Reads(first),
    "part and milestone": Reads(first / "train", {"at": first.at_step(3)}),
    "external": Reads(raw),
}

DIGESTS = {name: fingerprint(value) for name, value in VALUES.items()}

if __name__ == "__main__":
    print(json.dumps(DIGESTS, indent=1))
