"""The benchmark's graph for redun: tasks hashed by source, values and files in a SQLite database."""

from redun import File, task
from shapes import STEPS, sources

redun_namespace = "bench"


@task()
def write(number: int, sources: list[File]) -> File:
    file = File(f"out/{number}.txt")
    file.write(str(number))
    return file


@task()
def main() -> list[File]:
    files = []
    for number in range(STEPS):
        files.append(write(number, [files[other] for other in sources(number)]))
    return files
