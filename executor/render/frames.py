"""Tracebacks as the author of a step or a recipe wants them: from their own first frame on."""

import importlib
import os
from pathlib import Path

_FRAME = '  File "'
_NOT_THEIRS = (f"{Path(__file__).parent.parent}{os.sep}", "<frozen importlib", importlib.__file__)


def own_frames(traceback: str) -> str:
    """The text of a traceback without the frames of the engine and of the import system that it begins with."""
    lines = traceback.splitlines()
    frames = [number for number, line in enumerate(lines) if line.startswith(_FRAME)]
    theirs = next((n for n in frames if not lines[n].removeprefix(_FRAME).startswith(_NOT_THEIRS)), None)
    if theirs is None:
        return traceback
    return "\n".join([*lines[: frames[0]], *lines[theirs:]])
