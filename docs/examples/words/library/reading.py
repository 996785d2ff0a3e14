"""Files as lines of words."""

from collections.abc import Iterator
from pathlib import Path

from library.words import split


def lines_of(folder: str) -> Iterator[list[str]]:
    for file in sorted(Path(folder).iterdir()):
        for line in file.read_text().splitlines():
            yield split(line)
