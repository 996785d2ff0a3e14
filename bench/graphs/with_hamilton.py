"""The benchmark's graph for Hamilton: nodes hashed by source and inputs; values are kept, files not looked at."""

import os
import sys

from hamilton import driver
from hamilton.function_modifiers import group, parameterize, source, value
from shapes import STEPS, sources


def _write(number):
    os.makedirs("out", exist_ok=True)
    with open(f"out/{number}.txt", "w") as file:
        file.write(str(number))
    return number


@parameterize(**{f"step{n}": {"number": value(n)} for n in range(STEPS) if not sources(n)})
def first(number: int) -> int:
    return _write(number)


@parameterize(
    **{
        f"step{n}": {"number": value(n), "inputs": group(*[source(f"step{other}") for other in sources(n)])}
        for n in range(STEPS)
        if sources(n)
    }
)
def following(number: int, inputs: list[int]) -> int:
    return _write(number)


if __name__ == "__main__":
    built = driver.Builder().with_modules(sys.modules["__main__"]).with_cache(path="cache").build()
    built.execute([f"step{n}" for n in range(STEPS)])
