"""Two configs as canonical JSON -> the fields in which they differ, as dotted paths with both values.

    {"mixture": {"weights": {"code": 0.2}}}  against  {"mixture": {"weights": {"code": 0.3, "math": 0.1}}}
        mixture.weights.code  0.2 -> 0.3
        mixture.weights.math  added, 0.1

Dicts are compared by key, items of lists, tuples and sets as executor.comparing.items says.
Invariants: no changes if and only if the two are the same JSON text (1, 1.0 and true differ); the changes, applied to
the old value by `op`, `at` and `to`, give the new one.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from executor.comparing.code_diff import CodeDiff
from executor.comparing.items import align, name_text

_LISTS = ("$tuple", "$set")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Change:
    """One difference of a step's own payload.

    Attributes:
        path: dotted config path, or the function for code; list items under their name or their position.
        old, new: canonical JSON (`{"$input": ...}` for inputs), None where there is nothing; of a moved item, its
            positions.
        op: what happened. A changed value may be null on either side; an added or removed one is not there.
        at: the path as its parts, from the config as it was: fields, keys as JSON text, positions. The position of an
            added item is that in the new list.
        to: position of a moved item in the new list.
        code: of changed code, how its text differs; None where no one asked or it is config.
    """

    kind: Literal["config", "code", "input"]
    path: str
    old: Any = None
    new: Any = None
    op: Literal["changed", "added", "removed", "moved"] = "changed"
    at: tuple[str | int, ...] = ()
    to: int | None = None
    code: CodeDiff | None = None


def field_changes(old: Any, new: Any, path: str = "") -> tuple[Change, ...]:
    """All differences between two canonical values; an input in them is `{"$input": text}` (see side)."""
    return tuple(_walk(old, new, path, ()))


def flat_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Change, ...]:
    """The same for values that are given by their dotted paths."""
    return tuple(_walk_fields(old, new, "", (), {name: name for name in (*old, *new)}))


def exact(value: Any) -> Any:
    """A value of a `Change` as canonical JSON, inputs as `{"$input": {"step", "part", "at"}}`."""
    if isinstance(value, dict):
        if "$input" in value:
            return {"$input": value.get("reference", value["$input"])}
        return {name: exact(item) for name, item in value.items()}
    return [exact(item) for item in value] if isinstance(value, list) else value


def inputs_at(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], dict[str, Any]]]:
    """Every input in a config with its place, written as in `Change.at`."""
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from inputs_at(item, (*at, number))
    elif isinstance(value, dict):
        mark = _mark(value)
        if "$input" in value:
            yield at, value
        elif mark in (*_LISTS, "$partial"):
            yield from inputs_at(value[mark], at)
        elif mark == "$dict":
            for key, item in value[mark]:
                yield from inputs_at(item, (*at, _text(key)))
        else:
            for name, item in value.items():
                yield from inputs_at(item, (*at, name))


def readable(value: Any) -> Any:
    """Canonical JSON with as few `$` marks as people need: tuples are lists, inputs are text, `$type` stays."""
    if isinstance(value, list):
        return [readable(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$input" in value:
        return value.get("shown") or _input(value["$input"])
    if "$dict" in value:
        return {_key(key): readable(item) for key, item in value["$dict"]}
    if "$url" in value:
        return value["$url"]
    if "$enum" in value and "value" in value:
        return f"{value['$enum']}({value['value']})"
    if len(value) == 1:
        [(mark, inner)] = value.items()
        if mark.startswith("$"):
            return f"${inner}" if mark == "$secret" else readable(inner)
    return {name: readable(item) for name, item in value.items()}


def _input(reference: Any) -> str:
    if not isinstance(reference, Mapping):
        return str(reference)
    text = reference["step"] if reference.get("at") is None else f"{reference['step']}@{reference['at']}"
    return f"{text}/{reference['part']}" if reference.get("part") else text


_Place = tuple[str | int, ...]


def _walk(old: Any, new: Any, path: str, at: _Place) -> Iterator[Change]:
    if _same(old, new):
        return
    if _is_input(old) or _is_input(new):
        yield Change(kind="input", path=path, old=old, new=new, at=at)
    elif isinstance(old, list) and isinstance(new, list):
        yield from _walk_items(old, new, path, at)
    elif not isinstance(old, dict) or not isinstance(new, dict) or _mark(old) != _mark(new):
        yield Change(kind="config", path=path, old=old, new=new, at=at)
    elif (mark := _mark(old)) in _LISTS:
        yield from _walk_items(old[mark], new[mark], path, at)
    elif mark == "$partial":
        yield from _walk_fields(old[mark], new[mark], path, at)
    elif mark == "$dict":
        items_old, items_new = ({_text(key): item for key, item in value[mark]} for value in (old, new))
        names = {_text(key): _key_in_path(key) for key, _ in (*old[mark], *new[mark])}
        if items_old.keys() == items_new.keys() and list(items_old) != list(items_new):
            yield Change(kind="config", path=path, old=old, new=new, at=at)  # not as this engine writes them
        else:
            yield from _walk_fields(items_old, items_new, path, at, names)
    elif mark.startswith("$"):
        yield Change(kind="config", path=path, old=old, new=new, at=at)
    else:
        yield from _walk_fields(old, new, path, at)


def _walk_fields(
    old: Mapping[str, Any], new: Mapping[str, Any], path: str, at: _Place, names: Mapping[str, str] | None = None
) -> Iterator[Change]:
    for name in {**old, **new}:
        shown = names[name] if names else name_text(name)
        below = f"{path}.{shown}" if path else shown
        if name in old and name in new:
            yield from _walk(old[name], new[name], below, (*at, name))
        elif name in old:
            yield Change(kind=_kind(old[name]), path=below, old=old[name], op="removed", at=(*at, name))
        else:
            yield Change(kind=_kind(new[name]), path=below, new=new[name], op="added", at=(*at, name))


def _walk_items(old: list[Any], new: list[Any], path: str, at: _Place) -> Iterator[Change]:
    for item in align(old, new):
        below = (path + item.label).removeprefix(".")
        if item.old is None:
            assert item.new is not None
            value = new[item.new]
            yield Change(kind=_kind(value), path=below, new=value, op="added", at=(*at, item.new))
        elif item.new is None:
            value = old[item.old]
            yield Change(kind=_kind(value), path=below, old=value, op="removed", at=(*at, item.old))
        else:
            here = (*at, item.old)
            if item.is_moved:
                yield Change(kind="config", path=below, old=item.old, new=item.new, op="moved", at=here, to=item.new)
            yield from _walk(old[item.old], new[item.new], below, here)


def _kind(value: Any) -> Literal["config", "input"]:
    return "input" if _is_input(value) else "config"


def _same(old: Any, new: Any) -> bool:
    if _is_input(old) and _is_input(new):
        return _text(old["$input"]) == _text(new["$input"])
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(_same(item, new[name]) for name, item in old.items())
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_same, old, new))
    return _text(old) == _text(new)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _is_input(value: Any) -> bool:
    return isinstance(value, dict) and "$input" in value


def _mark(value: dict[str, Any]) -> str:
    """What kind of container this is; two of different kinds are compared as wholes."""
    if "$type" in value:
        return "type " + str(value["$type"])
    return next((name for name in value if name.startswith("$")), "{}")


def _key_in_path(key: Any) -> str:
    """The same in a path, in brackets where it would read as several parts: `rates.[0.5]`, `rates."a.b"`."""
    shown = _key(key)
    return shown if isinstance(key, str) or shown == name_text(shown) else f"[{shown}]"


def _key(key: Any) -> str:
    """A dict's key inside `$dict`; 1 and "1" are two keys, so strings stand in quotes there."""
    if isinstance(key, dict):
        return key["$enum"] if set(key) == {"$enum"} else _text(key)
    return _text(key)
