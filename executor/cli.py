"""The command line: `marinade COMMAND RECIPE`, and `python recipes/x.py`, which is `marinade run recipes/x.py`.

Exit codes: 0 ok, 1 a step failed (or `diff` found a difference), 2 usage, 130 interrupted; `plan --exit-code` gives 3
when work remains. Each command is a file in executor.commands and is imported only when it is typed: planning and
cached runs import neither a scheduler nor anything that trains.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TextIO, cast

from executor.errors import MarinadeError, UsageError

OK, FAILED, USAGE, WORK_REMAINS, INTERRUPTED = 0, 1, 2, 3, 130


def main(argv: Sequence[str] | None = None) -> int:
    """The console script. Returns the exit code."""
    return _guarded(lambda: _command(_parser().parse_args(argv)))


def recipe_main(build: Callable[..., Any], argv: Sequence[str] | None = None) -> NoReturn:
    """What `main(build)` at the end of a recipe does: run it with the flags of `marinade run`, then exit."""

    def start() -> int:
        from executor.recipe import of

        parser = argparse.ArgumentParser(description="Run this recipe.", allow_abbrev=False)
        _recipe_flags(parser)
        _run_flags(parser)
        args = parser.parse_args(argv)
        args.command, args.recipe = "run", of(build)
        args.typed = list(sys.argv[1:] if argv is None else argv)
        return _command(args)

    sys.exit(_guarded(start))


def _command(args: argparse.Namespace) -> int:
    module = importlib.import_module(f"executor.commands.{args.command}")
    return module.execute(args)


def _guarded(action: Callable[[], int]) -> int:
    """Run a command; what a person can put right is one message, without a traceback."""
    from executor.secrets import RedactedStream, reveal_environment

    reveal_environment()
    stdout = sys.stdout
    try:
        sys.stdout = cast(TextIO, RedactedStream(stdout))
        code = action()
        sys.stdout.flush()
        return code
    except UsageError as error:
        return _say(error, USAGE)
    except MarinadeError as error:
        return _say(error, FAILED)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (`| head`) has gone: nothing to say, and the interpreter must not say it at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except OSError as error:
        return _say(MarinadeError(_storage_in_words(error)), FAILED)
    finally:
        sys.stdout = stdout


def _storage_in_words(error: OSError) -> str:
    """Recipes and steps explain their own failures, so what is left are files that the engine cannot use."""
    if error.filename is None:
        return f"{type(error).__name__}: {error}"
    return (
        f"{error.filename}: {error.strerror}; "
        "check the prefix (--prefix, else $MARINADE_PREFIX) and who may read and write there"
    )


def _say(error: MarinadeError, code: int) -> int:
    from executor.secrets import redact

    sys.stdout.flush()
    print(f"error: {redact(str(error))}", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="marinade", description="Open model-training recipes, content-hashed and cached.", allow_abbrev=False
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, words: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=words, description=words, allow_abbrev=False)

    plan = _with_recipe(add("plan", "what would run, and why"))
    plan.add_argument("--exit-code", action="store_true", help="exit with 3 when work remains")
    plan.add_argument("--force", **_several("treat these steps as changed"))
    plan.add_argument("--only", **_several("run these steps only"))
    plan.add_argument("--until", **_several("run as far as these steps"))

    _run_flags(_with_recipe(add("run", "plan and run; the same as python RECIPE")))
    status = _with_recipe(add("status", "what is there, what runs and where, what failed and why"))
    status.add_argument("steps", metavar="STEP", nargs="*", help="only these, with all their attempts: names or globs")
    _with_recipe(add("estimate", "parameters, FLOPs, memory, time of each step, before anything runs"))

    accept = _with_recipe(add("accept", "after a change that keeps the output: reuse the artifacts there are"))
    accept.add_argument("steps", metavar="STEP", nargs="+", help="names or globs")
    accept.add_argument(
        "--reason", required=True, metavar="WORDS", help="why the output stays the same (goes on record)"
    )

    verify = add("verify", "read every file and compare it with the records; exit code 1 when something is damaged")
    verify.add_argument("target", metavar="ADDRESS|RECIPE", help="an artifact, or all of a recipe's")
    _recipe_flags(verify)

    reindex = add("reindex", "write the index anew from records and acceptances")
    _place_flags(reindex)

    gc = add("gc", "list what neither these recipes nor recent runs need, and why; --delete deletes it")
    gc.add_argument("recipes", metavar="RECIPE", nargs="+", help="recipes whose artifacts are kept")
    gc.add_argument("--keep", type=_days, default=30.0, metavar="DAYS", help="keep what runs of these days name (30)")
    gc.add_argument("--delete", action="store_true", help="delete what is listed; without it nothing is touched")
    _recipe_flags(gc, several_scales=True)

    dag = _with_recipe(add("dag", "the graph of steps"))
    form = dag.add_mutually_exclusive_group()
    form.add_argument("--mermaid", action="store_true", help="as a Mermaid flowchart")
    form.add_argument("--dot", action="store_true", help="as Graphviz DOT")

    diff = add("diff", "what differs between two recipes, runs or artifacts, causes first; exit code 1 when they do")
    diff.add_argument("a", metavar="A", help="a recipe, an artifact's address or path, or a record's path")
    diff.add_argument("b", metavar="B", nargs="?", help="the same; without it A is compared with its last run")
    _recipe_flags(diff)
    diff.add_argument("--markdown", action="store_true", help="for a pull request")
    diff.add_argument("--changed", action="store_true", help="A [B] are git revisions: every recipe that differs")
    diff.add_argument("--full", action="store_true", help="cut no value, list or code")
    diff.add_argument("--metrics", **_several("metrics of these steps side by side, where both sides have run"))
    diff.add_argument("--picture", default="", metavar="FILE", help="draw two runs' metrics (svg, png, pdf)")

    listed = add("experiments", "hypotheses, how their runs ended, the verdicts, what they cost; newest first")
    listed.add_argument("recipes", metavar="RECIPE", nargs="*", help="only these")
    listed.add_argument("--scale", default="", help="only runs of this scale")
    listed.add_argument("--markdown", action="store_true", help="for an issue")
    _place_flags(listed)

    lineage = _with_artifact(add("lineage", "from an artifact back to recipe, config, data and code"))
    lineage.add_argument("--crate", default="", metavar="FOLDER", help="write an RO-Crate there, with all records")
    reproduce = _with_artifact(
        add("reproduce", "build an artifact's recipe again as it was: do the keys agree? exit code 1 when they do not")
    )
    reproduce.add_argument("--repository", default=".", metavar="PATH", help="a clone that has the commit (default: .)")
    reproduce.add_argument(
        "--set", dest="overrides", action="append", default=[], metavar="PATH=VALUE",
        help="set a field of the settings, besides what is on record",
    )  # fmt: skip
    reproduce.add_argument("--run", action="store_true", help="run it in another store and compare what it writes")
    reproduce.add_argument("--inline", action="store_true", help="with --run: one step at a time, without Ray")
    reproduce.add_argument("--to", default="", metavar="PREFIX", help="that store (default: PREFIX-reproduced)")
    why = _with_artifact(add("why", "the shortest path from an artifact to one of its ancestors"))
    why.add_argument("ancestor", metavar="ANCESTOR", help="step name, address or path of the ancestor")
    return parser


def _with_recipe(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("recipe", metavar="RECIPE", help="recipes/x.py or recipes.x")
    _recipe_flags(parser)
    return parser


def _with_artifact(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("address", metavar="ADDRESS", help="address or path of an artifact, or of a checkpoint in it")
    _place_flags(parser)
    return parser


def _place_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--prefix", help="where artifacts lie (default: $MARINADE_PREFIX, else artifacts/)")
    parser.add_argument("--json", action="store_true", help="for scripts")


def _recipe_flags(parser: argparse.ArgumentParser, several_scales: bool = False) -> None:
    scale: dict[str, Any] = {"action": "append", "default": []} if several_scales else {"default": "laptop"}
    words = "; repeatable" if several_scales else ""
    parser.add_argument("--scale", **scale, help=f"size of the run (default: laptop; full is the real thing){words}")
    parser.add_argument(
        "--set", dest="overrides", action="append", default=[], metavar="PATH=VALUE", help="set a field of the settings"
    )
    _place_flags(parser)


def _run_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--inline", action="store_true", help="run in this process, one step at a time, for a debugger")
    parser.add_argument("--only", **_several("run these steps only"))
    parser.add_argument("--until", **_several("run as far as these steps"))
    parser.add_argument("--force", **_several("run these steps even where they are up to date"))
    parser.add_argument("--acknowledge", **_several("go on with these halted steps"))
    parser.add_argument("--fail-fast", action="store_true", help="stop everything at the first failure")
    parser.add_argument("--max-parallel", type=_positive, metavar="N", help="at most N steps at once")
    parser.add_argument("--address", default="", metavar="RAY", help="address of a Ray cluster (default: a local one)")


def _several(words: str) -> dict[str, Any]:
    return {"action": "append", "default": [], "metavar": "STEP", "help": f"{words}: names or globs, repeatable"}


def _days(text: str) -> float:
    try:
        days = float(text)
    except ValueError:
        days = -1.0
    if not 0 <= days < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of days")
    return days


def _positive(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a count of steps: a whole number from 1 on")
    return number
