"""Two configs as canonical JSON -> the fields in which they differ, as dotted paths with both values.

    {"mixture": {"weights": {"code": 0.2}}}  against  {"mixture": {"weights": {"code": 0.3, "math": 0.1}}}
        mixture.weights.code  0.2 -> 0.3
        mixture.weights.math  None -> 0.1

Dicts are compared by key; lists of things that each have a name, by name; other lists of one length by position, of
different lengths around the items that are equal.
Invariant: no changes if and only if the two are the same JSON text (1, 1.0 and true differ).
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal

_ABSENT = object()
_NAMES = ("name", "domain", "id")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Change:
    """One difference of a step's own payload.

    Attributes:
        path: dotted config path, or the function for code; list items under their name or their position.
        old, new: canonical JSON (text for inputs), None where there is nothing.
    """

    kind: Literal["config", "code", "input"]
    path: str
    old: Any = None
    new: Any = None


def field_changes(old: Any, new: Any, path: str = "") -> tuple[Change, ...]:
    """All differences between two canonical values; an input in them is `{"$input": text}` (executor.side)."""
    return tuple(_walk(old, new, path))


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


def _walk(old: Any, new: Any, path: str) -> Iterator[Change]:
    if _same(old, new):
        return
    if _is_input(old) or _is_input(new):
        yield Change(kind="input", path=path, old=_shown(old), new=_shown(new))
        return
    children = _named_children(old, new)
    if children is None:
        yield Change(kind="config", path=path, old=_shown(old), new=_shown(new))
        return
    old_items, new_items = children
    for name in {**old_items, **new_items}:
        before, after = old_items.get(name, _ABSENT), new_items.get(name, _ABSENT)
        at = f"{path}.{name}" if path else name
        if before is _ABSENT or after is _ABSENT:
            # A field that is absent and one that is null are different texts: both must show.
            kind = "input" if _is_input(before) or _is_input(after) else "config"
            yield Change(kind=kind, path=at, old=_shown(before), new=_shown(after))
        else:
            yield from _walk(before, after, at)


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


def _shown(value: Any) -> Any:
    if value is _ABSENT:
        return None
    return readable(value) if _is_input(value) else value


def _mark(value: Any) -> str:
    """What kind of container this is; two of different kinds are compared as wholes."""
    if isinstance(value, list):
        return "[]"
    if "$type" in value:
        return value["$type"]
    return next((name for name in value if name.startswith("$")), "{}")


def _named_children(old: Any, new: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The children of two containers under one naming; None where the two are compared as wholes."""
    if not isinstance(old, dict | list) or type(old) is not type(new) or _mark(old) != _mark(new):
        return None
    mark = _mark(old)
    if isinstance(old, list):
        return _aligned(old, new)
    if mark == "$tuple":
        return _aligned(old["$tuple"], new["$tuple"])
    if mark == "$dict":
        return tuple({_key(key): item for key, item in value["$dict"]} for value in (old, new))  # type: ignore[return-value]
    if mark.startswith("$"):
        return None
    return tuple({n: item for n, item in value.items() if n != "$type"} for value in (old, new))  # type: ignore[return-value]


def _key(key: Any) -> str:
    """A dict's key inside `$dict`; 1 and "1" are two keys, so strings stand in quotes there."""
    if isinstance(key, dict):
        return key["$enum"] if set(key) == {"$enum"} else _text(key)
    return _text(key)


def _aligned(old: list[Any], new: list[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The items of two lists under one naming: by their own names, else by position around equal ends."""
    for field in _NAMES:
        old_names, new_names = _item_names(old, field), _item_names(new, field)
        if (
            old_names
            and new_names
            and [n for n in old_names if n in new_names] == [n for n in new_names if n in old_names]
        ):
            return dict(zip(old_names, old, strict=True)), dict(zip(new_names, new, strict=True))
    if len(old) == len(new):
        return {str(i): item for i, item in enumerate(old)}, {str(i): item for i, item in enumerate(new)}
    shorter = min(len(old), len(new))
    front = next((i for i in range(shorter) if not _same(old[i], new[i])), shorter)
    back = next((i for i in range(shorter - front) if not _same(old[-1 - i], new[-1 - i])), shorter - front)
    middle_old, middle_new = old[front : len(old) - back], new[front : len(new) - back]
    return (
        {str(front + i): item for i, item in enumerate(middle_old)},
        {str(front + i): item for i, item in enumerate(middle_new)},
    )


def _item_names(items: list[Any], field: str) -> list[str] | None:
    names = [name for item in items if isinstance(item, dict) and isinstance(name := item.get(field), str)]
    return names if len(set(names)) == len(items) else None
