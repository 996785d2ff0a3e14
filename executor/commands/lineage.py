"""`marinade lineage`: from any artifact or checkpoint back to recipe, config, data and code."""

import argparse
import sys

from executor.commands.finding import trace_artifact
from executor.render.terminal import Terminal


def execute(args: argparse.Namespace) -> int:
    found = trace_artifact(args.address, args.prefix)
    if args.json:
        from executor.render.as_json import dumps, lineage_json

        print(dumps(lineage_json(found)))
    else:
        from executor.render.lineage import lineage_text

        sys.stdout.write(lineage_text(found, Terminal.of(sys.stdout)))
    return 0
