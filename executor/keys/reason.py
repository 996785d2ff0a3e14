"""One reason why a step is not the one there was: of a changed payload, or of what a store holds."""

import dataclasses
from typing import Any, Literal

ReasonKind = Literal["new", "config", "code", "input", "version", "failed", "missing", "forced", "unreachable"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reason:
    """Why a step is not simply reused.

    Attributes:
        path: the field (dotted) or function that changed, empty where the kind says all.
        old, new: the values, as JSON, None where absent.
        step: the other step concerned (an input's name), empty for none.
    """

    kind: ReasonKind
    path: str = ""
    old: Any = None
    new: Any = None
    step: str = ""
