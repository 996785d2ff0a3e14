"""Accepting a change that keeps the output: a step's new key is mapped to its old artifact, on the record.

    marinade accept recipes/x.py 'tokens/*' --reason "renamed a helper; the tokens are the same"

A step can be accepted once its inputs are committed, since only then its content key is known; accepting an input makes
the next step's known, so a whole chain can be accepted at once.
Invariant: nothing is accepted of which the artifact is gone, and nothing without a reason.
"""

import getpass
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from executor.comparing.fields import Change
from executor.comparing.side import Names, Side, payload_text
from executor.errors import MarinadeError, UsageError
from executor.keys.changes import payload_changes
from executor.keys.graph import Graph, InputRef
from executor.planning.planner import Prepared, survey
from executor.planning.selection import matching
from executor.secrets import redact_json
from executor.step import Experiment
from executor.storage.acceptance import Acceptance
from executor.storage.lease import holder
from executor.storage.record import Record, RunRecord
from executor.storage.stamps import now
from executor.storage.store import Store


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """What one `accept` did: acceptances in graph order, and the chosen steps that needed none."""

    recipe: str
    scale: str
    prefix: str
    acceptances: tuple[Acceptance, ...]
    up_to_date: tuple[str, ...]


def accept(
    experiment: Experiment, store: Store, *, recipe: str, scale: str, steps: Sequence[str], reason: str
) -> Accepted:
    """Map the new content keys of `steps` (names or globs) to the artifacts that the recipe's runs made of them.

    Raises UsageError, before anything is written for that step, where there is nothing to accept: no reason, no earlier
    artifact or its files are gone, inputs that are not committed, or nothing differs.
    """
    if not reason.strip():
        raise UsageError(
            '--reason is empty: say why the output stays the same, for example --reason "renamed a helper"'
        )
    prepared = survey(experiment, store, recipe=recipe, scale=scale)
    chosen = matching(steps, prepared.graph, "accept")
    accepting = _Accepting(prepared, store, recipe, scale, reason.strip())
    done: list[Acceptance] = []
    up_to_date: list[str] = []
    for name in prepared.graph.steps:
        if accepting.settle(name):
            if name in chosen:
                up_to_date.append(name)
        elif name in chosen:
            done.append(accepting.accept(name, chosen))
    if not done:
        raise UsageError(
            f"nothing to accept: {', '.join(up_to_date)} {'is' if len(up_to_date) == 1 else 'are'} already up to date; "
            f"marinade plan {recipe} says what is not"
        )
    return Accepted(
        recipe=recipe, scale=scale, prefix=store.prefix, acceptances=tuple(done), up_to_date=tuple(up_to_date)
    )


class _Accepting:
    def __init__(self, prepared: Prepared, store: Store, recipe: str, scale: str, reason: str) -> None:
        self.prepared, self.store, self.reason = prepared, store, reason
        self.recipe, self.scale = recipe, scale
        self.graph, self.results = prepared.graph, prepared.results
        self.raw = {step.name for step in prepared.plan.steps if self.results.of(step.name).raw is not None}
        self._earlier: dict[str, tuple[Record, RunRecord]] = {}

    def settle(self, name: str) -> bool:
        """Whether the step has a result, now that the steps before it are settled."""
        result = self.results.of(name)
        if name in self.raw or result.record is not None:
            return True
        key = self._content_key(name)
        if key:
            self._use(name, self.store.find_content(name, key))
        return result.record is not None

    def accept(self, name: str, chosen: frozenset[str]) -> Acceptance:
        key = self._content_key(name)
        if not key:
            raise UsageError(self._uncommitted(name, chosen))
        running = holder(self.store, key)
        if running is not None:
            raise UsageError(
                f"step {name} is running (host {running.host}, process {running.pid}); "
                "let it end, or stop it and accept then"
            )
        record = self._earlier_artifact(name)
        absent = self.store.absent(record)
        if absent:
            raise UsageError(
                f"step {name}: its artifact at {self.store.location(record.address, record.attempt)} is not whole: "
                f"{absent}; run the step again"
            )
        acceptance = self.store.accept(
            Acceptance(
                name=name,
                address=record.address,
                recipe_key=self.graph.keys[name],
                content_key=key,
                accepted_key=record.content_key,
                attempt=record.attempt,
                digest=record.digest,
                payload=redact_json(self.graph.payloads[name]),
                code=dict(self.graph.code[name].fingerprints),
                changes=tuple(_json(change) for change in self._changes(name, record)),
                reason=self.reason,
                accepted=now(),
                host=socket.gethostname(),
                user=_user(),
                command=redact_json(tuple(sys.argv)),
            )
        )
        self._use(name, record)
        return acceptance

    def _use(self, name: str, record: Record | None) -> None:
        result = self.results.of(name)
        result.record = record
        if record is not None and self.prepared.wanted.get(name):
            result.milestones = self.store.milestones(record.address)

    def _content_key(self, name: str) -> str:
        """Empty while an input is not known, or lacks the part that is read of it."""
        try:
            return self.results.content_key(name)
        except MarinadeError:
            return ""

    def _uncommitted(self, name: str, chosen: frozenset[str]) -> str:
        for reference in self.graph.inputs[name]:
            if not reference.execution_only and not self._is_known(reference):
                break
        else:
            raise AssertionError(f"{name} has no content key, and all its inputs are known")
        word = f"{reference.step}{f'@{reference.at}' if reference.at is not None else ''}"
        raw = self.results.of(reference.step).raw
        if raw is not None:
            return f"step {name}: its input {word} cannot be reached: {raw.unreachable}"
        return (
            f"step {name}: its input {word} has no artifact yet, so it is not known what the step would read; "
            f"run that first (marinade run {self.recipe} --until {reference.step})"
            + ("" if reference.step in chosen else ", or accept it too")
        )

    def _is_known(self, reference: InputRef) -> bool:
        try:
            return bool(self.results.digest(reference))
        except MarinadeError:
            return False

    def _earlier_artifact(self, name: str) -> Record:
        """What the newest run that had the step, under this name or another, left of it."""
        for run in self.store.runs_of(self.recipe, self.scale):
            old = _name_in(run, name, self.graph)
            outcome = run.outcome.get(old, {}) if old else {}
            if outcome.get("status") not in ("succeeded", "reused") or not outcome.get("address"):
                continue
            record = self.store.record(outcome["address"])
            if record is not None and record.finished:
                return record
        raise UsageError(
            f"step {name}: no run of {self.recipe} at scale {self.scale} under {self.store.prefix} left a finished "
            f"artifact of it; run it (marinade run {self.recipe} --until {name})"
        )

    def _changes(self, name: str, record: Record) -> tuple[Change, ...]:
        """What differs from the artifact's record: code, config, and what the inputs hold."""
        found: list[Change] = []
        for reason in payload_changes(record.payload, self.graph.payloads[name]):
            if reason.kind != "input":
                kind = "code" if reason.kind in ("code", "version") else "config"
                found.append(Change(kind=kind, path=reason.path, old=reason.old, new=reason.new))
        before = {(i.path, i.part): i.digest for i in record.inputs if not i.execution_only}
        for now_read in self.results.input_records(name):
            was = before.get((now_read.path, now_read.part))
            if was and not now_read.execution_only and was != now_read.digest:
                found.append(Change(kind="input", path=now_read.path, old=was, new=now_read.digest))
        if not found:
            # The same words under another hash: the record was written under other identity rules.
            found = [Change(kind="code", path="identity rules", old=record.content_key, new=self._content_key(name))]
        return tuple(found)


def _name_in(run: RunRecord, name: str, graph: Graph) -> str:
    """What a step was called in a run: its name, else the one step that is gone since and has the same config."""
    if name in run.steps:
        return name
    now_side, then = Side.of_graph("now", graph), Side.of_run("then", run.steps)
    names_now, names_then = Names(steps=now_side.steps), Names(steps=then.steps)
    wanted = payload_text(names_now.payload(now_side.steps[name])["config"])
    gone = [
        old
        for old, step in then.steps.items()
        if old not in graph.steps and payload_text(names_then.payload(step)["config"]) == wanted
    ]
    return gone[0] if len(gone) == 1 else ""


def _json(change: Change) -> dict[str, Any]:
    return {"kind": change.kind, "path": change.path, "old": redact_json(change.old), "new": redact_json(change.new)}


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        return str(os.getuid()) if hasattr(os, "getuid") else ""
