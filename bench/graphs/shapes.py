"""The graphs that every tool of the benchmark builds: which steps each step reads.

    chain   0 -> 1 -> 2 -> ... -> n-1
    fan     0 -> each of 1 ... n-2, and all of them -> n-1
    apart   n steps that read nothing

Imported by scripts that run in the environments of other tools, so it needs the standard library only. Shape and size
come in environment variables, because each of those tools has its own way, or none, to pass arguments on.
"""

import os

SHAPE = os.environ.get("BENCH_SHAPE", "chain")
STEPS = int(os.environ.get("BENCH_STEPS", "200"))


def sources(number: int) -> list[int]:
    """Numbers of the steps that step `number` reads."""
    if number == 0 or SHAPE == "apart":
        return []
    if SHAPE == "chain":
        return [number - 1]
    if SHAPE != "fan":
        raise ValueError(f"BENCH_SHAPE={SHAPE}: the shapes are chain, fan and apart")
    is_last = number == STEPS - 1
    return list(range(1, number)) if is_last and number > 1 else [0]
