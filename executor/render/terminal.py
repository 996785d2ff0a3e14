"""What a stream can show: colour, width; and lines that keep to them."""

import dataclasses
import os
import shutil
import textwrap
from collections.abc import Sequence
from typing import IO

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}
PLAIN_WIDTH = 80


@dataclasses.dataclass(frozen=True, kw_only=True)
class Terminal:
    """What one stream can show; the default is what fits everywhere.

    Attributes:
        color: False off a terminal and where NO_COLOR is set.
        width: columns; 80 off a terminal, at most 120 on one.
        live: True on a terminal that can redraw lines.
    """

    color: bool = False
    width: int = PLAIN_WIDTH
    live: bool = False

    @classmethod
    def of(cls, stream: IO[str]) -> "Terminal":
        try:
            is_terminal = stream.isatty()
        except ValueError:  # closed
            is_terminal = False
        if not is_terminal:
            return cls()
        dumb = os.environ.get("TERM", "") in ("", "dumb")
        width = shutil.get_terminal_size((PLAIN_WIDTH, 24)).columns
        return cls(color=not dumb and not os.environ.get("NO_COLOR"), width=min(max(width, 40), 120), live=not dumb)

    def paint(self, text: str, *styles: str) -> str:
        if not self.color or not text or not styles:
            return text
        return f"\x1b[{';'.join(_CODES[style] for style in styles)}m{text}\x1b[0m"

    def wrap(self, text: str, indent: int = 0) -> list[str]:
        """Lines of `text` with a hanging indent; words longer than a line stay whole, paths are for copying."""
        lines = textwrap.wrap(
            text,
            max(self.width - indent, 20),
            break_long_words=False,
            break_on_hyphens=False,
        )
        return [" " * indent + line for line in lines] or [""]


def columns(rows: Sequence[Sequence[str]], right: Sequence[int] = (), gap: int = 2) -> list[str]:
    """Rows as aligned lines; `right` are the columns to align right. The last column is not padded."""
    if not rows:
        return []
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [cell.rjust(widths[i]) if i in right else cell.ljust(widths[i]) for i, cell in enumerate(row)]
        lines.append((" " * gap).join(cells).rstrip())
    return lines
