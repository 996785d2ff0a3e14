"""Why a step is not simply reused: what was forced, is missing or failed, and what differs from the last run.

Invariant: a step that is not reused has a reason; fields and functions come with both values.
"""

from collections.abc import Mapping

from executor.keys.changes import code_drift, payload_changes
from executor.keys.reason import Reason
from executor.planning.plan import PlannedStep
from executor.planning.settled import Settled
from executor.planning.unfinished import Unfinished
from executor.storage.record import Record, RunRecord


class Reasons:
    """Reasons and notes for the steps of one plan; `last` is the run that it is compared with."""

    def __init__(self, settled: Settled, unfinished: Mapping[str, Unfinished], last: RunRecord | None) -> None:
        self.settled, self.unfinished, self.last = settled, unfinished, last

    def of(self, name: str, planned: dict[str, PlannedStep]) -> tuple[Reason, ...]:
        content_key = self.settled.content_keys.get(name, "")
        reasons: list[Reason] = []
        if name in self.settled.forced:
            reasons.append(Reason(kind="forced"))
        if name in self.settled.missing:
            reasons.append(Reason(kind="missing", new=self.settled.missing[name]))
        if name in self.settled.broken:
            reasons.append(Reason(kind="missing", new=self.settled.broken[name]))
        if content_key:
            if damage := self.unfinished[name].damage:
                reasons.append(Reason(kind="missing", new=damage))
            latest = self.unfinished[name].attempts[:1]
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
        reasons += payload_changes(before["payload"], self.settled.graph.payloads[name])
        named = {reason.step for reason in reasons if reason.step}
        reasons += [reason for reason in self._input_reasons(name, planned) if reason.step not in named]
        outcome = self.last.outcome.get(name, {}) if self.last else {}
        earlier = outcome.get("content_key", "")
        if not reasons and content_key and earlier and earlier != content_key:
            reasons.append(Reason(kind="input", path="content", old=earlier, new=content_key))
        if not reasons and self.settled.results.of(name).record is not None:
            lacking = self._lacking(name)
            reasons += [Reason(kind="missing", path=f"@{at}") for at in lacking]
        if not reasons:
            finished = outcome.get("status") in ("reused", "succeeded")
            reasons.append(Reason(kind="missing", new="its artifact is gone") if finished else Reason(kind="new"))
        return tuple(reasons)

    def _lacking(self, name: str) -> list[int]:
        """Milestones wanted of a step that were not published."""
        graph, there = self.settled.graph, self.settled.results.of(name).milestones
        asked = {ref.at for consumer in graph.consumers[name] for ref in graph.inputs[consumer] if ref.step == name}
        return sorted(at for at in asked if at is not None and at not in there)

    def _input_reasons(self, name: str, planned: dict[str, PlannedStep], uncommitted: bool = True) -> list[Reason]:
        """Inputs that will run, or cannot be reached."""
        found = []
        for reference in self.settled.graph.inputs[name]:
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

    def notes(self, name: str) -> tuple[str, ...]:
        record = self.settled.results.of(name).record
        if record is None:
            return ()
        return (*self._accepted(record, self.settled.content_keys.get(name, "")), *self._drift(name, record))

    def _accepted(self, record: Record, content_key: str) -> tuple[str, ...]:
        """Why an artifact of another content key is reused."""
        if record.content_key == content_key:
            return ()
        acceptance = self.settled.store.acceptance(record.address, content_key)
        return (f"accepted: {acceptance.reason}",) if acceptance is not None else ()

    def _drift(self, name: str, record: Record) -> tuple[str, ...]:
        if self.settled.graph.steps[name].code != "pin":
            return ()
        drift = code_drift(record.code, self.settled.graph.code[name].fingerprints)
        if not drift:
            return ()
        listed = ", ".join(drift[:5]) + (f" and {len(drift) - 5} more" if len(drift) > 5 else "")
        return (f"pinned code differs from what it ran with: {listed} (bump version= to run it again)",)
