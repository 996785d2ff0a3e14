"""How fast the expert-parallel MoE layer moves and works, beside Levanter's backends and the matmul floor.

    python bench/moe.py                                  a table: shapes A and B, float32 and bfloat16
    python bench/moe.py --json                           one object a line: shape, dtype, impl, ms, drop_fraction, ...
    python bench/moe.py --shape B --dtype float32 --impl floor,pooled,ours

Forward and backward of the routed experts alone, from tokens, chosen experts and weights to the sum over each token's
experts: gradients by tokens, combine weights and both weight arrays. Eight virtual devices of this process, or the GPUs
that JAX finds (up to eight), with the experts spread over all of them. Every repetition runs every implementation once,
so that all of them see the same machine; the median counts. What the compiled program moves and holds is read from its
HLO and does not depend on the machine.
docs/moe.md says what the columns mean. Figures go to stdout, everything else to stderr.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time

os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8".strip()

from moe_cases import IMPLEMENTATIONS, SHAPES, Case, Compiled, compiled, make_case
from moe_table import as_table


def main() -> int:
    args = _arguments()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}", file=sys.stderr)
    rows = []
    for shape in args.shape:
        for dtype in args.dtype:
            case = make_case(SHAPES[shape], dtype)
            rows += _measured(case, args.impl, args.repeat, json_lines=args.json)
    if not args.json:
        print(as_table(rows))
    return 0


def _measured(case: Case, parts: list[str], repeat: int, *, json_lines: bool) -> list[dict]:
    names = [name for name in IMPLEMENTATIONS if not parts or any(part in name for part in parts)]
    programs: dict[str, Compiled] = {}
    for name in names:
        print(f"{case.shape.name} {case.dtype} {name}: compiling", file=sys.stderr)
        programs[name] = compiled(case, name)
        programs[name].run()
    times: dict[str, list[float]] = {name: [] for name in names}
    for number in range(repeat):
        for name in names if number % 2 == 0 else names[::-1]:
            began = time.perf_counter()
            programs[name].run()
            times[name].append(time.perf_counter() - began)
    rows = []
    for name in names:
        row = {
            "shape": case.shape.name,
            "dtype": case.dtype,
            "impl": name,
            "ms": round(1000 * statistics.median(times[name]), 1),
            "least_ms": round(1000 * min(times[name]), 1),
            **programs[name].facts(),
        }
        rows.append(row)
        if json_lines:
            print(json.dumps(row), flush=True)
    return rows


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", type=_several(SHAPES), default=list(SHAPES), metavar="A,B")
    dtypes = ("float32", "bfloat16")
    parser.add_argument("--dtype", type=_several(dtypes), default=list(dtypes), metavar=",".join(dtypes))
    parser.add_argument("--impl", type=lambda text: text.split(","), default=[], help="parts of names; default: all")
    parser.add_argument("--repeat", type=int, default=7, help="repetitions of each (default: 7)")
    parser.add_argument("--json", action="store_true", help="one object a measurement")
    return parser.parse_args()


def _several(allowed):
    def parse(text: str) -> list[str]:
        found = text.split(",")
        unknown = [one for one in found if one not in allowed]
        if unknown:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(allowed)}")
        return found

    return parse


if __name__ == "__main__":
    sys.exit(main())
