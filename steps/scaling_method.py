"""How a ladder's curves become laws.

per-checkpoint      the asymptote is given; every mark of the progress is fitted by itself (the real run's way)
shared-exponent     the same with one exponent for all marks, least squares over all of them
free-asymptote      every mark by itself, and its asymptote is fitted too
"""

from typing import Literal, get_args

Method = Literal["per-checkpoint", "shared-exponent", "free-asymptote"]
METHODS: tuple[Method, ...] = get_args(Method)

FEWEST_RUNGS: dict[Method, int] = {"per-checkpoint": 2, "shared-exponent": 2, "free-asymptote": 3}
"""Rungs that determine a law."""
