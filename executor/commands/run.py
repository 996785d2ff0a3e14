"""`marinade run`: plan, run, and say what came of it."""

import argparse
import contextlib
import shlex
import sys
from typing import IO, Any

from executor.commands.opening import open_recipe, split_names
from executor.driver import events
from executor.driver.run import RunOptions, RunOutcome, run_experiment
from executor.render import outcome as texts
from executor.render.plan import plan_text
from executor.render.terminal import Terminal
from executor.render.verdict import verdict_text
from executor.step import Experiment


def execute(args: argparse.Namespace) -> int:
    opened = open_recipe(args)
    options = RunOptions(
        inline=args.inline,
        only=split_names(args.only),
        until=split_names(args.until),
        force=split_names(args.force),
        acknowledge=split_names(args.acknowledge),
        fail_fast=args.fail_fast,
        max_parallel=args.max_parallel,
        address=args.address,
    )
    typed = getattr(args, "typed", None)
    view = _View(None if args.json else sys.stdout)
    try:
        # What steps print (they run in this process with --inline) is no result of this command.
        with contextlib.redirect_stdout(sys.stderr):
            outcome = run_experiment(
                opened.experiment,
                opened.store,
                recipe=opened.recipe,
                scale=opened.scale,
                arguments=sys.argv[1:] if typed is None else typed,
                options=options,
                listener=view,
            )
    finally:
        view.close()
    report = _report_path(opened.experiment, outcome)
    if args.json:
        from executor.render.as_json import dumps, outcome_json

        print(dumps(outcome_json(outcome, report)))
        return outcome.exit_code
    _tell(outcome, report, view, _again(args, typed, opened.recipe.name))
    return outcome.exit_code


def _tell(outcome: RunOutcome, report: str, view: "_View", command: str) -> None:
    out, errors = Terminal.of(sys.stdout), Terminal.of(sys.stderr)
    if outcome.steps and all(step.status == "reused" for step in outcome.steps.values()) and not view.began:
        sys.stdout.write(texts.nothing_to_do_text(outcome, report))
        return
    failures = texts.failures_text(outcome, errors)
    if failures:
        sys.stderr.write("\n" + failures)
        sys.stderr.flush()
    if report and outcome.exit_code == 0:
        text = _read_text(report)
        if text:
            sys.stdout.write("\n" + text.rstrip() + "\n")
    sys.stdout.write("\n" + texts.places_text(outcome, report, out))
    if outcome.verdict is not None and outcome.verdict.criteria:
        declared = outcome.declared
        sys.stdout.write("\n" + verdict_text(outcome.verdict, declared["hypothesis"], declared["issue"], out))
    sys.stdout.flush()
    sys.stderr.write(texts.next_text(outcome, command))


def _report_path(experiment: Experiment, outcome: RunOutcome) -> str:
    """Where the experiment's report lies; empty when it has none, or not yet."""
    report = experiment.report
    if report is None:
        return ""
    step = outcome.steps.get(report.step.name)
    if step is None or step.status not in ("reused", "succeeded") or not step.location:
        return ""
    return f"{step.location}/{report.part}" if report.part else step.location


def _read_text(location: str) -> str:
    from executor.storage.places import open_files

    folder, _, name = location.rpartition("/")
    data = open_files(folder).read(name)
    return data.decode(errors="replace") if data is not None else ""


def _again(args: argparse.Namespace, typed: list[str] | None, recipe: str) -> str:
    if typed is None:
        return "marinade " + shlex.join(sys.argv[1:])
    return " ".join(["python", shlex.quote(recipe), *map(shlex.quote, typed)])


class _View:
    """The listener of a run: writes the plan to `plans` when there is something to do, then shows progress.

    `began` is True once a step started.
    """

    def __init__(self, plans: IO[str] | None) -> None:
        self.began = False
        self._plans = plans
        self._reused: set[str] = set()
        self._progress: Any = None

    def __call__(self, event: Any) -> None:
        if isinstance(event, events.Planned):
            if not set(event.plan.counts()) - {"reuse"}:
                return
            self._reused = {step.name for step in event.plan.steps if step.action == "reuse"}
            if self._plans is not None:
                self._plans.write(plan_text(event.plan, Terminal.of(self._plans), compact=True) + "\n")
                self._plans.flush()
            # Open before the first step starts: starting the workers takes seconds, and they should not be silent.
            self._progress = self._open(len(event.plan.steps) - len(self._reused))
            return
        if self._progress is None or (isinstance(event, events.StepReused) and event.name in self._reused):
            return
        self.began = True
        self._progress(event)

    def close(self) -> None:
        if self._progress is not None:
            self._progress.close()

    def _open(self, total: int) -> Any:
        terminal = Terminal.of(sys.stderr)
        if not terminal.live:
            from executor.render.progress import PlainProgress

            return PlainProgress(sys.stderr, terminal)
        from executor.render.live import LiveProgress

        return LiveProgress(sys.stderr, terminal, total)
