"""Steps chosen by name or glob on the command line."""

import dataclasses
import fnmatch
from collections.abc import Iterable

from executor.errors import UsageError
from executor.keys.graph import Graph


@dataclasses.dataclass(frozen=True, kw_only=True)
class Selection:
    """Names and globs of each option."""

    force: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    until: tuple[str, ...] = ()
    acknowledge: tuple[str, ...] = ()


def matching(patterns: Iterable[str], graph: Graph, option: str) -> frozenset[str]:
    """Step names that match names or globs; a pattern that matches none is an error."""
    found: set[str] = set()
    for pattern in patterns:
        names = [name for name in graph.steps if name == pattern] or fnmatch.filter(graph.steps, pattern)
        if not names:
            known = list(graph.steps)
            listed = ", ".join(known[:20]) + (f", ... ({len(known)} steps)" if len(known) > 20 else "")
            raise UsageError(f"{option} {pattern}: no step has that name; the steps are {listed}")
        found.update(names)
    return frozenset(found)
