"""What most commands begin with: the recipe, its experiment, the store."""

import argparse
import contextlib
import dataclasses
import sys
import traceback
from collections.abc import Iterator, Sequence

from executor.errors import MarinadeError, UsageError
from executor.experiments.experiment import graph_of
from executor.keys.graph import Graph
from executor.recipe import Recipe, load
from executor.step import Experiment
from executor.storage.store import Store, default_prefix


@dataclasses.dataclass(frozen=True, kw_only=True)
class Opened:
    """A recipe as asked for on the command line."""

    recipe: Recipe
    scale: str
    experiment: Experiment
    prefix: str

    @property
    def store(self) -> Store:
        return Store(self.prefix)

    def graph(self) -> Graph:
        """All steps that the experiment's targets depend on."""
        return graph_of(self.experiment)


def open_recipe(args: argparse.Namespace, target: str | Recipe | None = None) -> Opened:
    """The recipe that `args` (or `target`) names, at the scale and with the settings of `args`."""
    wanted = target if target is not None else args.recipe
    shown = wanted if isinstance(wanted, str) else wanted.name
    recipe = load_recipe(wanted) if isinstance(wanted, str) else wanted
    with _explained(f"{shown} cannot be built at scale {args.scale}"):
        experiment = recipe.experiment(args.scale, args.overrides)
    return Opened(recipe=recipe, scale=args.scale, experiment=experiment, prefix=args.prefix or default_prefix(recipe))


def load_recipe(typed: str) -> Recipe:
    """The recipe of a path or module name; what it raises while it is imported is in the UsageError."""
    with _explained(f"{typed} cannot be imported"):
        return load(typed)


@contextlib.contextmanager
def _explained(problem: str) -> Iterator[None]:
    """What a recipe raises is shown from its own first frame on; what the engine has to say stays as it is."""
    try:
        with contextlib.redirect_stdout(sys.stderr):  # what a recipe prints is no result of the command
            yield
    except MarinadeError:
        raise
    except Exception as error:
        from executor.render.frames import own_frames

        text = own_frames("".join(traceback.format_exception(error)))
        raise UsageError(f"{problem}:\n{text}") from error


def split_names(values: Sequence[str]) -> tuple[str, ...]:
    """`--only a,b --only c` -> a, b, c."""
    return tuple(name for value in values for name in value.split(",") if name)
