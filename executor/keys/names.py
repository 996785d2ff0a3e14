"""Names of functions, classes and modules that are equal in every process and for every way of starting.

A class defined in `recipes/ladder.py` is `recipes.ladder.Rung` whether the file was run as a script, with `-m` or
imported. `@identity("name")` pins a name, so that moving the thing later changes no key.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from executor.errors import IdentityError

_PIN = "__marinade_identity__"
_pins: dict[str, str] = {}

Named = TypeVar("Named", bound=Callable[..., Any])


def identity(name: str) -> Callable[[Named], Named]:
    """Pin the name under which a function, class or enum enters keys. Two things cannot have one name."""
    if not name:
        raise IdentityError('identity("") names nothing: write identity("some.stable.name")')

    def pin(thing: Named) -> Named:
        owner = f"{module_name(thing.__module__)}.{thing.__qualname__}"
        before = _pins.setdefault(name, owner)
        if before != owner:
            raise IdentityError(f'identity("{name}") is taken by {before}, so {owner} cannot have it too')
        setattr(thing, _PIN, name)
        return thing

    return pin


def qualified_name(thing: Any, path: str = "") -> str:
    """`module.qualname` of a function or class, or its pinned name.

    Raises IdentityError for what no other process can find by that name: lambdas, things defined inside functions,
    methods bound to an object, and names that now stand for something else.
    """
    at = f"{path}: " if path else ""
    module, qualname = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(qualname, str):
        raise IdentityError(f"{at}{type(thing).__name__} object has no name of its own; use a function of a module")
    if "<lambda>" in qualname:
        raise IdentityError(f"{at}a lambda has no stable name; define a function at module level and name it here")
    if "<locals>" in qualname:
        raise IdentityError(
            f"{at}{qualname.replace('.<locals>', '')} is defined inside a function, where no other process finds it; "
            "move it to module level (and use functools.partial for what it closed over)"
        )
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    if found is not thing and found != thing:
        raise IdentityError(
            f"{at}{module}.{qualname} now names something else than this object, so two things would share one name; "
            "rename one of them, or pass a module-level function instead of a bound method"
        )
    pinned = getattr(thing, "__dict__", {}).get(_PIN)
    return pinned or f"{module_name(module)}.{qualname}"


def module_name(name: str) -> str:
    """The module's own name, also for `__main__`."""
    if name != "__main__":
        return name
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return spec.name
    file = getattr(main, "__file__", None)
    if file is None:
        raise IdentityError("__main__ has no file here, so its names mean nothing elsewhere; put the code in a file")
    return name_of_file(Path(file))


def name_of_file(file: Path) -> str:
    """Dotted name of a source file, counted from the outermost package around it; the stem where there is none."""
    file = file.resolve()
    parts = [] if file.stem == "__init__" else [file.stem]
    folder = file.parent
    while (folder / "__init__.py").exists():
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts)


def root_of_file(file: Path) -> Path:
    """The folder that holds the outermost package around a source file."""
    folder = file.resolve().parent
    while (folder / "__init__.py").exists():
        folder = folder.parent
    return folder


def project_of_file(file: Path) -> Path:
    """The nearest folder around a source file with `pyproject.toml` or `.git`, else that of its outermost package."""
    root = root_of_file(file)
    for folder in (root, *root.parents):
        if (folder / "pyproject.toml").exists() or (folder / ".git").exists():
            return folder
    return root
