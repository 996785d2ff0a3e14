"""How well the ladder's law predicts: the real run's published rungs, and the laptop's flagship at several seeds.

    python bench/forecast.py                              seeds 0, 1, 2; what has not run yet is run (five minutes each)
    python bench/forecast.py --seeds "" --json            the published ladder alone, at once
    python bench/forecast.py --prefix /scratch/forecast   where the runs lie; what is there is not run again
    python bench/forecast.py --picture forecast.svg       both as a picture, too

One object with --json: {"published": {"prediction", "with_fourth", "low", "high"}, "laptop": [{"seed", "factor",
"predicted", "actual"}]}. `factor` is the hero's compute over that of the top rung that was used: each run gives one
prediction from all rungs and one from those below the top. Losses are nats per token, a mean over domains; `low` and
`high` span the fits that leave one rung out. Nothing is fitted to the hero's loss. The table says beside it what each
way to fit the law (steps/scaling_method.py) gives, and how it would have predicted the top rung from those below.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from steps.published import ASYMPTOTE, COMPLETE_RUNGS, HERO_FLOPS, OFFICIAL_PREDICTION, PARTIAL_RUNG  # noqa: E402
from steps.scaling import fit, laws, predict  # noqa: E402
from steps.scaling_method import FEWEST_RUNGS, Method  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--seeds", type=_seeds, default=[0, 1, 2], metavar="N,N", help="of the laptop runs; may be none"
    )
    parser.add_argument("--prefix", default=str(ROOT / "artifacts"), help="store of the laptop runs")
    parser.add_argument("--json", action="store_true", help="one object")
    parser.add_argument("--picture", metavar="FILE", help="draw it: .svg or .png")
    args = parser.parse_args()
    found = {"published": published(), "laptop": [row for seed in args.seeds for row in laptop(seed, args.prefix)]}
    print(json.dumps(found) if args.json else as_text(found))
    if args.picture:
        from forecast_curves import draw

        draw(found, args.picture)
    return 0


def published() -> dict[str, float]:
    """The hero's loss from the complete rungs, and with the fourth, whose end is derived."""

    def hero(rungs):
        return predict([r.flops for r in rungs], [r.loss for r in rungs], target=HERO_FLOPS, asymptote=ASYMPTOTE)

    three = hero(COMPLETE_RUNGS)
    fourth = hero((*COMPLETE_RUNGS, PARTIAL_RUNG))
    return {"prediction": three.loss, "with_fourth": fourth.loss, "low": three.low, "high": three.high}


def by_method(method: Method) -> dict[str, Any]:
    """What a method says of the hero from all four rungs, and of the fourth from the three below it."""
    rungs = (*COMPLETE_RUNGS, PARTIAL_RUNG)

    def loss(used: Any, target: float) -> float:
        ends = [[rung.loss] for rung in used]
        return laws([rung.flops for rung in used], ends, asymptote=ASYMPTOTE, method=method)[0].loss(target)

    top = loss(rungs[:-1], PARTIAL_RUNG.flops)
    return {"method": method, "hero": loss(rungs, HERO_FLOPS), "top": top, "error": top / PARTIAL_RUNG.loss - 1}


def laptop(seed: int, prefix: str) -> list[dict[str, Any]]:
    """Predictions of the flagship's final loss at one seed, and what it was; runs what is missing."""
    recipe = str(ROOT / "recipes" / "hero_535b.py")
    wanted = ("--until", "forecast", "--until", "hero/midtrain")
    words = ["--set", f"seed={seed}", *wanted, "--prefix", prefix, "--json"]
    done = subprocess.run([sys.executable, recipe, *words], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"the flagship at seed {seed} ended with exit code {done.returncode}")
    steps = json.loads(done.stdout)["steps"]
    actual = steps["hero/midtrain"]["result"]["validation"]["macro_loss"]
    forecast = json.loads((Path(steps["forecast"]["location"]) / "forecast.json").read_text())
    points, target = forecast["marks"][-1]["points"], forecast["target_flops"]
    rows = []
    for used in (points, points[:-1]):
        law = fit([one["flops"] for one in used], [one["loss"] for one in used], asymptote=forecast["asymptote"])
        rows.append(
            {"seed": seed, "factor": target / used[-1]["flops"], "predicted": law.loss(target), "actual": actual}
        )
    return rows


def as_text(found: dict[str, Any]) -> str:
    """Markdown tables."""
    ladder = found["published"]
    lines = [
        "| the real hero at 100%, predicted by | loss |",
        "|-------------------------------------|------|",
        f"| three complete rungs                | {ladder['prediction']:.4f} |",
        f"| the same, one left out              | {ladder['low']:.4f} to {ladder['high']:.4f} |",
        f"| with the fourth, its end derived    | {ladder['with_fourth']:.4f} |",
        f"| the run's own code                  | {OFFICIAL_PREDICTION:.4f} |",
    ]
    lines += ["", "| method          | hero, from four | d2048, from three | error  |"]
    lines += ["|-----------------|-----------------|-------------------|--------|"]
    # A shared exponent needs the curves before the end, which were not published.
    for one in (by_method(method) for method in FEWEST_RUNGS if method != "shared-exponent"):
        lines.append(f"| {one['method']:<15} | {one['hero']:<15.4f} | {one['top']:<17.4f} | {one['error']:+.2%} |")
    if found["laptop"]:
        lines += [
            "",
            "| seed | factor | predicted | actual | error |",
            "|------|--------|-----------|--------|-------|",
        ]
    for row in found["laptop"]:
        error = row["predicted"] / row["actual"] - 1
        lines.append(
            f"| {row['seed']} | {row['factor']:.1f} | {row['predicted']:.4f} | {row['actual']:.4f} | {error:+.2%} |"
        )
    return "\n".join(lines)


def _seeds(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


if __name__ == "__main__":
    sys.exit(main())
