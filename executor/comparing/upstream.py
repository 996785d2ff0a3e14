"""The causes above each changed step, in memory that grows with the steps and not with their square.

    tokens (cause) <- train (cause) <- eval, report       train keeps (tokens,) and itself; eval and report share one
                                                          list, ("tokens", "train")

A list is written out only for a step that inherits; steps that inherit the same share it.
"""

import dataclasses
from collections.abc import Iterable


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _Node:
    """What stands directly above; then the cause itself, empty where several are only brought together."""

    above: tuple["_Node", ...]
    cause: str = ""


class Upstream:
    """Filled with the changed steps, each after those it reads; names that were not told are unchanged."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self._together: dict[tuple[_Node, ...], _Node] = {}
        self._lists: dict[_Node, tuple[str, ...]] = {}

    def any(self, read: Iterable[str]) -> bool:
        """Whether one of these steps is or inherits from a cause."""
        return any(name in self._nodes for name in read)

    def cause(self, name: str, read: Iterable[str]) -> None:
        """`name` is a cause that reads these steps."""
        self._nodes[name] = _Node(above=self._above(read), cause=name)

    def inherits(self, name: str, read: Iterable[str]) -> tuple[str, ...]:
        """`name` differs only through these steps, of which one at least is changed; the causes above it."""
        above = self._above(read)
        node = above[0] if len(above) == 1 else self._together.setdefault(above, _Node(above=above))
        self._nodes[name] = node
        if node not in self._lists:
            self._lists[node] = _causes(node)
        return self._lists[node]

    def _above(self, read: Iterable[str]) -> tuple[_Node, ...]:
        return tuple(dict.fromkeys(self._nodes[name] for name in read if name in self._nodes))


def _causes(root: _Node) -> tuple[str, ...]:
    """All causes, each after those above it; without recursion, a chain may be 10,000 long."""
    found: dict[str, None] = {}
    seen: set[_Node] = set()
    stack = [(root, False)]
    while stack:
        node, is_done = stack.pop()
        if is_done:
            if node.cause:
                found[node.cause] = None
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((above, False) for above in reversed(node.above))
    return tuple(found)
