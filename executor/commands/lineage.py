"""`marinade lineage`: from any artifact or checkpoint back to recipe, config, data and code."""

import argparse
import sys

from executor.commands.finding import trace_artifact
from executor.render.terminal import Terminal


def execute(args: argparse.Namespace) -> int:
    found = trace_artifact(args.address, args.prefix)
    if args.crate:
        from executor.history.crate import write_crate

        write_crate(found, args.crate)
        print(f"{len(found.ancestors)} records as an RO-Crate in {args.crate}", file=sys.stderr)
        if not args.json:
            return 0
    if args.json:
        from executor.render.as_json import dumps, lineage_json

        print(dumps(lineage_json(found)))
    else:
        from executor.render.lineage import lineage_text

        sys.stdout.write(lineage_text(found, Terminal.of(sys.stdout)))
    return 0
