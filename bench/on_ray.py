"""What the engine adds to Ray: its steps beside raw Ray tasks that do the same durable writes.

    python bench/on_ray.py marinade --shape apart --steps 200
    python bench/on_ray.py ray      --shape apart --steps 200 --durable 7 --plain 2

Starting Ray and its workers is no part of the figure. Steps: the clock starts when every worker has begun a step, and
stops when `steps` more have ended (each end comes after the step's commit). Raw tasks: it starts after as many tasks
at once as there are workers, and stops when all results are in. A chain's first step, or task, is not counted.

`count` runs steps in this process and says how many durable writes (temporary file, fsync, rename or link, fsync of the
folder) and plain ones a step makes; raw tasks are given those numbers. Each command prints one JSON object.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

_GRAPH = Path(__file__).resolve().parent / "graphs" / "with_marinade.py"
_BYTES = 1500


def run_steps(shape: str, steps: int, folder: str) -> dict[str, float]:
    """The real scheduler, from the first steps' start to the last one's commit."""
    from executor.driver.events import StepFinished, StepStarted

    workers = (os.cpu_count() or 1) if shape == "apart" else 1
    spare = 40 * workers if shape == "apart" else 1
    begun: set[int] = set()
    began, cpu = 0.0, 0.0
    ended: list[tuple[float, float]] = []

    def listen(event: Any) -> None:
        nonlocal began, cpu
        if isinstance(event, StepFinished):
            if began:
                ended.append((time.perf_counter(), time.process_time()))
            elif shape != "apart":
                began, cpu = time.perf_counter(), time.process_time()
        elif isinstance(event, StepStarted) and shape == "apart" and not began:
            begun.add(event.pid)
            if len(begun) == workers:
                began, cpu = time.perf_counter(), time.process_time()

    _run(shape, steps + spare, folder, inline=False, listener=listen)
    if len(ended) < steps:
        raise SystemExit(f"{len(ended)} steps ended while all {workers} workers were up, {steps} were to be timed")
    wall, cpu_then = ended[steps - 1]
    return {"wall_seconds": wall - began, "cpu_seconds": cpu_then - cpu}


def count_writes(steps: int, folder: str) -> dict[str, float]:
    """Durable and plain writes, and fsyncs, of one step."""
    from executor.storage.files import LocalFiles

    counts = {"durable": 0, "fsyncs": 0}
    write, create, fsync = LocalFiles.write, LocalFiles.create, os.fsync

    def counted(plain: Any, name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            counts[name] += 1
            return plain(*arguments, **options)

        return call

    LocalFiles.write, LocalFiles.create = counted(write, "durable"), counted(create, "durable")
    os.fsync = counted(fsync, "fsyncs")
    _run("apart", steps, folder, inline=True, listener=lambda _: None)
    runs = 3  # the run is put on record twice and noted as the last: no step's
    # Written without the store's care: what the step writes itself, and its log.
    return {"durable": round((counts["durable"] - runs) / steps), "fsyncs": counts["fsyncs"] / steps, "plain": 2}


def _run(shape: str, steps: int, folder: str, *, inline: bool, listener: Any) -> None:
    os.environ |= {"BENCH_SHAPE": shape, "BENCH_STEPS": str(steps)}
    sys.path.insert(0, str(_GRAPH.parent))
    from executor import RunOptions, Store, run_experiment
    from executor.recipe import load

    recipe = load(str(_GRAPH))
    outcome = run_experiment(
        recipe.experiment(),
        Store(folder),
        recipe=recipe,
        scale="laptop",
        options=RunOptions(inline=inline),
        listener=listener,
    )
    if outcome.exit_code != 0:
        raise SystemExit(next(step.error for step in outcome.steps.values() if step.error))


def run_tasks(shape: str, steps: int, folder: str, durable: int, plain: int) -> dict[str, float]:
    """Raw Ray tasks, warm, with the same number of writes each."""
    os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = "0"
    import ray

    workers = os.cpu_count() or 1
    ray.init(address="local", num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    task = ray.remote(_write_files)
    ray.get([task.remote(f"{folder}/warm{number}", durable, plain, 1.0) for number in range(workers)])
    began, cpu = time.perf_counter(), time.process_time()
    if shape == "apart":
        ray.get([task.remote(f"{folder}/{number}", durable, plain) for number in range(steps)])
    else:
        before = None
        for number in range(steps):
            before = task.remote(f"{folder}/{number}", durable, plain, 0.0, before)
        ray.get(before)
    found = {"wall_seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu}
    ray.shutdown()
    return found


def _write_files(folder: str, durable: int, plain: int, seconds: float = 0.0, before: None = None) -> None:
    time.sleep(seconds)
    os.makedirs(folder, exist_ok=True)
    for number in range(plain):
        with open(f"{folder}/plain{number}", "wb") as file:
            file.write(b"x")
    for number in range(durable):
        handle, name = tempfile.mkstemp(dir=folder)
        with os.fdopen(handle, "wb") as file:
            file.write(b"x" * _BYTES)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, f"{folder}/durable{number}")
        opened = os.open(folder, os.O_RDONLY)
        os.fsync(opened)
        os.close(opened)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["marinade", "ray", "count"])
    parser.add_argument("--shape", choices=["apart", "chain"], default="apart")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--durable", type=int, default=7, help="durable writes of a raw task")
    parser.add_argument("--plain", type=int, default=2, help="plain writes of a raw task")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="marinade-bench-", dir=os.environ.get("BENCH_FOLDER")) as folder:
        if args.what == "marinade":
            found: dict[str, float] = run_steps(args.shape, args.steps, folder)
        elif args.what == "ray":
            found = run_tasks(args.shape, args.steps, folder, args.durable, args.plain)
        else:
            found = count_writes(args.steps, folder)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
