"""What the declared type of a field decides about a value in it.

A field declared `float` makes the int 1 a float; one declared `tuple[...]` makes a list a tuple; one that may hold an
input takes no plain string. Unions decide only what all their members leave open.
"""

import collections.abc
import dataclasses
import inspect
import sys
import types
import typing
from typing import Any

from executor.step import Milestone, Output, Step

_hints: dict[type, dict[str, Any]] = {}
# Answers by the identity of a declared type, which is kept alive: types such as Literal[[1]] have no hash.
_kept: list[Any] = []
_takes_input: dict[int, bool] = {}
_chosen: dict[tuple[int, type], Any] = {}
_SEQUENCES = (list, tuple)
_MAPPINGS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_GROUPS = (set, frozenset, collections.abc.Set)


def field_hints(kind: type) -> dict[str, Any]:
    """Field name -> declared type; `Any` where a name in the annotation cannot be resolved here."""
    found = _hints.get(kind)
    if found is None:
        try:
            resolved = typing.get_type_hints(kind)
        except Exception:  # names that exist only for the type checker: resolve the fields one by one
            resolved = {}
            for owner in reversed(kind.__mro__):
                space = vars(sys.modules.get(owner.__module__, types))
                for name, annotation in inspect.get_annotations(owner).items():
                    resolved[name] = _evaluate(annotation, space)
        found = {field.name: resolved.get(field.name, Any) for field in dataclasses.fields(kind)}
        _hints[kind] = found
    return found


def _evaluate(annotation: Any, space: dict[str, Any]) -> Any:
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, dict(space))
    except Exception:  # an annotation that means nothing at run time decides nothing
        return Any


def arms(hint: Any) -> tuple[Any, ...]:
    """The members of a union, aliases and annotations unwrapped; a single type is a union of one."""
    if hint is Any or (isinstance(hint, type) and not hasattr(hint, "__origin__")):
        return (hint,)
    if isinstance(hint, typing.TypeAliasType):
        return arms(hint.__value__)
    if isinstance(hint, typing.NewType):
        return arms(hint.__supertype__)
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        return arms(typing.get_args(hint)[0])
    if origin is typing.Union or origin is types.UnionType:
        return tuple(member for arm in typing.get_args(hint) for member in arms(arm))
    return (hint,)


def takes_input(hint: Any) -> bool:
    """True where the declared type names a step, an output or a milestone."""
    if hint is Any or hint is str or hint is int or hint is float:
        return False
    found = _takes_input.get(id(hint))
    if found is None:
        _kept.append(hint)
        found = _takes_input[id(hint)] = _names_an_input(hint)
    return found


def _names_an_input(hint: Any) -> bool:
    return any(arm in (Step, Output, Milestone) for arm in arms(hint))


def choose(hint: Any, kind: type) -> Any:
    """The member of a union that a value of type `kind` belongs to; `Any` where none decides."""
    if hint is Any or hint is kind:
        return hint
    key = (id(hint), kind)
    if key not in _chosen:
        _kept.append(hint)
        _chosen[key] = _choose(hint, kind)
    return _chosen[key]


def _choose(hint: Any, kind: type) -> Any:
    members = arms(hint)
    origins = [typing.get_origin(member) or member for member in members]
    for member, origin in zip(members, origins, strict=True):
        if origin is kind:
            return member
    if kind is int and float in origins:
        return float
    for group in (_SEQUENCES, _MAPPINGS, _GROUPS):
        if any(kind is member or (kind is types.MappingProxyType and dict in group) for member in group):
            matching = [m for m, origin in zip(members, origins, strict=True) if origin in group]
            if not matching:
                matching = [m for m, o in zip(members, origins, strict=True) if o in _LOOSE]
            return matching[0] if len(matching) == 1 else Any
    return Any


_LOOSE = (collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection)


def sequence_kind(hint: Any) -> type | None:
    """`list` or `tuple` where the declared type says which."""
    origin = typing.get_origin(hint) or hint
    return origin if origin in _SEQUENCES else None


def each_item(hint: Any) -> Any:
    """Declared type of every item, None where it depends on the place (`tuple[int, str]`)."""
    if hint is Any:
        return Any
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis):
        return None
    return item_hint(hint, 0)


def item_hint(hint: Any, number: int) -> Any:
    """Declared type of one item of a list, tuple or set."""
    arguments = typing.get_args(hint)
    if not arguments:
        return Any
    origin = typing.get_origin(hint)
    if origin is tuple:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return arguments[0]
        return arguments[number] if number < len(arguments) else Any
    if origin in (*_SEQUENCES, *_GROUPS, *_LOOSE):
        return arguments[0]
    return Any


def mapping_hints(hint: Any) -> tuple[Any, Any]:
    """Declared types of a dict's keys and values."""
    arguments = typing.get_args(hint)
    return (arguments[0], arguments[1]) if len(arguments) == 2 else (Any, Any)
