"""All runs as experiments: what was expected of each, how it ended, what came of it and what it cost.

Read from records alone: neither a recipe is imported nor a step looked at. A run that did nothing is counted, not
listed, unless what was declared had changed; one that failed, was stopped or killed stays listed for good, since
nothing in the engine deletes the record of a run.
"""

import dataclasses
import datetime
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from executor.experiments.experiment import outcomes_read
from executor.experiments.prediction import Prediction, predictions
from executor.experiments.verdict import Verdict
from executor.storage.inventory import addresses
from executor.storage.processes import Process, is_alive
from executor.storage.record import Record, RunRecord
from executor.storage.store import Store

Status = Literal["running", "succeeded", "failed", "stopped", "interrupted", "abandoned", "unknown"]

_NOTHING_DONE = ("reused", "not_run")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cost:
    """What a run took, of the steps that it ran itself; reused ones cost nothing.

    Attributes:
        wall_seconds: of the run; None where it never said that it ended.
        steps, attempts: how many.
        step_seconds: of all attempts, failed ones too.
        gpu_hours: GPUs of the attempts times their hours; cpu_hours: cores times hours of attempts without GPUs.
        tokens, flops: of the steps that ended, as their configs offer them.
        cut_off: attempts that never said how they ended: their time is in no sum.
    """

    wall_seconds: float | None = None
    steps: int = 0
    attempts: int = 0
    step_seconds: float = 0.0
    gpu_hours: float = 0.0
    cpu_hours: float = 0.0
    tokens: float = 0
    flops: float = 0
    cut_off: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """One run.

    Attributes:
        status: abandoned: it never ended and its process is gone; unknown: it runs, or ran, on a machine that cannot be
            asked from here.
        declared: hypothesis, issue, criteria and prediction as they were on record before it started.
        verdict: None where nothing was declared, and where the run did not come to its end.
        notes: what a reader should know before believing the verdict, in words.
    """

    run: str
    recipe: str
    scale: str
    arguments: tuple[str, ...]
    started: str
    ended: str
    host: str
    pid: int
    status: Status
    declared: Mapping[str, Any]
    verdict: Verdict | None
    prediction: Prediction | None
    cost: Cost
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Group:
    """The runs of one recipe at one scale, newest first; `idle` is how many more there were that had nothing to do."""

    recipe: str
    scale: str
    entries: tuple[Entry, ...]
    idle: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiments:
    """Groups, the one that ran last first. `unreadable`: path -> what is wrong with a run's file."""

    prefix: str
    groups: tuple[Group, ...]
    unreadable: Mapping[str, str]


def experiments(store: Store) -> Experiments:
    """Everything on record under a prefix."""
    runs = store.runs()
    said = predictions(store, [run.id for run in runs if run.experiment.get("prediction")])
    attempts = _attempts(store, runs)
    together: dict[tuple[str, str], list[RunRecord]] = {}
    for run in runs:
        together.setdefault((run.recipe, run.scale), []).append(run)
    groups = [_group(found, said, attempts) for found in together.values()]
    groups.sort(key=lambda group: group.entries[0].run if group.entries else "", reverse=True)
    return Experiments(prefix=store.prefix, groups=tuple(groups), unreadable=dict(store.unreadable))


def _attempts(store: Store, runs: Iterable[RunRecord]) -> dict[str, list[Record]]:
    """Run -> the attempts that it made. Of a run that never ended it is not known at which addresses: all are looked
    at that bear the names of its steps."""
    wanted: dict[str, None] = {}
    lost: set[str] = set()
    for run in runs:
        if run.ended:
            found = [item["address"] for item in _own(run).values() if item["status"] not in _NOTHING_DONE]
        else:
            found = [step["address"] for step in run.steps.values()]
            lost |= {name for name, step in run.steps.items() if not step["address"]}
        wanted |= dict.fromkeys(address for address in found if address)
    if lost:
        wanted |= dict.fromkeys(address for address in addresses(store) if address.rpartition("-")[0] in lost)
    made: dict[str, list[Record]] = {}
    for records in store.attempts_at(wanted).values():
        for record in records:
            made.setdefault(str(record.provenance.get("run", "")), []).append(record)
    return made


def _own(run: RunRecord) -> dict[str, dict[str, Any]]:
    """The outcome without steps that the run left out, which keep the outcome of an earlier one."""
    return {name: item for name, item in run.outcome.items() if item.get("run", run.id) == run.id}


def _group(
    runs: Sequence[RunRecord], said: Mapping[str, Prediction], attempts: Mapping[str, Sequence[Record]]
) -> Group:
    """`runs` oldest first."""
    entries: list[Entry] = []
    idle, read = 0, False
    before: RunRecord | None = None
    told: Prediction | None = None
    for run in runs:
        made, prediction = attempts.get(run.id, ()), said.get(run.id)
        declared_anew = before is None or _hash(before) != _hash(run)
        if _did_nothing(run, made) and not (declared_anew and _hash(run)):
            idle += 1
        else:
            notes = _declaration_notes(run, before, read) + _prediction_notes(run, prediction, told, read)
            entries.append(_entry(run, made, prediction, notes))
        before, told = run, prediction or told
        read = read or _has_read(run)
    return Group(recipe=runs[0].recipe, scale=runs[0].scale, entries=tuple(reversed(entries)), idle=idle)


def _entry(run: RunRecord, made: Sequence[Record], prediction: Prediction | None, notes: tuple[str, ...]) -> Entry:
    status = _status(run)
    if status == "unknown":
        notes = (*notes, f"it never said that it ended, and {run.host or 'its machine'} cannot be asked from here")
    return Entry(
        run=run.id,
        recipe=run.recipe,
        scale=run.scale,
        arguments=run.arguments,
        started=run.started,
        ended=run.ended,
        host=run.host,
        pid=run.pid,
        status=status,
        declared=run.experiment,
        verdict=Verdict.from_json(run.verdict) if run.verdict else None,
        prediction=prediction,
        cost=_cost(run, status, made),
        notes=notes,
    )


def _status(run: RunRecord) -> Status:
    if run.ended:
        return run.status or _status_of_outcome(run)  # type: ignore[return-value]
    if not run.machine:
        return "unknown"
    alive = is_alive(Process(host=run.host, machine=run.machine, pid=run.pid, started=run.process_started))
    return "unknown" if alive is None else "running" if alive else "abandoned"


def _status_of_outcome(run: RunRecord) -> Status:
    """Of a run whose record is older than the field."""
    statuses = {item["status"] for item in run.outcome.values()}
    for status in ("interrupted", "failed"):
        if status in statuses:
            return status
    return "stopped" if statuses & {"halted", "not_run"} else "succeeded"


def _did_nothing(run: RunRecord, made: Sequence[Record]) -> bool:
    if made or not run.ended or run.status not in ("succeeded", ""):
        return False
    return all(item["status"] in _NOTHING_DONE for item in _own(run).values())


def _hash(run: RunRecord) -> str:
    """Of what was declared; empty where nothing was, and in records older than the field."""
    declared = any(run.experiment.get(name) for name in ("hypothesis", "success", "prediction"))
    return run.experiment.get("hash", "") if declared else ""


def _has_read(run: RunRecord) -> bool:
    """Whether results that the criteria are about were known to this run."""
    if run.experiment.get("known"):
        return True
    return any(criterion["comparisons"] for criterion in run.verdict.get("criteria", ()))


def _declaration_notes(run: RunRecord, before: RunRecord | None, read: bool) -> tuple[str, ...]:
    known = run.experiment.get("known", ())
    if not _hash(run) or not outcomes_read(run.experiment):
        return ()
    if before is None or not _hash(before):
        return (f"declared when results of {_listed(known)} were there already",) if known else ()
    if _hash(before) == _hash(run):
        return ()
    words = {"hypothesis": "hypothesis", "success": "criteria", "prediction": "prediction"}
    changed = [word for name, word in words.items() if run.experiment.get(name) != before.experiment.get(name)]
    by_then = "results were known by then" if known or read else "no results were known yet"
    return (f"{_listed(changed)} changed since the run of {_clock(before.started)}; {by_then}",)


def _prediction_notes(
    run: RunRecord, prediction: Prediction | None, told: Prediction | None, read: bool
) -> tuple[str, ...]:
    if prediction is None or told is None or prediction.value == told.value:
        return ()
    by_then = "results were known by then" if run.experiment.get("known") or read else "no results were known yet"
    return (f"the prediction was {told.value:.6g} before, on record {_clock(told.at)}; {by_then}",)


def _cost(run: RunRecord, status: Status, made: Sequence[Record]) -> Cost:
    taken = [_taken(record, status) for record in made]
    there = {record.name for record in made}
    ended = {record.name for record in made if record.status in ("succeeded", "stopped_at_milestone")}
    for name, item in _own(run).items():  # what remains of attempts that were deleted
        if name not in there and item["status"] not in _NOTHING_DONE and item.get("seconds"):
            taken.append((item["seconds"], item["gpus"], item["cpus"]))
            there.add(name)
            ended |= {name} if item["status"] in ("succeeded", "stopped_at_milestone") else set()
    numbers = [run.steps.get(name, {}).get("numbers") or {} for name in sorted(ended)]
    return Cost(
        wall_seconds=_wall_seconds(run, status),
        steps=len(there),
        attempts=len(taken),
        step_seconds=sum(seconds or 0.0 for seconds, _, _ in taken),
        gpu_hours=sum((seconds or 0.0) * gpus / 3600 for seconds, gpus, _ in taken),
        cpu_hours=sum((seconds or 0.0) * cpus / 3600 for seconds, gpus, cpus in taken if not gpus),
        tokens=sum(offered.get("tokens", 0) for offered in numbers),
        flops=sum(offered.get("flops_total", 0) for offered in numbers),
        cut_off=sum(seconds is None for seconds, _, _ in taken),
    )


def _taken(record: Record, status: Status) -> tuple[float | None, int, int]:
    """Seconds (None where that is not known), GPUs and cores of an attempt, over all its hosts."""
    given = record.resources
    hosts = given.get("hosts", 1) * given.get("groups", 1)
    return _seconds(record, status), given.get("gpus", 0) * hosts, given.get("cpus", 0) * hosts


def _seconds(record: Record, status: Status) -> float | None:
    """What an attempt took; None where that is not known."""
    if record.status == "running" and status == "running":
        return max(0.0, time.time() - _moment(record.started))
    return record.wall_seconds if record.ended and record.wall_seconds else None


def _wall_seconds(run: RunRecord, status: Status) -> float | None:
    if run.ended:
        return max(0.0, _moment(run.ended) - _moment(run.started))
    return max(0.0, time.time() - _moment(run.started)) if status == "running" else None


def _listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _clock(moment: str) -> str:
    return moment[:19].replace("T", " ")


def _moment(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()
