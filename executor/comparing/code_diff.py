"""How the text of one piece of code differs: a unified diff of what was kept on both sides.

    code_diff({"steps.work": "def work():\n    return 1"}, {"steps.work": "def work():\n    return 2"}, "steps.work")
        @@ -1,2 +1,2 @@
         def work():
        -    return 1
        +    return 2

A key holds fingerprints of syntax, in which comments, docstrings and formatting do not count; what is shown is the
text itself, so that an edit of both kinds shows both.
"""

import dataclasses
import difflib
from collections.abc import Mapping

_CONTEXT_LINES = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class CodeDiff:
    """Lines of a unified diff without file names; `missing` says in words why there are none."""

    lines: tuple[str, ...] = ()
    missing: str = ""


def code_diff(old: Mapping[str, str], new: Mapping[str, str], name: str) -> CodeDiff:
    """The diff of `name` between the texts of two sides; a side without it has it empty."""
    before, after = old.get(name, ""), new.get(name, "")
    if before == after:
        return CodeDiff(missing="the text kept is the same on both sides: that of a run under other code was kept")
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=_CONTEXT_LINES, lineterm="")
    return CodeDiff(lines=tuple(lines)[2:])
