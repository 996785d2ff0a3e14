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
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from executor.errors import IdentityError
from executor.names import module_name, root_of_file
from executor.syntax import Import, ModuleCode, Unit, parse_module, source_of

_ENGINE = Path(__file__).resolve().parent
_parsed: dict[tuple[str, int, int], ModuleCode] = {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Code:
    """What a step's function reaches: qualified name -> fingerprint, and where each unit stands."""

    fingerprints: dict[str, str]
    places: dict[str, tuple[Path, Unit]]

    @functools.cached_property
    def sources(self) -> dict[str, str]:
        """Qualified name -> source text."""
        return {name: source_of(path, unit) for name, (path, unit) in self.places.items()}


def reach(things: Iterable[Any]) -> Code:
    """Everything of the project that these functions and classes reach."""
    return _reach(tuple(_origin(thing) for thing in things if _has_source(thing)))


def forget() -> None:
    """Look at the files again (a worker lives longer than one plan)."""
    _reach.cache_clear()


def _has_source(thing: Any) -> bool:
    module = sys.modules.get(getattr(thing, "__module__", None) or "")
    return (getattr(module, "__file__", None) or "").endswith(".py")


def _origin(thing: Any) -> tuple[str, str]:
    while hasattr(thing, "__wrapped__"):
        thing = thing.__wrapped__
    return thing.__module__, thing.__qualname__.split(".")[0]


@functools.cache
def _reach(origins: tuple[tuple[str, str], ...]) -> Code:
    search = _Search(origins)
    for module, name in origins:
        search.symbol(module, name)
    return search.run()


class _Search:
    """A walk over names, without recursion into the code that it reads."""

    def __init__(self, origins: tuple[tuple[str, str], ...]) -> None:
        self.roots: dict[Path, None] = {}
        installed = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib")]
        self.packages: set[str] = set()
        for module, _ in origins:
            file = Path(sys.modules[module].__file__ or "").resolve()
            if file.is_relative_to(_ENGINE):
                continue
            root = root_of_file(file)
            self.roots.setdefault(root)
            if root in installed or any(root.is_relative_to(folder) for folder in installed):
                self.packages.add(module_name(module).split(".")[0])
        self.limited = {root for root in self.roots if any(root.is_relative_to(folder) for folder in installed)}
        self.seen: set[tuple[str, str]] = set()
        self.waiting: list[tuple[str, str]] = []
        self.places: dict[str, tuple[Path, Unit]] = {}

    def symbol(self, module: str, name: str) -> None:
        if (module, name) not in self.seen:
            self.seen.add((module, name))
            self.waiting.append((module, name))

    def run(self) -> Code:
        while self.waiting:
            module, name = self.waiting.pop()
            self._visit(module, name)
        names = sorted(self.places)
        return Code(
            fingerprints={name: self.places[name][1].print for name in names},
            places={name: self.places[name] for name in names},
        )

    def _visit(self, module: str, name: str) -> None:
        file = self._file(module)
        if file is None:
            return
        code = _module_code(file, module)
        stem = code.pins.get(name) or f"{module_name(module)}.{name}"
        for unit in code.units.get(name, ()):
            self.places[stem + unit.name.removeprefix(name)] = (file, unit)
            for first, *attributes in unit.globals:
                self._name(module, first, tuple(attributes))
            for target, attributes in unit.imports:
                self._imported(target, attributes)
        for target in code.imports.get(name, ()):
            self._imported(target, ())
        if name not in code.units and name not in code.imports:
            for star in code.stars:
                self.symbol(star, name)

    def _name(self, module: str, name: str, attributes: tuple[str, ...]) -> None:
        """A module-level name read by a unit of `module`."""
        file = self._file(module)
        assert file is not None
        code = _module_code(file, module)
        if name in code.units:
            self.symbol(module, name)
        for target in code.imports.get(name, ()):
            self._imported(target, attributes)
        if name not in code.units and name not in code.imports:
            for star in code.stars:
                self.symbol(star, name)

    def _imported(self, target: Import, attributes: tuple[str, ...]) -> None:
        module, attribute = target
        if attribute:
            if self._file(f"{module}.{attribute}") is not None and not self._defines(module, attribute):
                return self._imported((f"{module}.{attribute}", ""), attributes)
            return self.symbol(module, attribute)
        while attributes and not self._defines(module, attributes[0]):
            if self._file(f"{module}.{attributes[0]}") is None:
                break
            module, attributes = f"{module}.{attributes[0]}", attributes[1:]
        if attributes:
            return self.symbol(module, attributes[0])
        file = self._file(module)
        if file is not None:  # the module itself is handed on: all of it can be reached
            for name in _module_code(file, module).units:
                self.symbol(module, name)

    def _defines(self, module: str, name: str) -> bool:
        file = self._file(module)
        if file is None:
            return False
        code = _module_code(file, module)
        return name in code.units or name in code.imports

    @functools.cache  # noqa: B019 - a search lives for one call
    def _file(self, module: str) -> Path | None:
        """The file of a project module, None for everything else."""
        loaded = sys.modules.get(module)
        if loaded is not None:
            name = getattr(loaded, "__file__", None)
            if name is None or not name.endswith(".py"):
                return None
            file = Path(name).resolve()
            inside = [root for root in self.roots if file.is_relative_to(root)]
            if not inside or file.is_relative_to(_ENGINE):
                return None
            if all(root in self.limited for root in inside) or "site-packages" in file.parts:
                return file if module.split(".")[0] in self.packages else None
            return (
                None if any(part in (".venv", "node_modules") for part in file.relative_to(inside[0]).parts) else file
            )
        for root in self.roots:
            if root in self.limited and module.split(".")[0] not in self.packages:
                continue
            base = root.joinpath(*module.split("."))
            for file in (base.with_suffix(".py"), base / "__init__.py"):
                if file.is_file() and not file.is_relative_to(_ENGINE):
                    return file
        return None


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
