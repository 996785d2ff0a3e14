"""The project code that a function can reach by name, and a fingerprint of each piece.

From a step's function (and the methods of the classes whose values stand in its config) the search follows names:
into helpers of the same file, through imports, also those inside function bodies, into other modules of the project,
function by function. Other packages are not followed; the engine itself is not code of a step.

Invariant: the result depends on syntax only. Comments, docstrings, formatting, annotations and functions that are not
reached do not change it; a helper or constant two modules away does. What `@identity` pins goes by that name.
"""

import dataclasses
import functools
import sys
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from executor.errors import IdentityError
from executor.keys import packages
from executor.keys.names import module_name
from executor.keys.references import Import
from executor.keys.sources import ENGINE, Sources, is_installed
from executor.keys.syntax import FIELDS, ModuleCode, Unit, parse_module, source_of

_parsed: dict[tuple[str, int, int], ModuleCode] = {}
_Start = tuple[Literal["name", "values", "module"], str, str]
"""Where a search starts: a name of a module, a class with values in a config (its fields are no code), a module."""


@dataclasses.dataclass(frozen=True)
class Valued:
    """A class of which values stand in a config: its methods are code, its fields are there as values."""

    kind: type


@dataclasses.dataclass(frozen=True, kw_only=True)
class Code:
    """What a step's function reaches.

    Attributes:
        units: qualified name -> fingerprint of its syntax.
        places: where each unit stands.
        packages: distribution that the step says it uses -> installed version.
    """

    units: dict[str, str]
    places: dict[str, tuple[Path, Unit]]
    packages: dict[str, str] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def fingerprints(self) -> dict[str, str]:
        """All that can change: the units, and `packages.NAME` -> version."""
        return {**self.units, **{f"packages.{name}": found for name, found in self.packages.items()}}

    @functools.cached_property
    def sources(self) -> dict[str, str]:
        """Qualified name -> source text."""
        return {name: source_of(path, unit) for name, (path, unit) in self.places.items()}


def reach(things: Iterable[Any]) -> Code:
    """Everything of the project that these functions, classes, `Valued` classes and modules reach by name.

    A string is a distribution, by its canonical name.

    Raises:
        IdentityError: a file cannot be parsed, or a distribution is not installed.
    """
    starts: list[_Start] = []
    used: dict[str, str] = {}
    for thing in things:
        if isinstance(thing, str):
            used[thing] = packages.version(thing)
        else:
            starts += _starts(thing)
    code = _reach(tuple(dict.fromkeys(starts)))
    return dataclasses.replace(code, packages=dict(sorted(used.items()))) if used else code


def forget() -> None:
    """Look at the files again (a worker lives longer than one plan)."""
    _reach.cache_clear()
    _values.cache_clear()
    packages.version.cache_clear()


def _starts(thing: Any) -> list[_Start]:
    if isinstance(thing, types.ModuleType):
        return [("module", thing.__name__, "")]
    if isinstance(thing, Valued):
        return _values(thing.kind)
    found: list[_Start] = []
    while thing is not None:  # a decorated function, and what it wraps
        if _has_source(thing):
            found.append(("name", thing.__module__, thing.__qualname__.split(".")[0]))
        thing = getattr(thing, "__wrapped__", None)
    return found


def _has_source(thing: Any) -> bool:
    module = sys.modules.get(getattr(thing, "__module__", None) or "")
    return (getattr(module, "__file__", None) or "").endswith(".py")


@functools.cache
def _values(kind: type) -> list[_Start]:
    """The class and those of its bases that belong to the project: their fields are there as values, too."""
    kinds = [kind, *(base for base in kind.__mro__[1:] if not _is_foreign(base))]
    return [("values", found.__module__, found.__qualname__) for found in kinds if _has_source(found)]


def _is_foreign(kind: type) -> bool:
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return file is None or is_installed(Path(file).resolve())


def _files(module: str) -> list[Path]:
    """The file of a loaded module, or a place in each folder of a package without `__init__.py`."""
    loaded = sys.modules[module]
    file = getattr(loaded, "__file__", None)
    found = [Path(file)] if file else [Path(folder) / "__init__.py" for folder in loaded.__path__]
    return [path for path in (path.resolve() for path in found) if not path.is_relative_to(ENGINE)]


@functools.cache
def _reach(starts: tuple[_Start, ...]) -> Code:
    search = _Search(starts)
    for kind, module, name in starts:
        if kind == "module":
            search.whole(module)
            for inner in search.sources.below(module):
                search.whole(inner)
        else:
            search.symbol(module, name.split(".")[0])
    return search.run()


class _Search:
    """A walk over names, without recursion into the code that it reads."""

    def __init__(self, starts: tuple[_Start, ...]) -> None:
        modules = dict.fromkeys(module for _, module, _ in starts)
        self.sources = Sources(file for module in modules for file in _files(module))
        self.valued = {(module, f"{name}.{FIELDS}") for kind, module, name in starts if kind == "values"}
        self.seen: set[tuple[str, str, tuple[str, ...]]] = set()
        self.waiting: list[tuple[str, str, tuple[str, ...]]] = []
        self.places: dict[str, tuple[Path, Unit]] = {}

    def run(self) -> Code:
        while self.waiting:
            self._visit(*self.waiting.pop())
        names = sorted(self.places)
        return Code(
            units={name: self.places[name][1].print for name in names},
            places={name: self.places[name] for name in names},
        )

    def symbol(self, module: str, name: str, attributes: tuple[str, ...] = ()) -> None:
        """A name of a module, with the attributes read from it: `sub.helper` of a package is ("sub", ("helper",))."""
        if (module, name, attributes) not in self.seen:
            self.seen.add((module, name, attributes))
            self.waiting.append((module, name, attributes))

    def whole(self, module: str) -> None:
        """The module itself is handed on: all of it can be reached, and what a package offers from its modules."""
        file = self.sources.file(module)
        if file is None:
            return
        code = _module_code(file, module)
        for name in code.units:
            self.symbol(module, name)
        if file.name == "__init__.py":
            for name in code.imports:
                self.symbol(module, name)
            for star in code.stars:
                self.symbol(star, "*")

    def _visit(self, module: str, name: str, attributes: tuple[str, ...]) -> None:
        if name == "*":
            return self.whole(module)
        file = self.sources.file(module)
        code = _module_code(file, module) if file is not None else None
        if code is None or not code.defines(name):
            return self._not_defined(module, code, name, attributes)
        stem = code.pins.get(name) or f"{module_name(module)}.{name}"
        for unit in code.units.get(name, ()):
            label = stem + unit.name.removeprefix(name)
            if label in self.places or (module, unit.name) in self.valued:
                continue
            assert file is not None
            self.places[label] = (file, unit)
            for first, *rest in unit.globals:
                self._name(module, code, first, tuple(rest))
            for target, rest in unit.imports:
                self._imported(target, rest)
        for target in code.imports.get(name, ()):
            if target == (module, name):  # `from . import name` in a package: its module of that name
                target = (f"{module}.{name}", "")
            self._imported(target, attributes)

    def _name(self, module: str, code: ModuleCode, name: str, attributes: tuple[str, ...]) -> None:
        """A module-level name read by a unit of `module`; most that it does not define are built in."""
        if code.defines(name):
            return self.symbol(module, name, attributes)
        for other in self._starred(code, name):
            self.symbol(other, name, attributes)

    def _not_defined(self, module: str, code: ModuleCode | None, name: str, attributes: tuple[str, ...]) -> None:
        """A name that others read from `module`: from a star import, one of its modules, or its `__getattr__`."""
        starred = self._starred(code, name) if code is not None else []
        for other in starred:
            self.symbol(other, name, attributes)
        if starred:
            return
        inner = f"{module}.{name}"
        if self.sources.file(inner) is not None or self.sources.below(inner):
            self._imported((inner, ""), attributes)
        elif code is not None and "__getattr__" in code.units:
            self.symbol(module, "__getattr__")

    def _imported(self, target: Import, attributes: tuple[str, ...]) -> None:
        module, attribute = target
        if attribute:
            self.symbol(module, attribute, attributes)
        elif attributes:
            self.symbol(module, attributes[0], attributes[1:])
        else:
            self.whole(module)

    def _starred(self, code: ModuleCode, name: str) -> list[str]:
        """Modules that define `name` among those imported with a star, also by way of others."""
        found: list[str] = []
        looked: set[str] = set()
        waiting = list(code.stars)
        while waiting:
            module = waiting.pop()
            file = self.sources.file(module)
            if module in looked or file is None:
                continue
            looked.add(module)
            other = _module_code(file, module)
            if other.defines(name):
                found.append(module)
            waiting += other.stars
        return found


def _module_code(file: Path, module: str) -> ModuleCode:
    status = file.stat()
    key = (str(file), status.st_mtime_ns, status.st_size)
    found = _parsed.get(key)
    if found is None:
        try:
            found = parse_module(file.read_text(), module_name(module), file.name == "__init__.py")
        except SyntaxError as error:
            raise IdentityError(f"{file}:{error.lineno}: {error.msg}; the code of a step cannot be read") from error
        _parsed[key] = found
    return found
