"""The benchmark's graph for doit: file dependencies by checksum; the code of a task is not tracked."""

import os

from doit.tools import run_once
from shapes import STEPS, sources


def write(number):
    os.makedirs("out", exist_ok=True)
    with open(f"out/{number}.txt", "w") as file:
        file.write(str(number))


def task_step():
    for number in range(STEPS):
        yield {
            "name": str(number),
            "actions": [(write, [number])],
            "file_dep": [f"out/{other}.txt" for other in sources(number)],
            "uptodate": [run_once],  # else a task that reads no files runs every time
            "targets": [f"out/{number}.txt"],
        }
