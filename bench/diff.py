"""How fast `marinade diff` is: a whole process each, and the most memory it held.

    python bench/diff.py                       the flagship against its mixture swap, and chains of up to 10,000 steps
    python bench/diff.py --steps 1000 --json   one object a line: case, tool, steps, cpu_seconds, wall_seconds, peak_mib

Cases: diff-hero (both recipes at full scale, a store that is empty); diff-chain (two chains that differ in their first
step, so that all others inherit); diff-fan (every step differs in a field of its own: as many causes as steps).
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from measuring import Measurement, least, measure
from table import as_table

ROOT = Path(__file__).resolve().parent.parent
_MARINADE = (sys.executable, "-c", "import sys; from executor.cli import main; sys.exit(main())", "diff")
_RECIPE = """
import dataclasses

from executor import Experiment, Input, Step


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    @classmethod
    def at_scale(cls, scale: str) -> "Settings":
        return cls()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    number: int
    before: Input | None


def work(config: Config, output: str) -> None:
    raise AssertionError("compared, never run")


def build(settings: Settings) -> Experiment:
    steps: list[Step] = []
    for number in range({steps}):
        config = Config(number=number + {offset}, before=steps[-1] if steps and {chained} else None)
        steps.append(Step(f"step{{number}}", work, config))
    return Experiment(targets=tuple(steps))
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", default="1000,10000", metavar="N,N", help="sizes of chain and fan")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each case; the least one counts")
    parser.add_argument("--json", action="store_true", help="one object a measurement")
    args = parser.parse_args()
    found = []
    for one in _measurements([int(part) for part in args.steps.split(",")], args.repeat):
        if args.json:
            print(json.dumps(one.to_json()), flush=True)
        found.append(one)
    if not args.json:
        print(as_table(found))
    return 0


def _measurements(sizes: list[int], repeat: int) -> Iterator[Measurement]:
    with tempfile.TemporaryDirectory(prefix="marinade-bench-") as name:
        folder = Path(name)
        hero = [str(ROOT / "recipes" / f"hero_535b{ending}.py") for ending in ("", "_mixture_swap")]
        yield _case("diff-hero", 0, folder, [*hero, "--scale", "full"], repeat)
        for steps in sizes:
            yield _case("diff-chain", steps, folder, _pair(folder, steps, chained=True), repeat)
            yield _case("diff-fan", steps, folder, _pair(folder, steps, chained=False), repeat)


def _pair(folder: Path, steps: int, *, chained: bool) -> list[str]:
    """Two recipes; a chain differs in its first step only, of a fan every step does."""
    files = []
    for name, offset in (("before", "0"), ("after", "(number == 0)" if chained else "1")):
        file = folder / f"{name}_{steps}_{'chain' if chained else 'fan'}.py"
        text = _RECIPE.format(steps=steps, offset=offset, chained=chained)
        file.write_text(text.lstrip())
        files.append(str(file))
    return files


def _case(case: str, steps: int, folder: Path, words: list[str], repeat: int) -> Measurement:
    environment = {"PYTHONPATH": str(ROOT)}
    command = (*_MARINADE, *words, "--prefix", str(folder / "store"))
    runs = [measure(command, folder=folder, environment=environment, expected=1) for _ in range(repeat)]
    run = least(runs)
    return Measurement(
        case=case,
        tool="marinade",
        steps=steps,
        cpu_seconds=run.cpu_seconds,
        wall_seconds=run.wall_seconds,
        details={"peak_mib": round(run.peak_mib)},
    )


if __name__ == "__main__":
    sys.exit(main())
