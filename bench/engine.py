"""How fast the engine is, beside other pipeline tools, in one run on one machine.

    python bench/engine.py                             everything: some twenty minutes
    python bench/engine.py --steps 200 --no-peers      our own cases at one size
    python bench/engine.py --json                      one object a line: case, tool, steps, cpu_seconds, wall_seconds

Cases: chain-first, chain-cached, fan-first, fan-cached (a whole process each, ours with --inline, so without Ray);
import (`import executor` alone); ray-first and ray-chain-10 (our steps on Ray, and raw Ray tasks that write as much);
slow-store-chain and slow-store-fan (a plan against a store of 50 ms a call). docs/benchmarks.md says what they mean.
Figures go to stdout, everything else to stderr. Exit code 1 when a case could not be measured.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import peers
from measuring import Measurement, MeasuringFailed, Run, least, measure
from table import as_table

ROOT = Path(__file__).resolve().parent.parent
SHAPES = ("chain", "fan")
PEER_STEPS = 200
CASES = (
    "import",
    *(f"{shape}-{state}" for shape in SHAPES for state in ("first", "cached")),
    "ray-first",
    "ray-chain-10",
    *(f"slow-store-{shape}" for shape in SHAPES),
)
_OURS = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(peers.GRAPHS)])}
_MOST_SECONDS = 1800.0


def main() -> int:
    args = _arguments()
    failed = False
    found: list[Measurement] = []
    print(_machine(), file=sys.stderr)
    for measurement in _measurements(args):
        if isinstance(measurement, MeasuringFailed):
            failed = True
            print(f"not measured: {measurement}", file=sys.stderr)
        elif args.json:
            print(json.dumps(measurement.to_json()), flush=True)
        else:
            print(f"{measurement.case} {measurement.tool} {measurement.steps}", file=sys.stderr)
            found.append(measurement)
    if not args.json:
        print(as_table(found))
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=_counts, default=(200, 1000, 10_000), metavar="N,N", help="sizes of our graphs")
    parser.add_argument("--no-peers", action="store_true", help="leave out the other tools")
    parser.add_argument("--cases", type=_cases, default=CASES, metavar="CASE,CASE", help=f"some of {', '.join(CASES)}")
    parser.add_argument("--repeat", type=int, default=5, help="cached runs of each case; the least one counts")
    parser.add_argument("--json", action="store_true", help="one object a measurement")
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path("~/.cache/marinade-bench").expanduser(),
        help="folder for the environments of the other tools (default: ~/.cache/marinade-bench)",
    )
    return parser.parse_args()


def _counts(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _cases(text: str) -> tuple[str, ...]:
    wanted = tuple(text.split(","))
    unknown = sorted(set(wanted) - set(CASES))
    if unknown:
        raise argparse.ArgumentTypeError(f"no case {', '.join(unknown)}; the cases are {', '.join(CASES)}")
    return wanted


def _machine() -> str:
    return f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.platform()}"


def _measurements(args: argparse.Namespace) -> Iterator[Measurement | MeasuringFailed]:
    """Ours and the others' in turn, so that a busy minute of the machine does not hit one of them alone."""
    if "import" in args.cases:
        yield _import(args.repeat)
    tools = [] if args.no_peers else list(_tools(args.cache))
    for shape in SHAPES:
        states = [state for state in ("first", "cached") if f"{shape}-{state}" in args.cases]
        if not states:
            continue
        for steps in args.steps:
            yield from _guarded(_ours(shape, steps), shape, "marinade", steps, states, args.repeat)
            if steps == PEER_STEPS:
                for tool in tools:
                    yield from _guarded(tool, shape, tool.name, steps, states, min(args.repeat, 3))
    if not args.no_peers and PEER_STEPS not in args.steps:
        print(f"the other tools are measured at {PEER_STEPS} steps only: add it to --steps", file=sys.stderr)
    for case, shape, steps in (("ray-first", "apart", 200), ("ray-chain-10", "chain", 10)):
        if case in args.cases:
            yield from _on_ray(case, shape, steps)
    for shape in SHAPES:
        if f"slow-store-{shape}" in args.cases:
            yield from _slow_store(shape)


def _tools(cache: Path) -> Iterator[peers.Peer]:
    for name in peers.NAMES:
        try:
            tool = peers.Peer.of(name, cache)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"{name} is left out, its environment cannot be made: {error}", file=sys.stderr)
            continue
        print(f"{name} {tool.version}", file=sys.stderr)
        yield tool


def _ours(shape: str, steps: int) -> peers.Peer:
    recipe = peers.GRAPHS / "with_marinade.py"
    return peers.Peer(
        name="marinade",
        version="",
        command=(sys.executable, str(recipe), "--inline", "--prefix", "store"),
        environment=_OURS,
    )


def _import(repeat: int) -> Measurement:
    with tempfile.TemporaryDirectory() as folder:
        command = (sys.executable, "-c", "import executor")
        run = least([measure(command, folder=Path(folder), environment=_OURS) for _ in range(repeat + 1)])
    return _measured("import", "marinade", 0, run)


def _guarded(
    tool: peers.Peer, shape: str, name: str, steps: int, states: list[str], repeat: int
) -> Iterator[Measurement | MeasuringFailed]:
    try:
        for measurement in _first_and_cached(tool, shape, name, steps, repeat):
            if measurement.case.removeprefix(f"{shape}-") in states:
                yield measurement
    except MeasuringFailed as error:
        yield error


def _first_and_cached(tool: peers.Peer, shape: str, name: str, steps: int, repeat: int) -> Iterator[Measurement]:
    """Bring a graph up to date in a new folder, then find it up to date."""
    environment = {**tool.environment, "BENCH_SHAPE": shape, "BENCH_STEPS": str(steps)}
    with tempfile.TemporaryDirectory(prefix="marinade-bench-") as name_of_folder:
        folder = Path(name_of_folder)
        first = measure(tool.command, folder=folder, environment=environment, limit_seconds=_MOST_SECONDS)
        written = _written(folder)
        if len(written) != steps:
            raise MeasuringFailed(f"{name} wrote {len(written)} files for {steps} steps:\n{first.output[-2000:]}")
        yield _measured(f"{shape}-first", name, steps, first)
        cached = [measure(tool.command, folder=folder, environment=environment) for _ in range(repeat)]
        if _written(folder) != written:
            raise MeasuringFailed(f"{name} wrote files again in a run that had nothing to do")
        yield _measured(f"{shape}-cached", name, steps, least(cached))


def _written(folder: Path) -> dict[str, int]:
    """The files of the steps, with the time each was written at: `out/{number}.txt`, ours `.../number.txt`."""
    found = [*folder.glob("out/*.txt"), *folder.glob("store/*/*/number.txt")]
    return {str(path): path.stat().st_mtime_ns for path in found}


def _on_ray(case: str, shape: str, steps: int) -> Iterator[Measurement | MeasuringFailed]:
    script = str(ROOT / "bench" / "on_ray.py")
    try:
        writes = _json_of((sys.executable, script, "count", "--steps", "20"))
        given = [f"--durable={writes['durable']:.0f}", f"--plain={writes['plain']:.0f}"]
        commands = {
            tool: (sys.executable, script, tool, "--shape", shape, "--steps", str(steps), *given)
            for tool in ("marinade", "ray")
        }
        rounds = [{tool: _json_of(command) for tool, command in commands.items()} for _ in range(2)]
        for tool in commands:
            found = min((one[tool] for one in rounds), key=lambda one: one["wall_seconds"])
            yield Measurement(case=case, tool=tool, steps=steps, **found, details={"fsyncs_a_step": writes["fsyncs"]})
    except MeasuringFailed as error:
        yield error


def _slow_store(shape: str) -> Iterator[Measurement | MeasuringFailed]:
    script = str(ROOT / "bench" / "slow_store.py")
    try:
        found = _json_of((sys.executable, script, "--shape", shape, "--steps", "200", "--delay", "0.05"))
    except MeasuringFailed as error:
        yield error
        return
    details = {name: found.pop(name) for name in ("calls", "rounds", "by_operation")}
    yield Measurement(case=f"slow-store-{shape}", tool="marinade", steps=200, **found, details=details)


def _json_of(command: tuple[str, ...]) -> dict:
    """What a script of this folder prints last."""
    with tempfile.TemporaryDirectory() as folder:
        run = measure(command, folder=Path(folder), environment=_OURS)
    return json.loads(run.output.strip().rpartition("\n")[2])


def _measured(case: str, tool: str, steps: int, run: Run) -> Measurement:
    return Measurement(case=case, tool=tool, steps=steps, cpu_seconds=run.cpu_seconds, wall_seconds=run.wall_seconds)


if __name__ == "__main__":
    sys.exit(main())
