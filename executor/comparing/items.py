"""Which item of one list is which item of another.

    [{"start_step": 0, ...}, {"start_step": 800, ...}]   by the field whose values tell the items apart on both sides
    ["b", "a", "c"]  against  ["a", "c", "d"]            by what they are, around the items that are equal

A field tells items apart when each has it, as text or a whole number, no two of one list agree, and the two lists
have some of its values in common; `name`, `domain` and `id` are asked first, then the one with most in common.
Invariant: every position of both lists is in exactly one `Item`; those in both and not moved keep their order.
"""

import dataclasses
import difflib
import json
import re
from collections.abc import Sequence
from typing import Any

_NAMES = ("name", "domain", "id")
_MOST_COMPARED = 4_000_000
"""Pairs of items looked at; longer middles of lists without names are compared by position."""
_MOST_ALIKE = 250_000
"""Pairs of named items looked at for one that has another name now; in longer stretches they are gone and come."""
_SPLITS = re.compile(r'[.\[\]="]')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Item:
    """One item: its position in both lists, None where it is not, and what it is called there."""

    label: str
    old: int | None
    new: int | None
    is_moved: bool = False


def name_text(name: str | int) -> str:
    """A name as one part of a dotted path: in quotes where it would read as several, or as none."""
    plain = str(name)
    return (
        plain if plain and plain.isprintable() and not _SPLITS.search(plain) else json.dumps(plain, ensure_ascii=False)
    )


def comparable(value: Any) -> Any:
    """A canonical value without the words that only people read in its inputs."""
    if isinstance(value, dict):
        return {"$input": value["$input"]} if "$input" in value else {k: comparable(v) for k, v in value.items()}
    return [comparable(item) for item in value] if isinstance(value, list) else value


def align(old: Sequence[Any], new: Sequence[Any]) -> list[Item]:
    """The items of both lists, in the order of the old one, what is new at its place."""
    field = _telling_field(old, new)
    tokens_old, tokens_new = _tokens(old, field), _tokens(new, field)
    pairs, gaps = _in_order(tokens_old, tokens_new)
    moved = _moved(tokens_old, tokens_new, gaps)
    gone, come = {o for o, _ in moved}, {n for _, n in moved}
    found = [_item(field, old, o, n) for o, n in pairs]
    found += [dataclasses.replace(_item(field, old, o, n), is_moved=True) for o, n in moved]
    for left, right in gaps:
        lone_old, lone_new = [o for o in left if o not in gone], [n for n in right if n not in come]
        changed = _changed(field, old, new, lone_old, lone_new)
        found += [_item(field, old, o, n) for o, n in changed]
        old_done, new_done = {o for o, _ in changed}, {n for _, n in changed}
        found += [_item(field, old, o, None) for o in lone_old if o not in old_done]
        found += [dataclasses.replace(_item(field, new, n, n), old=None) for n in lone_new if n not in new_done]
    return sorted(found, key=lambda item: (item.old if item.old is not None else item.new or 0, item.old is None))


def _telling_field(old: Sequence[Any], new: Sequence[Any]) -> str:
    """The field that tells the items apart, empty for none."""
    items = [*old, *new]
    if len(items) < 3 or not old or not new or not all(isinstance(item, dict) and _is_open(item) for item in items):
        return ""
    best, most = "", 0
    for field in sorted(items[0], key=lambda name: name not in _NAMES):
        if not all(type(item.get(field)) in (str, int) for item in items) or field.startswith("$"):
            continue
        left, right = ({_text(item[field]) for item in side} for side in (old, new))
        shared = len(left & right)
        if len(left) == len(old) and len(right) == len(new) and shared > most:
            if field in _NAMES:
                return field
            best, most = field, shared
    return best


def _is_open(item: dict[str, Any]) -> bool:
    return all(not name.startswith("$") or name == "$type" for name in item)


def _tokens(items: Sequence[Any], field: str) -> list[str]:
    return [_text(item[field] if field else item) for item in items]


def _text(value: Any) -> str:
    return json.dumps(comparable(value), sort_keys=True)


def _item(field: str, named_by: Sequence[Any], old: int | None, new: int | None) -> Item:
    at = old if old is not None else new
    assert at is not None
    if not field:
        label = f".{at}"
    elif field in _NAMES:
        label = f".{name_text(named_by[at][field])}"
    else:
        label = f"[{name_text(field)}={name_text(named_by[at][field])}]"
    return Item(label=label, old=old, new=new)


def _in_order(old: list[str], new: list[str]) -> tuple[list[tuple[int, int]], list[tuple[range, range]]]:
    """Equal items in one order on both sides, and the stretches between them."""
    shorter = min(len(old), len(new))
    front = next((i for i in range(shorter) if old[i] != new[i]), shorter)
    back = next((i for i in range(shorter - front) if old[-1 - i] != new[-1 - i]), shorter - front)
    pairs = [(i, i) for i in range(front)]
    pairs += [(len(old) - back + i, len(new) - back + i) for i in range(back)]
    middle_old, middle_new = old[front : len(old) - back], new[front : len(new) - back]
    if len(middle_old) * len(middle_new) > _MOST_COMPARED:
        return pairs, [(range(front, len(old) - back), range(front, len(new) - back))]
    gaps = []
    for kind, o, o_end, n, n_end in difflib.SequenceMatcher(None, middle_old, middle_new, False).get_opcodes():
        if kind == "equal":
            pairs += [(front + o + i, front + n + i) for i in range(o_end - o)]
        else:
            gaps.append((range(front + o, front + o_end), range(front + n, front + n_end)))
    return pairs, gaps


def _moved(old: list[str], new: list[str], gaps: list[tuple[range, range]]) -> list[tuple[int, int]]:
    """Items left over on both sides that are equal."""
    places: dict[str, list[int]] = {}
    for _, right in gaps:
        for n in right:
            places.setdefault(new[n], []).append(n)
    found = []
    for left, _ in gaps:
        for o in left:
            if places.get(old[o]):
                found.append((o, places[old[o]].pop(0)))
    return found


def _changed(
    field: str, old: Sequence[Any], new: Sequence[Any], left: list[int], right: list[int]
) -> list[tuple[int, int]]:
    """Items of one stretch that are the same one, changed: by position, or, of named ones, under another name."""
    if not field:
        return list(zip(left, right, strict=False))
    if len(left) * len(right) > _MOST_ALIKE:
        return []
    fields_new = {n: _fields(new[n], field) for n in right}
    found, after = [], 0
    for o in left:
        fields = _fields(old[o], field)
        at = next((i for i in range(after, len(right)) if _is_alike(fields, fields_new[right[i]])), None)
        if at is not None:
            found.append((o, right[at]))
            after = at + 1
    return found


def _fields(item: dict[str, Any], field: str) -> dict[str, str]:
    return {name: _text(value) for name, value in item.items() if name != field}


def _is_alike(old: dict[str, str], new: dict[str, str]) -> bool:
    """Half of what else is in them is equal."""
    if old.get("$type") != new.get("$type"):
        return False
    others = len((old.keys() | new.keys()) - {"$type"})
    same = sum(new.get(name) == text for name, text in old.items() if name != "$type")
    return 2 * same >= others > 0
