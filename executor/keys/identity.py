"""Values as canonical JSON, and JSON as a hash. When are two configs the same?

    fingerprint(TrainConfig(lr=1e-3)) == fingerprint(TrainConfig(lr=0.001))     equal values, any process, any machine
    fingerprint([1]) != fingerprint([1.0]) != fingerprint([True])               types count where no field decides
    fingerprint({"a": lambda: 0})                                               IdentityError naming the place

JSON scalars and lists, and dicts whose keys are plain strings, stand for themselves. Everything else is an object
with one `$` name: {"$tuple": [...]}, {"$type": "steps.train.TrainConfig", fields...}, {"$float": "nan"}.
Invariant: nothing is guessed. What has no stable form raises, and says which field and what to write instead.
"""

import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import hashlib
import json
import re
import sys
import types
import uuid
from collections.abc import Callable
from math import isfinite
from pathlib import PurePath
from typing import Any

from executor.errors import IdentityError
from executor.keys import typehints
from executor.keys.names import qualified_name
from executor.secrets import Secret, without_credentials
from executor.step import BORN, EXECUTION, Milestone, Output, Step

_LARGEST_ARRAY_BYTES = 1 << 20
_MISSING = object()


def canonical_json(value: Any) -> str:
    """One text for one JSON value: sorted keys, no spaces, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def hash_json(value: Any) -> str:
    """sha256 of a JSON value, in hex."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def without_names(encoded: Any) -> Any:
    """The same JSON without the step names inside `$input`, which are there for people."""
    if isinstance(encoded, dict):
        if len(encoded) == 1 and "$input" in encoded:
            return {"$input": {name: item for name, item in encoded["$input"].items() if name != "step"}}
        return {name: without_names(item) if isinstance(item, dict | list) else item for name, item in encoded.items()}
    if isinstance(encoded, list):
        return [without_names(item) if isinstance(item, dict | list) else item for item in encoded]
    return encoded


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class FoundInput:
    """An input found in a config: where, what, and the JSON object that waits for its key."""

    path: str
    step: Step
    part: str
    at: int | None
    execution_only: bool
    slot: dict[str, Any]


class Encoder:
    """Encodes one config; collects what it meets on the way.

    Attributes:
        inputs: steps, outputs and milestones, in config order.
        classes: dataclasses whose values stand in it (their methods are code of the step).
        functions: functions and classes that it names (code of the step, too).
        outside: functions and classes that only execution-only fields hold: their code is in no key.
        execution_only: dotted path -> JSON of the fields that do not enter keys.
    """

    def __init__(self) -> None:
        self.inputs: list[FoundInput] = []
        self.classes: dict[type, None] = {}
        self.functions: dict[Any, None] = {}
        self.outside: dict[Any, None] = {}
        self.execution_only: dict[str, Any] = {}
        self.secrets: dict[str, None] = {}
        self._outside_of_key = False
        self._open: set[int] = set()
        self._type_names: dict[type, str] = {}

    def encode(self, value: Any, hint: Any = Any, path: str = "") -> Any:
        kind = type(value)
        if kind is str:
            if hint is not str and typehints.takes_input(hint):
                raise _raw_input(value, path)
            return _url(value) if "://" in value else value
        if value is None or kind is bool:
            return value
        if isinstance(value, Step | Output | Milestone):
            return self._input(value, path)
        if issubclass(kind, PurePath) and typehints.takes_input(hint):
            raise _raw_input(value, path)
        hint = typehints.choose(hint, kind)
        if kind is int:
            return _float(value, path) if hint is float else value
        if kind is float:
            return value if isfinite(value) else {"$float": repr(value)}
        scalar = _SCALARS.get(kind)
        if scalar is not None:
            return scalar(value)
        if id(value) in self._open:
            raise IdentityError(f"{path or 'value'}: a {kind.__name__} that contains itself has no finite form")
        self._open.add(id(value))
        try:
            return self._compound(value, kind, hint, path)
        finally:
            self._open.discard(id(value))

    def _compound(self, value: Any, kind: type, hint: Any, path: str) -> Any:
        if kind is list or kind is tuple:
            items = self._items(value, hint, path)
            decided = typehints.sequence_kind(hint) or kind
            return {"$tuple": items} if decided is tuple else items
        if kind is dict or kind is types.MappingProxyType:
            return self._mapping(value, hint, path)
        if kind is set or kind is frozenset:
            inputs = len(self.inputs)
            members = [self.encode(item, typehints.item_hint(hint, 0), _at(path, "{}")) for item in value]
            if len(self.inputs) > inputs:
                raise IdentityError(f"{path}: inputs in a set have no order; put them in a tuple")
            return {"$set": sorted(members, key=hash_json)}
        if isinstance(value, enum.Enum):
            return self._enum(value, path)
        if isinstance(value, type):
            self._collect(value, self.functions)
            return {"$class": qualified_name(value, path)}
        if dataclasses.is_dataclass(value):
            return self._dataclass(value, path)
        if isinstance(value, functools.partial):
            return {
                "$partial": {
                    "function": self.encode(value.func, Any, _at(path, "func")),
                    "arguments": [self.encode(a, Any, _at(path, str(n))) for n, a in enumerate(value.args)],
                    "keywords": {name: self.encode(a, Any, _at(path, name)) for name, a in value.keywords.items()},
                }
            }
        if isinstance(value, PurePath):
            return {"$path": value.as_posix()}
        if isinstance(value, tuple) and hasattr(kind, "_fields"):
            self._collect(kind, self.classes)
            fields = {name: self.encode(getattr(value, name), Any, _at(path, name)) for name in kind._fields}  # type: ignore[attr-defined]
            return {"$type": qualified_name(kind, path), **fields}
        if isinstance(value, datetime.timezone):
            return {"$zone": str(value), "offset": value.utcoffset(None).total_seconds()}
        if isinstance(value, datetime.tzinfo):
            return {"$zone": str(value)}
        if kind.__module__.partition(".")[0] == "numpy" and "numpy" in sys.modules:
            array = _numpy(value, path)
            if array is not None:
                return array
        if callable(value) and hasattr(value, "__qualname__"):
            name = qualified_name(value, path)
            self._collect(value, self.functions)
            return {"$function": name}
        raise IdentityError(
            f"{path or 'value'}: {kind.__module__}.{kind.__qualname__} has no stable form; use plain values, "
            "dataclasses, enums or module-level functions, or declare the field execution-only and plain"
        )

    def _items(self, value: list[Any] | tuple[Any, ...], hint: Any, path: str) -> list[Any]:
        each = typehints.each_item(hint)
        encoded = []
        for number, item in enumerate(value):
            own = typehints.item_hint(hint, number) if each is None else each
            encoded.append(item if _is_itself(item, own) else self.encode(item, own, _at(path, str(number))))
        return encoded

    def _collect(self, thing: Any, counting: dict[Any, None]) -> None:
        (self.outside if self._outside_of_key else counting).setdefault(thing)

    def _input(self, value: Step | Output | Milestone, path: str) -> dict[str, Any]:
        step = value if isinstance(value, Step) else value.step
        part = value.part if isinstance(value, Output) else ""
        at = value.at if isinstance(value, Milestone) else None
        slot = {"step": step.name, "key": "", "part": part, "at": at}
        found = FoundInput(path=path, step=step, part=part, at=at, execution_only=self._outside_of_key, slot=slot)
        self.inputs.append(found)
        return {"$input": slot}

    def _mapping(self, value: Any, hint: Any, path: str) -> Any:
        key_hint, item_hint = typehints.mapping_hints(hint)
        if all(type(key) is str and not key.startswith("$") for key in value):
            return {
                key: item if _is_itself(item, item_hint) else self.encode(item, item_hint, _at(path, key))
                for key, item in value.items()
            }
        inputs = len(self.inputs)
        keys = [self.encode(key, key_hint, _at(path, repr(key))) for key in value]
        if len(self.inputs) > inputs:
            raise IdentityError(f"{path}: an input cannot be a dict's key; use its name as the key")
        pairs = [
            [key, self.encode(item, item_hint, _at(path, str(raw)))]
            for key, (raw, item) in zip(keys, value.items(), strict=True)
        ]
        return {"$dict": sorted(pairs, key=lambda pair: canonical_json(pair[0]))}

    def _enum(self, value: enum.Enum, path: str) -> dict[str, Any]:
        name = qualified_name(type(value), path)
        self._collect(type(value), self.functions)
        if isinstance(value, enum.Flag):
            return {"$enum": name, "value": value.value}
        return {"$enum": f"{name}.{value.name}"}

    def _dataclass(self, value: Any, path: str) -> dict[str, Any]:
        kind = type(value)
        if kind is Secret:
            self.secrets.setdefault(value.name)
            return {"$secret": value.name}
        type_name = self._type_names.get(kind)
        if type_name is None:
            type_name = self._type_names[kind] = qualified_name(kind, path)
        encoded: dict[str, Any] = {"$type": type_name}
        self._collect(kind, self.classes)
        hints = typehints.field_hints(kind)
        for field in dataclasses.fields(value):
            name, hint, metadata = field.name, hints[field.name], field.metadata
            item = getattr(value, name, _MISSING)
            if not metadata and _is_itself(item, hint):
                encoded[name] = item
                continue
            at = _at(path, name)
            if item is _MISSING:
                raise IdentityError(f"{at}: the field has no value")
            if metadata.get(EXECUTION):
                outside, self._outside_of_key = self._outside_of_key, True
                self.execution_only[at] = self.encode(item, hint, at)
                self._outside_of_key = outside
            elif BORN in metadata:
                self._added(encoded, name, item, metadata[BORN], hint, at)
            else:
                encoded[name] = self.encode(item, hint, at)
        return encoded

    def _added(self, encoded: dict[str, Any], name: str, item: Any, born: Any, hint: Any, at: str) -> None:
        """A field that is not there at its born value: the code of what stands in it is none of the step's, either.

        What is no identity stays: inputs of execution-only fields in it are pulled, its secrets are hidden in logs.
        """
        classes, functions = len(self.classes), len(self.functions)
        found = self.encode(item, hint, at)
        reference = Encoder()
        before = reference.encode(born, hint, at)
        if any(not one.execution_only for one in reference.inputs):
            raise IdentityError(
                f"{at}: added(born=...) holds an input; before the field existed nothing was read: write born=None"
            )
        if canonical_json(found) != canonical_json(before):
            encoded[name] = found
            return
        for collected, count in ((self.classes, classes), (self.functions, functions)):
            while len(collected) > count:
                collected.popitem()


def _at(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _is_itself(value: Any, hint: Any) -> bool:
    """True for a number or text whose canonical form is the value, whatever stands around it; most leaves are."""
    kind = type(value)
    if kind is float:
        return isfinite(value)
    return kind is hint and (kind is int or kind is bool or (kind is str and "://" not in value))


def _raw_input(value: Any, path: str) -> IdentityError:
    kind = "string" if isinstance(value, str) else "path"
    return IdentityError(
        f"{path or 'value'}: {without_credentials(str(value))!r} is a plain {kind} where an input belongs; raw inputs "
        'are steps: use external(url, digest="sha256:...") or adopt(url)'
    )


def _url(value: str) -> Any:
    """A text with a URL in it. Credentials are written nowhere, and two texts that differ in them still differ."""
    shown = without_credentials(value)
    if shown == value:
        return value
    return {"$url": shown, "digest": hashlib.sha256(value.encode(errors="surrogatepass")).hexdigest()}


def _float(value: int, path: str) -> float:
    try:
        return float(value)
    except OverflowError as error:
        raise IdentityError(
            f"{path or 'value'}: an int of {value.bit_length()} bits is too large for a float; "
            "write a smaller number, or declare the field int"
        ) from error


def _range(value: range) -> dict[str, Any]:
    if len(value) == 0:
        value = range(0)
    elif len(value) == 1:
        value = range(value.start, value.start + 1)
    return {"$range": [value.start, value.start + len(value) * value.step, value.step]}


def _numpy(value: Any, path: str) -> dict[str, Any] | None:
    """Scalars and small arrays by value, shape and dtype; bytes in little-endian order."""
    import numpy as np

    if isinstance(value, np.dtype):
        return {"$dtype": value.str if value.names is None else str(value.descr)}
    if not isinstance(value, np.ndarray | np.generic):
        return None
    if isinstance(value, np.ma.MaskedArray):
        raise IdentityError(
            f"{path or 'value'}: a masked array has no stable form; use two plain arrays, the values and the mask"
        )
    array = np.asarray(value)
    if array.dtype.hasobject or array.dtype.names is not None:
        raise IdentityError(f"{path or 'value'}: an array of {array.dtype} has no stable form; use numbers or a list")
    if array.nbytes > _LARGEST_ARRAY_BYTES:
        raise IdentityError(
            f"{path or 'value'}: an array of {array.nbytes} bytes is data, not configuration; write it in a step "
            "of its own and hand on its output"
        )
    array = np.ascontiguousarray(array).reshape(array.shape)
    array = array.astype(array.dtype.newbyteorder("<"))
    name = array.dtype.str.replace("=", "<").replace("|", "<")
    kind = "$scalar" if isinstance(value, np.generic) else "$array"
    return {kind: {"dtype": name, "shape": list(array.shape), "data": array.tobytes().hex()}}


_SCALARS: dict[type, Callable[[Any], Any]] = {
    bytes: lambda value: {"$bytes": value.hex()},
    complex: lambda value: {"$complex": [repr(value.real), repr(value.imag)]},
    range: _range,
    slice: lambda value: {"$slice": repr((value.start, value.stop, value.step))},
    datetime.datetime: lambda value: {"$datetime": value.isoformat()},
    datetime.date: lambda value: {"$date": value.isoformat()},
    datetime.time: lambda value: {"$time": value.isoformat()},
    datetime.timedelta: lambda value: {"$timedelta": [value.days, value.seconds, value.microseconds]},
    decimal.Decimal: lambda value: {"$decimal": str(value)},
    fractions.Fraction: lambda value: {"$fraction": str(value)},
    uuid.UUID: lambda value: {"$uuid": str(value)},
    re.Pattern: lambda value: {"$pattern": [repr(value.pattern), value.flags]},
}
