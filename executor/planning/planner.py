"""What would run, and why: a graph and what the store holds, as a Plan.

The store is read in a few batches. Steps are looked at in waves, inputs first: once the inputs of a step are known so
is its content key, and with it whether there is an artifact. What depends on a step that will run cannot be known yet:
it is `maybe` where the same work was done before, else `run`.

    reuse   there is an artifact of this content key, and its files are there where that matters
    run     nothing to use; resume: an unfinished attempt left files; wait: another process is at it
    maybe   depends on whether an input comes out the same
    halted  a guard paused it; blocked: an input is halted, or was left out by --only
"""

import dataclasses
import functools
from collections.abc import Sequence

from executor.experiments.experiment import graph_of, observed
from executor.external import is_raw, look
from executor.keys.changes import payload_changes
from executor.keys.graph import Graph
from executor.keys.reason import Reason
from executor.planning.plan import Action, Plan, PlannedStep
from executor.planning.reasons import Reasons
from executor.planning.results import Results
from executor.planning.selection import Selection, matching
from executor.planning.settled import Settled
from executor.planning.unfinished import Unfinished, unfinished
from executor.step import Experiment
from executor.storage.index import IndexEntry
from executor.storage.record import RunRecord
from executor.storage.store import Store


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prepared:
    """A plan with what a scheduler goes on with.

    Attributes:
        wanted: name -> milestones wanted of it.
        superseded: name -> attempts whose records do not count (files missing; forced ones when they start).
        unindexed: reused steps whose recipe key the index does not know yet.
        made_before: steps of the graph that have an artifact, or had one, by the index.
    """

    plan: Plan
    graph: Graph
    results: Results
    wanted: dict[str, tuple[int, ...]]
    superseded: dict[str, tuple[str, ...]]
    forced: frozenset[str]
    unindexed: tuple[str, ...] = ()
    made_before: frozenset[str] = frozenset()

    @functools.cached_property
    def planned(self) -> dict[str, PlannedStep]:
        """The plan's steps by name, in its order."""
        return {step.name: step for step in self.plan.steps}


def make_plan(
    experiment: Experiment,
    store: Store,
    *,
    recipe: str,
    scale: str,
    force: Sequence[str] = (),
    only: Sequence[str] = (),
    until: Sequence[str] = (),
    acknowledge: Sequence[str] = (),
) -> Plan:
    """Every step with an action and reasons. `recipe` and `scale` say which earlier run to compare with."""
    selection = Selection(force=tuple(force), only=tuple(only), until=tuple(until), acknowledge=tuple(acknowledge))
    return prepare(experiment, store, recipe=recipe, scale=scale, selection=selection).plan


def prepare(experiment: Experiment, store: Store, *, recipe: str, scale: str, selection: Selection) -> Prepared:
    graph = graph_of(experiment)
    prepared = _Planner(graph, store, recipe, scale, selection).prepare(observed=observed(experiment, graph))
    return dataclasses.replace(prepared, plan=dataclasses.replace(prepared.plan, issue=experiment.issue))


def survey(experiment: Experiment, store: Store, *, recipe: str, scale: str) -> Prepared:
    """All steps, also those that only execution-only fields hold, by their records: whether files are there is not
    looked at."""
    return _Planner(graph_of(experiment), store, recipe, scale, Selection(until=("*",))).prepare(check_files=False)


class _Planner:
    def __init__(self, graph: Graph, store: Store, recipe: str, scale: str, selection: Selection) -> None:
        self.graph, self.store, self.recipe, self.scale = graph, store, recipe, scale
        self.forced = matching(selection.force, graph, "--force")
        self.only = matching(selection.only, graph, "--only")
        self.acknowledged = matching(selection.acknowledge, graph, "--acknowledge")
        until = matching(selection.until, graph, "--until")
        chosen = until or self.only or frozenset(graph.targets)
        self.targets = tuple(name for name in graph.steps if name in chosen)
        self.results = Results(graph, store)
        self.settled = Settled(graph, store, self.results, self.forced)
        self.unfinished: dict[str, Unfinished] = {}

    def prepare(self, check_files: bool = True, observed: Sequence[str] = ()) -> Prepared:
        """The plan. Results of `observed` steps are looked up too, where no step of the plan needs them."""
        self.last: RunRecord | None = self.store.last_run(self.recipe, self.scale)
        last_keys = [step["key"] for step in self.last.steps.values()] if self.last else []
        self.entries: dict[str, IndexEntry] = self.store.index.lookup("recipe", [*self.graph.keys.values(), *last_keys])
        self.settled.read(self._likely())
        raw = [name for name, step in self.graph.steps.items() if is_raw(step)]
        for name, found in self.store.files.each(lambda name: look(self.graph.steps[name]), raw).items():
            self.results.of(name).raw = found
        pulled: set[str] = set()
        whole, wanted = self._wants()
        while True:
            needed = self._needed(pulled)
            looked_up = self._needed({*pulled, *observed}) if observed else needed
            self.settled.settle(looked_up, whole, wanted)
            read = [ref for name in needed if name not in self.settled.hits for ref in self.graph.inputs[name]]
            more = {ref.step for ref in read if ref.execution_only} - pulled
            used = {ref.step for ref in read}.union(self.targets)
            gone = self.settled.check_files(needed, used, whole, wanted) if check_files else {}
            if not more and not gone:
                break
            pulled |= more
            self.settled.missing.update(gone)
        steps = self._actions(needed, whole, wanted)
        plan = Plan(recipe=self.recipe, scale=self.scale, prefix=self.store.prefix, steps=steps)
        return Prepared(
            plan=plan,
            graph=self.graph,
            results=self.results,
            wanted={name: tuple(sorted(wanted[name])) for name in needed},
            superseded=self.settled.superseded,
            forced=self.forced,
            unindexed=tuple(name for name in needed if self._is_unindexed(name)),
            made_before=frozenset(name for name, key in self.graph.keys.items() if key in self.entries),
        )

    def _likely(self) -> dict[str, str]:
        """Where each step's artifact most likely is: by its recipe key, else where the last run found or put it.

        Behind a step that changed and wrote the same, all recipe keys are new and all artifacts are where they were.
        """
        likely: dict[str, str] = {}
        for name, key in self.graph.keys.items():
            entry = self.entries.get(key)
            before = self.last.outcome.get(name, {}).get("address", "") if self.last else ""
            if entry is not None or before:
                likely[name] = entry.address if entry is not None else before
        return likely

    def _is_unindexed(self, name: str) -> bool:
        record = self.results.of(name).record
        entry = self.entries.get(self.graph.keys[name])
        if name not in self.settled.hits or record is None:
            return False
        return entry is None or (entry.content_key, entry.address) != (self.settled.content_keys[name], record.address)

    def _needed(self, pulled: set[str]) -> list[str]:
        """Targets and all they depend on, in order; what only an execution-only field holds, if it was pulled."""
        seen: set[str] = set()
        waiting = [*self.targets, *pulled]
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                waiting += [ref.step for ref in self.graph.inputs[name] if not ref.execution_only]
        return [name for name in self.graph.steps if name in seen]

    def _wants(self) -> tuple[set[str], dict[str, set[int]]]:
        """Steps wanted as a whole, and the milestones wanted of each, by the recipe; a selection widens neither."""
        whole, wanted = set(self.graph.targets), {name: set[int]() for name in self.graph.steps}
        for references in self.graph.inputs.values():
            for reference in references:
                if reference.at is None:
                    whole.add(reference.step)
                else:
                    wanted[reference.step].add(reference.at)
        return whole, wanted

    def _actions(self, needed: list[str], whole: set[str], wanted: dict[str, set[int]]) -> tuple[PlannedStep, ...]:
        planned: dict[str, PlannedStep] = {}
        owed = {
            name: key
            for name in needed
            if name not in self.settled.hits and (key := self.settled.content_keys.get(name))
        }
        self.unfinished = unfinished(self.store, {n: (key, self.settled.address(n, key)) for n, key in owed.items()})
        self.reasons = Reasons(self.settled, self.unfinished, self.last)
        for name in needed:
            planned[name] = self._planned(name, planned, name in whole, wanted[name])
        return tuple(planned.values())

    def _planned(self, name: str, planned: dict[str, PlannedStep], whole: bool, wanted: set[int]) -> PlannedStep:
        step, key = self.graph.steps[name], self.graph.keys[name]
        result = self.results.of(name)
        content_key = self.settled.content_keys.get(name, "")
        address = result.record.address if result.record else self.settled.address(name, content_key)
        location = ""
        if result.raw is not None:
            location = self.graph.payloads[name]["config"].get("url", result.raw.location)
        elif result.record is not None:
            location = self.store.location(result.record.address, result.record.attempt)
        inputs = tuple(dict.fromkeys(ref.step for ref in self.graph.inputs[name]))
        action, reasons = self._action(name, planned, content_key)
        stop_at = None
        if action != "reuse" and wanted and (not whole or result.record is not None):
            stop_at = max(wanted)
        return PlannedStep(
            step=step,
            name=name,
            key=key,
            content_key=content_key,
            address=address,
            location=location,
            action=action,
            reasons=reasons,
            inputs=inputs,
            stop_at=stop_at,
            payload=self.graph.payloads[name],
            notes=self.reasons.notes(name),
        )

    def _action(
        self, name: str, planned: dict[str, PlannedStep], content_key: str
    ) -> tuple[Action, tuple[Reason, ...]]:
        if name in self.settled.hits:
            return "reuse", ()
        raw = self.results.of(name).raw
        if raw is not None:
            return "maybe", (Reason(kind="unreachable", path="url", new=raw.unreachable),)
        stopped = [planned[ref.step] for ref in self.graph.inputs[name] if ref.step in planned]
        reasons = self.reasons.of(name, planned)
        if any(other.action in ("halted", "blocked") for other in stopped):
            names = [other.name for other in stopped if other.action in ("halted", "blocked")]
            return "blocked", tuple(Reason(kind="input", step=other) for other in dict.fromkeys(names))
        if self.only and name not in self.only:
            return "blocked", reasons
        found = self.unfinished.get(name, Unfinished())
        if content_key:
            attempts = found.attempts
            if attempts and attempts[0].status == "halted" and name not in self.acknowledged | self.forced:
                return "halted", (*reasons, Reason(kind="failed", new=attempts[0].error))
            if found.holder is not None:
                return "wait", reasons
            if name not in self.forced and found.left_files:
                return "resume", reasons
            return "run", reasons
        if any(reason.kind == "unreachable" for reason in reasons):
            return "maybe", reasons
        return ("maybe" if self._may_match(name, planned) else "run"), reasons

    def _may_match(self, name: str, planned: dict[str, PlannedStep]) -> bool:
        """True where an input's new content could lead to an artifact that is there already."""
        if name in self.forced:
            return False
        for reference in self.graph.inputs[name]:
            source = self.graph.steps[reference.step]
            uncertain = reference.step not in self.settled.hits and not reference.execution_only
            if (
                uncertain
                and source.digest == "opaque"
                and not reference.part
                and planned[reference.step].action != "maybe"
            ):
                return False
        if self.graph.keys[name] in self.entries:
            return True
        before = self.last.steps.get(name) if self.last else None
        if before is None or before["key"] not in self.entries:
            return False
        return all(change.kind == "input" for change in payload_changes(before["payload"], self.graph.payloads[name]))
