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
from collections.abc import Callable, Sequence

from executor.changes import code_drift, payload_changes
from executor.errors import MarinadeError
from executor.external import is_raw, look
from executor.graph import Graph, InputRef
from executor.plan import Action, Plan, PlannedStep, Reason
from executor.record import MilestoneRecord, Record, RunRecord
from executor.results import Results
from executor.selection import Selection, matching
from executor.step import Experiment
from executor.store import IndexEntry, Store, checked
from executor.unfinished import Unfinished, unfinished


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prepared:
    """A plan with what a scheduler goes on with.

    Attributes:
        wanted: name -> milestones wanted of it.
        superseded: name -> attempts whose records do not count (files missing; forced ones when they start).
        unindexed: reused steps whose recipe key the index does not know yet.
    """

    plan: Plan
    graph: Graph
    results: Results
    wanted: dict[str, tuple[int, ...]]
    superseded: dict[str, tuple[str, ...]]
    forced: frozenset[str]
    unindexed: tuple[str, ...] = ()

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
    return _Planner(_graph(experiment), store, recipe, scale, selection).prepare()


def survey(experiment: Experiment, store: Store, *, recipe: str, scale: str) -> Prepared:
    """All steps, also those that only execution-only fields hold, by their records: whether files are there is not
    looked at."""
    return _Planner(_graph(experiment), store, recipe, scale, Selection(until=("*",))).prepare(check_files=False)


def _graph(experiment: Experiment) -> Graph:
    return Graph.of([*experiment.targets, *([experiment.report.step] if experiment.report is not None else [])])


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
        self.content_keys: dict[str, str] = {}
        self.hits: set[str] = set()
        self.missing: dict[str, str] = {}
        self.superseded: dict[str, tuple[str, ...]] = {}
        self.broken: dict[str, str] = {}
        self._contents: dict[tuple[str, str], Record | None] = {}
        self._addresses: dict[tuple[str, str], str] = {}
        self._published: dict[str, dict[int, MilestoneRecord]] = {}
        self._present: dict[tuple[str, str, int | None], str] = {}
        self._unfinished: dict[str, Unfinished] = {}

    def prepare(self, check_files: bool = True) -> Prepared:
        self.last: RunRecord | None = self.store.last_run(self.recipe, self.scale)
        last_keys = [step["key"] for step in self.last.steps.values()] if self.last else []
        self.entries: dict[str, IndexEntry] = self.store.lookup("recipe", [*self.graph.keys.values(), *last_keys])
        self.likely = self._likely()
        self.records = self.store.records(self.likely.values())
        raw = [name for name, step in self.graph.steps.items() if is_raw(step)]
        for name, found in self.store.files.each(lambda name: look(self.graph.steps[name]), raw).items():
            self.results.of(name).raw = found
        pulled: set[str] = set()
        whole, wanted = self._wants()
        while True:
            needed = self._needed(pulled)
            self._settle(needed, whole, wanted)
            running = {name for name in needed if name not in self.hits}
            more = {ref.step for name in running for ref in self.graph.inputs[name] if ref.execution_only} - pulled
            gone = self._check_files(needed, running, whole, wanted) if check_files else {}
            if not more and not gone:
                break
            pulled |= more
            self.missing.update(gone)
        steps = self._actions(needed, whole, wanted)
        plan = Plan(recipe=self.recipe, scale=self.scale, prefix=self.store.prefix, steps=steps)
        return Prepared(
            plan=plan,
            graph=self.graph,
            results=self.results,
            wanted={name: tuple(sorted(wanted[name])) for name in needed},
            superseded=self.superseded,
            forced=self.forced,
            unindexed=tuple(name for name in needed if self._is_unindexed(name)),
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
        if name not in self.hits or record is None:
            return False
        return entry is None or (entry.content_key, entry.address) != (self.content_keys[name], record.address)

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

    def _settle(self, needed: list[str], whole: set[str], wanted: dict[str, set[int]]) -> None:
        """Find content keys and artifacts, in waves from the sources."""
        for name in needed:  # an earlier look may have found more than is there
            result = self.results.of(name)
            result.record, result.milestones = None, {}
        self.hits.clear()
        self.content_keys.clear()
        self.broken.clear()
        readers = self._readers(needed)
        left = {name: len({ref.step for ref in self.graph.inputs[name] if not ref.execution_only}) for name in needed}
        wave = [name for name in needed if left[name] == 0]
        while wave:
            self._settle_wave(wave, whole, wanted)
            following: list[str] = []
            for name in wave:
                for consumer, references in readers[name].items():
                    if all(self._is_known(ref) for ref in references):
                        left[consumer] -= 1
                        if left[consumer] == 0:
                            following.append(consumer)
            wave = following

    def _readers(self, needed: list[str]) -> dict[str, dict[str, list[InputRef]]]:
        """Step -> step that reads it -> what it reads; of a join of ten thousand each input is looked at once."""
        readers: dict[str, dict[str, list[InputRef]]] = {name: {} for name in self.graph.steps}
        for name in needed:
            for reference in self.graph.inputs[name]:
                if not reference.execution_only:
                    readers[reference.step].setdefault(name, []).append(reference)
        return readers

    def _is_known(self, reference: InputRef) -> bool:
        """True where an input can be read now: a milestone of an unfinished step, too."""
        try:
            return bool(self.results.digest(reference))
        except MarinadeError:  # the part is not there; the consumer's own turn says so
            return True

    def _settle_wave(self, wave: list[str], whole: set[str], wanted: dict[str, set[int]]) -> None:
        unknown: dict[str, str] = {}
        for name in wave:
            if is_raw(self.graph.steps[name]):
                raw = self.results.of(name).raw
                if raw is not None and raw.digest:
                    self.hits.add(name)
                continue
            try:
                key = self.content_keys[name] = self.results.content_key(name)
            except MarinadeError as error:  # the artifact at hand lacks a part: its step runs again and says so itself
                self.broken[name] = str(error)
                continue
            record = checked(self.records.get(self.likely.get(name, "")), key)
            if record is not None:
                self._contents[name, key] = record
            elif key and (name, key) not in self._contents:
                unknown[name] = key
        addresses = self.store.addresses(unknown) if unknown else {}
        for name, record in self.store.find_contents(unknown, addresses).items() if unknown else ():
            self._contents[name, unknown[name]] = record
            self._addresses[name, unknown[name]] = addresses[name]
        known = [name for name in wave if self.content_keys.get(name)]
        places = {self._milestones_at(name, self.content_keys[name]) for name in known if wanted[name]}
        self._published |= self.store.milestones_at(places - self._published.keys())
        for name in known:
            self._decide(name, self.content_keys[name], name in whole, wanted[name])

    def _decide(self, name: str, key: str, whole: bool, wanted: set[int]) -> None:
        record = self._contents[name, key]
        result = self.results.of(name)
        result.record, result.milestones = None, {}
        if wanted:
            result.milestones = self._published[self._milestones_at(name, key)]
        if name in self.forced or name in self.missing:
            if record is not None and name not in self.forced:
                self.superseded[name] = (record.attempt,)
            result.milestones = {}
            return
        if record is not None:
            result.record = record
        if (record is not None or not whole) and wanted <= set(result.milestones):
            self.hits.add(name)

    def _address(self, name: str, content_key: str) -> str:
        """Where the attempts at this work lie, which may have been begun under another name.

        An artifact that was accepted for it is other work: what is run now must not take its place.
        """
        record = self._contents.get((name, content_key))
        if record is not None and record.content_key == content_key:
            return record.address
        return self._addresses.get((name, content_key), "")

    def _milestones_at(self, name: str, content_key: str) -> str:
        """Where the milestones of this work lie; an accepted artifact's count, too."""
        record = self._contents[name, content_key]
        return record.address if record is not None else self._address(name, content_key)

    def _check_files(
        self, needed: list[str], running: set[str], whole: set[str], wanted: dict[str, set[int]]
    ) -> dict[str, str]:
        """Reused steps that must have their files, and lack some: name -> what is missing."""
        used = {ref.step for name in running for ref in self.graph.inputs[name]} | set(self.targets)
        looks: dict[str, Callable[[], str]] = {}
        gone: dict[str, str] = {}
        for name in needed:
            result = self.results.of(name)
            if name not in self.hits or name not in used or result.raw is not None:
                continue
            found: list[tuple[str, Record | MilestoneRecord]] = []
            found += [(f"milestone {at}: ", result.milestones[at]) for at in sorted(wanted[name])]
            if name in whole and result.record is not None:
                found.append(("", result.record))
            looks[name] = lambda found=found: self._absent(found)
        for name, absent in self.store.files.each(lambda name: looks[name](), looks).items():
            if absent:
                gone[name] = absent
        return gone

    def _absent(self, found: list[tuple[str, Record | MilestoneRecord]]) -> str:
        """What is missing of the first that lacks something; a look at each is taken once."""
        for prefix, record in found:
            at = record.at if isinstance(record, MilestoneRecord) else None
            if (record.address, record.attempt, at) not in self._present:
                looked = self.store.absent(record) if isinstance(record, Record) else self.store.absent_from(record)
                self._present[record.address, record.attempt, at] = looked
            if absent := self._present[record.address, record.attempt, at]:
                return prefix + absent
        return ""

    def _actions(self, needed: list[str], whole: set[str], wanted: dict[str, set[int]]) -> tuple[PlannedStep, ...]:
        planned: dict[str, PlannedStep] = {}
        owed = {name: key for name in needed if name not in self.hits and (key := self.content_keys.get(name))}
        self._unfinished = unfinished(self.store, {n: (key, self._address(n, key)) for n, key in owed.items()})
        for name in needed:
            planned[name] = self._planned(name, planned, name in whole, wanted[name])
        return tuple(planned.values())

    def _planned(self, name: str, planned: dict[str, PlannedStep], whole: bool, wanted: set[int]) -> PlannedStep:
        step, key = self.graph.steps[name], self.graph.keys[name]
        result = self.results.of(name)
        content_key = self.content_keys.get(name, "")
        address = result.record.address if result.record else self._address(name, content_key)
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
            notes=self._notes(name),
        )

    def _action(
        self, name: str, planned: dict[str, PlannedStep], content_key: str
    ) -> tuple[Action, tuple[Reason, ...]]:
        if name in self.hits:
            return "reuse", ()
        raw = self.results.of(name).raw
        if raw is not None:
            return "maybe", (Reason(kind="unreachable", path="url", new=raw.unreachable),)
        stopped = [planned[ref.step] for ref in self.graph.inputs[name] if ref.step in planned]
        reasons = self._reasons(name, planned, content_key)
        if any(other.action in ("halted", "blocked") for other in stopped):
            names = [other.name for other in stopped if other.action in ("halted", "blocked")]
            return "blocked", tuple(Reason(kind="input", step=other) for other in dict.fromkeys(names))
        if self.only and name not in self.only:
            return "blocked", reasons
        found = self._unfinished.get(name, Unfinished())
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
            uncertain = reference.step not in self.hits and not reference.execution_only
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

    def _reasons(self, name: str, planned: dict[str, PlannedStep], content_key: str) -> tuple[Reason, ...]:
        reasons: list[Reason] = []
        if name in self.forced:
            reasons.append(Reason(kind="forced"))
        if name in self.missing:
            reasons.append(Reason(kind="missing", new=self.missing[name]))
        if name in self.broken:
            reasons.append(Reason(kind="missing", new=self.broken[name]))
        if content_key:
            if damage := self._unfinished[name].damage:
                reasons.append(Reason(kind="missing", new=damage))
            latest = self._unfinished[name].attempts[:1]
            if latest and latest[0].status == "failed":
                reasons.append(Reason(kind="failed", new=latest[0].error.partition("\n")[0]))
        before = self.last.steps.get(name) if self.last else None
        if before is None:
            known = bool(reasons)
            return (
                tuple(reasons)
                if known
                else (*self._input_reasons(name, planned, uncommitted=False), Reason(kind="new"))
            )
        reasons += payload_changes(before["payload"], self.graph.payloads[name])
        named = {reason.step for reason in reasons if reason.step}
        reasons += [reason for reason in self._input_reasons(name, planned) if reason.step not in named]
        outcome = self.last.outcome.get(name, {}) if self.last else {}
        earlier = outcome.get("content_key", "")
        if not reasons and content_key and earlier and earlier != content_key:
            reasons.append(Reason(kind="input", path="content", old=earlier, new=content_key))
        if not reasons and self.results.of(name).record is not None:
            lacking = self._lacking(name)
            reasons += [Reason(kind="missing", path=f"@{at}") for at in lacking]
        if not reasons:
            finished = outcome.get("status") in ("reused", "succeeded")
            reasons.append(Reason(kind="missing", new="its artifact is gone") if finished else Reason(kind="new"))
        return tuple(reasons)

    def _lacking(self, name: str) -> list[int]:
        result = self.results.of(name)
        asked = {
            ref.at for consumer in self.graph.consumers[name] for ref in self.graph.inputs[consumer] if ref.step == name
        }
        return sorted(at for at in asked if at is not None and at not in result.milestones)

    def _input_reasons(self, name: str, planned: dict[str, PlannedStep], uncommitted: bool = True) -> list[Reason]:
        """Inputs that will run, or cannot be reached."""
        found = []
        for reference in self.graph.inputs[name]:
            other = planned.get(reference.step)
            if other is None or other.action == "reuse" or reference.execution_only:
                continue
            unreachable = [reason for reason in other.reasons if reason.kind == "unreachable"]
            if unreachable:
                found.append(
                    Reason(kind="unreachable", path=reference.path, new=unreachable[0].new, step=reference.step)
                )
            elif uncommitted:
                found.append(Reason(kind="input", path=reference.path, step=reference.step))
        return found

    def _notes(self, name: str) -> tuple[str, ...]:
        record = self.results.of(name).record
        if record is None:
            return ()
        return (*self._accepted(record, self.content_keys.get(name, "")), *self._drift(name, record))

    def _accepted(self, record: Record, content_key: str) -> tuple[str, ...]:
        """Why an artifact of another content key is reused."""
        if record.content_key == content_key:
            return ()
        acceptance = self.store.acceptance(record.address, content_key)
        return (f"accepted: {acceptance.reason}",) if acceptance is not None else ()

    def _drift(self, name: str, record: Record) -> tuple[str, ...]:
        if self.graph.steps[name].code != "pin":
            return ()
        drift = code_drift(record.code, self.graph.code[name].fingerprints)
        if not drift:
            return ()
        listed = ", ".join(drift[:5]) + (f" and {len(drift) - 5} more" if len(drift) > 5 else "")
        return (f"pinned code differs from what it ran with: {listed} (bump version= to run it again)",)
