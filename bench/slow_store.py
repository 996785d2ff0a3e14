"""Planning against a store that takes its time: how many calls, how many of them one after the other.

    python bench/slow_store.py --steps 200 --shape chain --delay 0.05

The store is fsspec's memory file system, with a delay before every call. It is filled without the delay, then planned
with it. `rounds` counts the times that the store went from idle to busy: calls that overlap are one round.
Prints one JSON object: {"calls", "rounds", "wall_seconds", "cpu_seconds", "by_operation"}.
"""

import argparse
import collections
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

import fsspec
from fsspec.implementations.memory import MemoryFileSystem

_GRAPH = Path(__file__).resolve().parent / "graphs" / "with_marinade.py"
_OPERATIONS = ("cat_file", "pipe_file", "ls", "find", "info", "exists", "open", "cat", "cat_ranges", "glob", "created")


class SlowFileSystem(MemoryFileSystem):
    """Memory, after a delay. A call made by another call of the same thread is part of that one."""

    protocol = "slow"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    delay_seconds = 0.0
    calls: ClassVar[collections.Counter] = collections.Counter()
    rounds = 0
    _busy = 0
    _lock = threading.Lock()
    _inside = threading.local()

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return super()._strip_protocol(path.replace("slow://", "memory://", 1))

    @classmethod
    def _slowed(cls, operation: str) -> Any:
        plain = getattr(MemoryFileSystem, operation)

        def call(self: "SlowFileSystem", *arguments: Any, **options: Any) -> Any:
            if getattr(cls._inside, "yes", False):
                return plain(self, *arguments, **options)
            with cls._lock:
                cls.calls[operation] += 1
                cls.rounds += cls._busy == 0
                cls._busy += 1
            cls._inside.yes = True
            try:
                time.sleep(cls.delay_seconds)
                return plain(self, *arguments, **options)
            finally:
                cls._inside.yes = False
                with cls._lock:
                    cls._busy -= 1

        return call


for _operation in _OPERATIONS:
    setattr(SlowFileSystem, _operation, SlowFileSystem._slowed(_operation))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--shape", default="chain")
    parser.add_argument("--delay", type=float, default=0.05, help="seconds before every call")
    args = parser.parse_args()
    os.environ |= {"BENCH_STEPS": str(args.steps), "BENCH_SHAPE": args.shape}
    sys.path.insert(0, str(_GRAPH.parent))
    fsspec.register_implementation("slow", SlowFileSystem)

    from executor import RunOptions, Store, make_plan, run_experiment
    from executor.recipe import load

    recipe = load(str(_GRAPH))
    experiment, store = recipe.experiment(), Store("slow://bench")
    outcome = run_experiment(experiment, store, recipe=recipe, scale="laptop", options=RunOptions(inline=True))
    assert outcome.exit_code == 0, [step.error for step in outcome.steps.values() if step.error][:1]

    SlowFileSystem.calls.clear()
    SlowFileSystem.rounds, SlowFileSystem.delay_seconds = 0, args.delay
    began, cpu = time.perf_counter(), time.process_time()
    plan = make_plan(experiment, store, recipe=recipe.name, scale="laptop")
    wall_seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu
    assert all(step.action == "reuse" for step in plan.steps)
    found = {
        "calls": SlowFileSystem.calls.total(),
        "rounds": SlowFileSystem.rounds,
        "wall_seconds": wall_seconds,
        "cpu_seconds": cpu_seconds,
        "by_operation": dict(SlowFileSystem.calls),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
