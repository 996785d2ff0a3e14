"""How many assignments are lost when documents grow longer: a simulation at the hero's shape, and the layer itself.

    python bench/drops.py                         both, as tables
    python bench/drops.py --simulated --seeds 3   the simulation alone
    python bench/drops.py --measured              our layer and Levanter's pooled wave on 8 virtual devices
    python bench/drops.py --json                  one object a figure
    python bench/drops.py --picture drops.svg     the simulation as curves

The tokens of one document lean towards the same experts: a token's logits are a standard normal and `--lean` times one
that its document shares. What counts is how many documents a device holds, 16 of 4K tokens or one of 65K, because what
one device sends another is a sum over them. `--lean` is set so that the pooled wave loses at 4K what the real run lost
there (2.67%); everything else follows. docs/moe.md says what the policies are.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator

os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8".strip()

import drop_policies
import numpy as np

DEVICES, EXPERTS, TOP_K, TOKENS = 64, 384, 8, 65_536
CONTEXTS = (4096, 8192, 16_384, 32_768, 65_536)
_SAMPLED_TOKENS = 512
"""A document's shares of the experts are estimated from so many of its tokens; its counts are drawn from them."""


def main() -> int:
    args = _arguments()
    rows = []
    if not args.measured or args.simulated:
        rows += _shown(_simulated(args.lean, args.seeds), args.json)
    if not args.simulated or args.measured:
        from drops_measured import measured

        rows += _shown(measured(args.lean), args.json)
    if not args.json:
        print(_table(rows))
    if args.picture:
        from drops_picture import draw

        draw([row for row in rows if row["kind"] == "simulated"], args.picture)
        print(f"picture: {args.picture}", file=sys.stderr)
    return 0


def _simulated(lean: float, seeds: int) -> Iterator[dict]:
    for context in CONTEXTS:
        found = [_counts(TOKENS // context, lean, np.random.default_rng(seed)) for seed in range(seeds)]
        for policy, dropped in drop_policies.POLICIES.items():
            shares = [dropped(counts) for counts in found]
            yield {
                "kind": "simulated",
                "policy": policy,
                "context": context,
                "drop_percent": round(100 * float(np.mean(shares)), 3),
                "worst_percent": round(100 * max(shares), 3),
                "largest_pair": round(float(np.mean([drop_policies.largest_pair(counts) for counts in found])), 2),
            }


def _counts(documents: int, lean: float, generator: np.random.Generator) -> np.ndarray:
    """[S, E]: assignments of each device for each expert. The router's bias has evened out the experts beforehand:
    all are alike, and what differs is which documents there happen to be."""
    counts = np.zeros((DEVICES, EXPERTS), np.int64)
    assignments = TOKENS * TOP_K // documents
    for device in range(DEVICES):
        for _ in range(documents):
            shared = lean * generator.standard_normal(EXPERTS, dtype=np.float32)
            logits = shared + generator.standard_normal((_SAMPLED_TOKENS, EXPERTS), dtype=np.float32)
            chosen = np.argpartition(-logits, TOP_K, axis=1)[:, :TOP_K]
            shares = np.bincount(chosen.ravel(), minlength=EXPERTS) / chosen.size
            counts[device] += generator.multinomial(assignments, shares)
    return counts


def _shown(rows: Iterator[dict], as_json: bool) -> list[dict]:
    found = []
    for row in rows:
        found.append(row)
        line = json.dumps(row)
        print(line, file=sys.stdout if as_json else sys.stderr, flush=True)
    return found


def _table(rows: list[dict]) -> str:
    lines = []
    for kind in dict.fromkeys(row["kind"] for row in rows):
        here = [row for row in rows if row["kind"] == kind]
        contexts = list(dict.fromkeys(row["context"] for row in here))
        lines += [
            f"| {kind}, drops in % | " + " | ".join(map(str, contexts)) + " |",
            "|---" * (len(contexts) + 1) + "|",
        ]
        for policy in dict.fromkeys(row["policy"] for row in here):
            found = {row["context"]: row["drop_percent"] for row in here if row["policy"] == policy}
            lines.append(f"| {policy} | " + " | ".join(f"{found[context]:.2f}" for context in contexts) + " |")
        lines.append("")
    return "\n".join(lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulated", action="store_true", help="the simulation only")
    parser.add_argument("--measured", action="store_true", help="the layer only")
    parser.add_argument("--lean", type=float, default=0.7, help="standard deviation that a document shares (0.7)")
    parser.add_argument("--seeds", type=int, default=2, help="simulated batches for each figure (2)")
    parser.add_argument("--json", action="store_true", help="one object a figure")
    parser.add_argument("--picture", metavar="FILE.svg", help="draw the simulated curves")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
