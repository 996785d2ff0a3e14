"""Source text of the code that a step reaches, read only when somebody asks for it.

    texts = UnitTexts(graph.code["train"].places)
    texts["steps.train.loop.train"]        reads one file

A diff asks for the functions that changed and for no others.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from executor.keys.syntax import Unit


class UnitTexts(Mapping[str, str]):
    """Texts of code as it stands in the project's files: qualified name -> text."""

    def __init__(self, places: Mapping[str, tuple[Path, Unit]]) -> None:
        self._places = places

    def __getitem__(self, name: str) -> str:
        path, unit = self._places[name]
        lines = _lines(path, path.stat().st_mtime_ns)
        return "\n".join("\n".join(lines[first - 1 : last]) for first, last in unit.lines)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


class KeptTexts(Mapping[str, str]):
    """Texts that were kept with an artifact; `read` fetches all of them, once."""

    def __init__(self, read: Callable[[], Mapping[str, str]]) -> None:
        self._read = read

    @functools.cached_property
    def _texts(self) -> Mapping[str, str]:
        return self._read()

    def __getitem__(self, name: str) -> str:
        return self._texts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)


@functools.lru_cache(maxsize=256)
def _lines(path: Path, changed: int) -> tuple[str, ...]:
    return tuple(path.read_text().splitlines())
