"""What a recipe declares, written to stdout for the process that asked.

python -m executor.comparing.declared RECIPE SCALE [PATH=VALUE ...]
"""

import contextlib
import sys
from collections.abc import Sequence

from executor.comparing.side import Side
from executor.errors import MarinadeError, UsageError
from executor.keys.graph import Graph
from executor.recipe import load

UNKNOWN_SCALE = 4


def main(words: Sequence[str]) -> int:
    """Exit code 0 and a `Side` as JSON, or 1 and the reason on stderr, or 4 at a scale that the recipe does not
    know. What the recipe prints goes to stderr."""
    recipe, scale, *overrides = words
    try:
        with contextlib.redirect_stdout(sys.stderr):
            loaded = load(recipe)
            try:
                loaded.settings(scale)
            except UsageError as error:
                print(error, file=sys.stderr)
                return UNKNOWN_SCALE
            experiment = loaded.experiment(scale, overrides)
            report = [experiment.report.step] if experiment.report is not None else []
            side = Side.of_graph(recipe, Graph.of([*experiment.targets, *report]))
    except MarinadeError as error:
        print(error, file=sys.stderr)
        return 1
    sys.stdout.write(side.to_json())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
