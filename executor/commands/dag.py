"""`marinade dag`: the graph of a recipe as a tree, JSON, Mermaid or DOT."""

import argparse
import sys

from executor.commands.opening import open_recipe
from executor.render.dag import dag_dot, dag_mermaid, dag_text
from executor.render.terminal import Terminal


def execute(args: argparse.Namespace) -> int:
    graph = open_recipe(args).graph()
    if args.json:
        from executor.render.as_json import dag_json, dumps

        print(dumps(dag_json(graph)))
    elif args.mermaid:
        sys.stdout.write(dag_mermaid(graph))
    elif args.dot:
        sys.stdout.write(dag_dot(graph))
    else:
        sys.stdout.write(dag_text(graph, Terminal.of(sys.stdout)))
    return 0
