"""`Step(uses=[...])`: code that reading the source cannot find, declared by the author.

    Step("tokens", tokenize, config, uses=[steps.filters, clean_html, "tiktoken"])

A function or class joins the code that the step reaches; a module counts as a whole, a package with all modules in
it; the name of an installed distribution counts by its version. What would count for nothing is an error.
"""

import sys
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from executor.errors import IdentityError
from executor.keys.names import qualified_name
from executor.keys.packages import canonical, distributions_of, version
from executor.keys.sources import ENGINE, is_installed

_HOLDS = "it holds functions, classes and modules of the project, and names of installed distributions"


def things_used(uses: Any) -> tuple[Any, ...]:
    """What a step declares, checked: functions, classes and modules as they are, distributions by canonical name.

    Raises:
        IdentityError: one of them counts for nothing; the text names it by its place in `uses`.
    """
    if isinstance(uses, str) or not isinstance(uses, Iterable):
        raise IdentityError(f"uses: {uses!r} is no list; write uses=[{uses!r}]")
    found: dict[Any, None] = {}
    for number, thing in enumerate(uses):
        try:
            found.setdefault(_checked(thing))
        except IdentityError as error:
            raise IdentityError(f"uses[{number}]: {error}") from error
    return tuple(found)


def _checked(thing: Any) -> Any:
    if isinstance(thing, str):
        version(thing)
        return canonical(thing)
    if isinstance(thing, types.ModuleType):
        name, file = thing.__name__, getattr(thing, "__file__", None) or next(iter(getattr(thing, "__path__", ())), "")
    elif isinstance(thing, type) or (callable(thing) and hasattr(thing, "__qualname__")):
        name = qualified_name(thing)
        file = getattr(sys.modules.get(thing.__module__), "__file__", None) or ""
    else:
        raise IdentityError(f"{type(thing).__name__} {thing!r}: {_HOLDS}")
    path = Path(file).resolve()
    if not file or is_installed(path) or (path.is_file() and path.suffix != ".py"):
        brought = distributions_of(name)
        advice = f'write the name of its distribution, "{brought[0]}"' if brought else "it comes with the interpreter"
        raise IdentityError(f"{name} is no code of the project: {advice}")
    if path.is_relative_to(ENGINE):
        raise IdentityError(f"{name} is the engine's, which is in no key; {_HOLDS}")
    return thing
