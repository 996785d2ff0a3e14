"""`marinade why`: the shortest path from an artifact to one of its ancestors."""

import argparse
import sys

from executor.commands.finding import trace_artifact
from executor.history.lineage import why
from executor.render.terminal import Terminal


def execute(args: argparse.Namespace) -> int:
    path = why(trace_artifact(args.address, args.prefix), args.ancestor)
    if args.json:
        from executor.render.as_json import dumps, why_json

        print(dumps(why_json(path)))
    else:
        from executor.render.lineage import why_text

        sys.stdout.write(why_text(path, Terminal.of(sys.stdout)))
    return 0
