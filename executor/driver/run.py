"""A run: plan, put the run on record, schedule, and say how it ended.

outcome = run_experiment(experiment, store, recipe=recipe, scale="laptop", listener=print)
sys.exit(outcome.exit_code)
"""

import dataclasses
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from executor.driver.events import Event, Planned, StepOutcome
from executor.driver.interruption import terminated_as_interrupt
from executor.driver.resources import check, local_capacity
from executor.driver.trial import Trial
from executor.errors import MarinadeError
from executor.experiments.verdict import Verdict
from executor.external import is_raw
from executor.history.provenance import Provenance
from executor.planning.estimate import offered
from executor.planning.plan import Plan
from executor.planning.planner import Prepared, Selection, prepare
from executor.recipe import Recipe
from executor.secrets import redact_json, reveal_environment
from executor.step import Experiment, Step
from executor.storage.processes import this_process
from executor.storage.record import RunRecord
from executor.storage.stamps import new_id, now
from executor.storage.store import Store, run_slug


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How to run: nothing here enters a key. `only`, `until`, `force` and `acknowledge` take names and globs."""

    inline: bool = False
    only: tuple[str, ...] = ()
    until: tuple[str, ...] = ()
    force: tuple[str, ...] = ()
    acknowledge: tuple[str, ...] = ()
    fail_fast: bool = False
    max_parallel: int | None = None
    address: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOutcome:
    """How a run ended: every step of its plan, in the plan's order; and what came of the experiment it `declared`.

    The verdict does not change the exit code: a refuted hypothesis is a result.
    """

    plan: Plan
    run_id: str
    steps: dict[str, StepOutcome]
    wall_seconds: float
    interrupted: bool = False
    declared: dict[str, Any] = dataclasses.field(default_factory=dict)
    verdict: Verdict | None = None

    @property
    def status(self) -> str:
        """succeeded, failed, stopped (halted, or something was left undone) or interrupted."""
        if self.interrupted:
            return "interrupted"
        if any(step.status == "failed" for step in self.steps.values()):
            return "failed"
        return "succeeded" if self.exit_code == 0 else "stopped"

    @property
    def exit_code(self) -> int:
        if self.interrupted:
            return 130
        return 0 if all(step.is_good for step in self.steps.values()) else 1


def run_experiment(
    experiment: Experiment,
    store: Store,
    *,
    recipe: Recipe,
    scale: str,
    arguments: Sequence[str] = (),
    options: RunOptions = RunOptions(),
    listener: Callable[[Event], None] | None = None,
) -> RunOutcome:
    """Bring an experiment's targets up to date.

    Failing steps and Ctrl-C end up in the outcome. Raises MarinadeError, before anything starts, for machines that
    are not there, and UsageError for step names that do not exist.
    """
    began = time.monotonic()
    reveal_environment()
    tell = listener or (lambda _: None)
    if options.max_parallel is not None and options.max_parallel < 1:
        raise MarinadeError(f"--max-parallel {options.max_parallel}: at least one step has to run at a time")
    selection = Selection(force=options.force, only=options.only, until=options.until, acknowledge=options.acknowledge)
    prepared = prepare(experiment, store, recipe=recipe.name, scale=scale, selection=selection)
    todo = [
        step.step
        for step in prepared.plan.steps
        if step.action in ("run", "resume", "maybe", "wait") and not is_raw(step.step)
    ]
    if not options.address:
        check(todo, local_capacity())
    run_id = f"{new_id()}-{run_slug(recipe.name, scale)}"
    trial = Trial(prepared, experiment)
    record = _record(prepared, trial, recipe, scale, arguments, run_id)
    record = _with_left_out(record, prepared, store)
    backend = _backend(recipe, options, todo)
    try:
        if options.address:
            check(todo, backend.capacity)
        if todo:
            store.check()
        try:
            store.write_run(record)
        except OSError as error:
            raise MarinadeError(
                f"the run cannot be put on record under {store.prefix}: {error}; nothing was started"
            ) from error
        tell(Planned(plan=prepared.plan, run_id=run_id))
        from executor.driver.scheduler import Scheduler

        provenance = Provenance.of(recipe, scale, arguments, run_id, store.prefix) if todo else None
        scheduler = Scheduler(
            prepared,
            backend,
            trial.listener(run_id, tell) if todo else tell,
            provenance=provenance,
            fail_fast=options.fail_fast,
            max_parallel=1 if options.inline else options.max_parallel,
        )
        with terminated_as_interrupt():
            outcomes = scheduler.run()
    finally:
        close = getattr(backend, "close", None)
        if close is not None:
            close()
    ordered = {step.name: outcomes[step.name] for step in prepared.plan.steps}
    outcome = RunOutcome(
        plan=prepared.plan,
        run_id=run_id,
        steps=ordered,
        wall_seconds=time.monotonic() - began,
        interrupted=scheduler.interrupted,
        declared=trial.declared,
        verdict=trial.verdict(ordered),
    )
    ended = dataclasses.replace(
        record,
        ended=now(),
        outcome=record.outcome | {n: _summary(o, prepared.planned[n].step, run_id) for n, o in ordered.items()},
        status=outcome.status,
        verdict=redact_json(outcome.verdict.to_json()) if outcome.verdict is not None else {},
    )
    try:
        store.write_run(ended)
    except OSError as error:  # the artifacts are what counts; what went wrong with them is in the outcome
        print(f"the end of run {run_id} is not on record: {error}", file=sys.stderr)
    return outcome


def _backend(recipe: Recipe, options: RunOptions, todo: list[Any]) -> Any:
    if not todo:
        return _NothingToDo()
    if options.inline:
        from executor.driver.inline import InlineBackend

        return InlineBackend(todo)
    from executor.driver.ray_backend import RayBackend

    return RayBackend(recipe, options.address)


class _NothingToDo:
    """The backend of a run whose steps are all there."""

    capacity = local_capacity()

    def start(self, name: str, task: Any, resources: Any) -> None:
        raise AssertionError(f"{name} was not planned to run")

    def wait(self, timeout_seconds: float | None, deliver: Any) -> None:
        pass

    def stop(self, deliver: Any) -> None:
        pass


def _record(
    prepared: Prepared, trial: Trial, recipe: Recipe, scale: str, arguments: Sequence[str], run_id: str
) -> RunRecord:
    process = this_process()
    graph, planned = prepared.graph, {step.name: step for step in prepared.plan.steps}
    try:
        numbers = offered(graph)
    except MarinadeError:  # `estimate` and `diff` say so; a run goes on without numbers
        numbers = {}
    return RunRecord(
        id=run_id,
        recipe=recipe.name,
        scale=scale,
        arguments=redact_json(tuple(arguments)),
        started=now(),
        host=process.host,
        pid=process.pid,
        machine=process.machine,
        process_started=process.started,
        experiment={**trial.declared, "known": list(trial.known_before)},
        steps={
            name: {
                "key": graph.keys[name],
                "payload": graph.payloads[name],
                "content_key": planned[name].content_key if name in planned else "",
                "address": planned[name].address if name in planned else "",
                "amends": step.amends.name if step.amends is not None else "",
                "pinned": graph.code[name].fingerprints if step.code == "pin" else None,
                "execution_only": redact_json(graph.execution_only[name]),
                "numbers": numbers.get(name),
            }
            for name, step in graph.steps.items()
        },
    )


def _with_left_out(record: RunRecord, prepared: Prepared, store: Store) -> RunRecord:
    """What the run before this one knew of steps that this one leaves out (`--until`, `--only`) still holds."""
    planned = {step.name for step in prepared.plan.steps}
    left_out = [name for name in record.steps if name not in planned]
    before = store.last_run(record.recipe, record.scale) if left_out else None
    if before is None:
        return record
    steps, outcome = dict(record.steps), dict(record.outcome)
    for name in left_out:
        earlier = before.steps.get(name)
        if earlier is None or earlier["key"] != steps[name]["key"]:
            continue
        steps[name] = steps[name] | {field: earlier[field] for field in ("content_key", "address")}
        if name in before.outcome:
            outcome[name] = before.outcome[name]
    return dataclasses.replace(record, steps=steps, outcome=outcome)


def _summary(outcome: StepOutcome, step: Step, run_id: str) -> dict[str, Any]:
    """How a step ended; what its last attempt took of cores and GPUs, in case the attempts are deleted."""
    needed = step.resources
    return {
        "status": outcome.status,
        "address": outcome.address,
        "attempt": outcome.attempt,
        "content_key": outcome.content_key,
        "run": run_id,
        "seconds": outcome.seconds,
        "cpus": needed.cpus * needed.hosts * needed.groups,
        "gpus": needed.gpus * needed.hosts * needed.groups,
    }
