"""Installed distributions by name and version: third-party code that a step's author says counts.

    version("numpy")     "2.3.1"
    canonical("NumPy")   "numpy": one name for one distribution

Invariant: a name that stands for nothing here is an error, never an empty version.
"""

import functools
import re
from collections.abc import Mapping

from executor.errors import IdentityError


def canonical(name: str) -> str:
    """The one spelling of a distribution's name: lower case, single dashes."""
    return re.sub(r"[-_.]+", "-", name).lower()


@functools.cache
def version(name: str) -> str:
    """The installed version of a distribution.

    Raises:
        IdentityError: there is no such distribution; the text says what to write instead.
    """
    from importlib import metadata  # takes longer to import than most plans; few steps use packages

    try:
        return metadata.version(name)
    except (metadata.PackageNotFoundError, ValueError) as error:
        known = distributions_of(name)
        advice = (
            f"the module {name} comes with the distribution {' or '.join(known)}: write that name"
            if known
            else f"install it, or write its name as `pip list` shows it ({canonical(name) or 'for example numpy'})"
        )
        raise IdentityError(f"{name!r} is no distribution that is installed here; {advice}") from error


def distributions_of(module: str) -> list[str]:
    """Distributions that bring a top-level module."""
    return sorted(set(_by_module().get(module.partition(".")[0], ())))


@functools.cache
def _by_module() -> Mapping[str, list[str]]:
    from importlib import metadata  # reads the list of files of everything that is installed: for errors only

    return metadata.packages_distributions()
