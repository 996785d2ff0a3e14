"""Data -> the JSON that scripts read. The shapes are a promise (docs, "Interface"); new keys may be added."""

import dataclasses
import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from executor.comparing.changed import ChangedRecipe
from executor.comparing.compare import Diff
from executor.comparing.fields import Change, exact, readable
from executor.driver.status import Status
from executor.history.lineage import Lineage, PathStep
from executor.keys.reason import Reason
from executor.planning.estimate import Estimate
from executor.planning.plan import Plan
from executor.storage.acceptance import Acceptance
from executor.storage.record import Record

if TYPE_CHECKING:
    from executor.driver.run import RunOutcome
    from executor.experiments.listing import Experiments
    from executor.keys.graph import Graph
    from executor.upkeep.accept import Accepted
    from executor.upkeep.deleting import Deleted
    from executor.upkeep.gc import Collection
    from executor.upkeep.verify import Verified


def dumps(data: Any) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False)


def plan_json(plan: Plan) -> dict[str, Any]:
    return {
        "recipe": plan.recipe,
        "scale": plan.scale,
        "prefix": plan.prefix,
        "issue": plan.issue,
        "steps": [
            {
                "name": step.name,
                "key": step.key,
                "content_key": step.content_key,
                "address": step.address,
                "location": step.location,
                "action": step.action,
                "reasons": [_reason(reason) for reason in step.reasons],
                "inputs": list(step.inputs),
                "stop_at": step.stop_at,
                "notes": list(step.notes),
            }
            for step in plan.steps
        ],
        "counts": plan.counts(),
    }


def _reason(reason: Reason) -> dict[str, Any]:
    return {
        "kind": reason.kind,
        "path": reason.path,
        "old": readable(reason.old),
        "new": readable(reason.new),
        "step": reason.step,
    }


def outcome_json(outcome: "RunOutcome", report: str) -> dict[str, Any]:
    plan = outcome.plan
    return {
        "recipe": plan.recipe,
        "scale": plan.scale,
        "prefix": plan.prefix,
        "run_id": outcome.run_id,
        "exit_code": outcome.exit_code,
        "wall_seconds": round(outcome.wall_seconds, 3),
        "report": report,
        "steps": {
            name: {
                "status": step.status,
                "location": step.location,
                "attempt": step.attempt,
                "seconds": round(step.seconds, 3),
                "error": step.error,
                "log": step.log,
                "result": step.result,
            }
            for name, step in outcome.steps.items()
        },
        "counts": outcome_counts(outcome),
        "status": outcome.status,
        "experiment": outcome.declared,
        "verdict": _finite(outcome.verdict.to_json()) if outcome.verdict is not None else None,
    }


def experiments_json(found: "Experiments") -> dict[str, Any]:
    return {
        "prefix": found.prefix,
        "experiments": [
            {"recipe": group.recipe, "scale": group.scale, "idle_runs": group.idle, "runs": [
                _finite({**dataclasses.asdict(entry),
                         "verdict": entry.verdict.to_json() if entry.verdict is not None else None})
                for entry in group.entries
            ]}
            for group in found.groups
        ],
        "unreadable": dict(found.unreadable),
    }  # fmt: skip


def _finite(value: Any) -> Any:
    """The same with `null` for numbers that JSON cannot hold."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def outcome_counts(outcome: "RunOutcome") -> dict[str, int]:
    counts: dict[str, int] = {}
    for step in outcome.steps.values():
        counts[step.status] = counts.get(step.status, 0) + 1
    return counts


def diff_json(diff: Diff) -> dict[str, Any]:
    return {
        "a": diff.a,
        "b": diff.b,
        "causes": [
            {"step": cause.step, "amends": cause.amends, "changes": [change_json(change) for change in cause.changes]}
            for cause in diff.causes
        ],
        "inherited": [{"step": step.step, "from": list(step.causes)} for step in diff.inherited],
        "added": list(diff.added),
        "removed": list(diff.removed),
        "renamed": [{"old": old, "new": new} for old, new in diff.renamed],
        "identical": diff.identical,
        "notes": [
            {"step": note.step, "kind": note.kind, "changes": [change_json(change) for change in note.changes]}
            for note in diff.notes
        ],
        "rewired": {name: [change_json(change) for change in changes] for name, changes in diff.rewired.items()},
        "shares_nothing": diff.shares_nothing,
    }


def changed_json(base: str, head: str, scale: str, found: Sequence[ChangedRecipe]) -> dict[str, Any]:
    """`head` is empty for the working tree; a recipe that could not be compared has a problem and no diff."""
    recipes = [
        {"recipe": one.recipe, "problem": one.problem, "diff": None if one.diff is None else diff_json(one.diff)}
        for one in found
    ]
    return {"base": base, "head": head, "scale": scale, "recipes": recipes}


def change_json(change: Change) -> dict[str, Any]:
    """One change; `exact` is there where the readable values leave out what kind of value they are."""
    found: dict[str, Any] = {"kind": change.kind, "path": change.path}
    values = {"old": readable(change.old), "new": readable(change.new)}
    found |= values | {"op": change.op, "at": list(change.at)}
    if change.to is not None:
        found["to"] = change.to
    precise = {"old": exact(change.old), "new": exact(change.new)}
    if precise != values:
        found["exact"] = precise
    if change.code is not None:
        found["code"] = {"lines": list(change.code.lines), "missing": change.code.missing}
    return found


def estimate_json(estimate: Estimate) -> dict[str, Any]:
    steps: dict[str, Any] = {}
    for step in estimate.steps:
        steps[step.name] = dict(step.numbers)
        if step.wanted_until is not None:
            steps[step.name]["wanted_until"] = step.wanted_until
    return {"recipe": estimate.recipe, "scale": estimate.scale, "steps": steps}


def status_json(status: Status) -> dict[str, Any]:
    return {
        "recipe": status.recipe,
        "scale": status.scale,
        "prefix": status.prefix,
        "issue": status.issue,
        "last_run": status.last_run,
        "steps": [
            {
                "name": step.name,
                "state": step.state,
                "action": step.action,
                "address": step.address,
                "attempt": step.attempt,
                "where": step.where,
                "started": step.started,
                "ended": step.ended,
                "seconds": step.seconds,
                "error": step.error,
                "log": step.log,
                "attempts": [dataclasses.asdict(attempt) for attempt in step.attempts],
            }
            for step in status.steps
        ],
    }


def accepted_json(accepted: "Accepted") -> dict[str, Any]:
    return {
        "recipe": accepted.recipe,
        "scale": accepted.scale,
        "prefix": accepted.prefix,
        "accepted": [_acceptance(acceptance) for acceptance in accepted.acceptances],
        "up_to_date": list(accepted.up_to_date),
    }


def _acceptance(acceptance: Acceptance) -> dict[str, Any]:
    return {
        "name": acceptance.name,
        "key": acceptance.recipe_key,
        "content_key": acceptance.content_key,
        "accepted_key": acceptance.accepted_key,
        "address": acceptance.address,
        "attempt": acceptance.attempt,
        "reason": acceptance.reason,
        "accepted": acceptance.accepted,
        "host": acceptance.host,
        "user": acceptance.user,
        "changes": [
            {**change, "old": readable(change["old"]), "new": readable(change["new"])} for change in acceptance.changes
        ],
    }


def verified_json(asked: str, results: "Sequence[Verified]", absent: Sequence[str], command: str) -> dict[str, Any]:
    """`absent` are steps of a recipe without an artifact; `command` makes what is damaged again."""
    return {
        "asked": asked,
        "ok": not any(verified.problems for verified in results),
        "artifacts": [
            {**dataclasses.asdict(verified), "ok": not verified.problems, "problems": list(verified.problems)}
            for verified in results
        ],
        "absent": list(absent),
        "next": command,
    }


def collection_json(
    collection: "Collection", recipes: Sequence[tuple[str, str]], done: "Sequence[Deleted]"
) -> dict[str, Any]:
    """`deleted` and `skipped` of each piece stay false and empty in a dry run."""
    fate = {(deleted.garbage.address, deleted.garbage.attempt): deleted for deleted in done}
    garbage = []
    for found in collection.garbage:
        deleted = fate.get((found.address, found.attempt))
        garbage.append(
            {
                "name": found.name,
                "address": found.address,
                "attempt": found.attempt,
                "files": found.files,
                "bytes": found.size,
                "idle_days": round(found.idle_days, 3) if math.isfinite(found.idle_days) else None,
                "why": found.why,
                "recipe": found.recipe,
                "deleted": deleted is not None and not deleted.skipped,
                "skipped": deleted.skipped if deleted is not None else "",
            }
        )
    return {
        "recipes": [{"recipe": recipe, "scale": scale} for recipe, scale in recipes],
        "prefix": collection.prefix,
        "keep_days": collection.keep_days,
        "garbage": garbage,
        "bytes": sum(found.size for found in collection.garbage),
        "kept": dict(collection.kept),
        "unknown": list(collection.unknown),
    }


def lineage_json(lineage: Lineage) -> dict[str, Any]:
    """All records behind an artifact; `source` of an input is an index into `ancestors`, null when it is gone."""
    return {
        "asked": lineage.asked,
        "name": lineage.root.name,
        "address": lineage.root.address,
        "attempt": lineage.root.attempt,
        "provenance": lineage.root.provenance,
        "ancestors": [
            {
                **record_json(item.record),
                "inputs": [
                    {
                        "path": i.path,
                        "step": i.step,
                        "part": i.part,
                        "recipe_key": i.recipe_key,
                        "digest": i.digest,
                        "location": i.location,
                        "execution_only": i.execution_only,
                        "source": source,
                    }
                    for i, source in item.inputs
                ],
            }
            for item in lineage.ancestors
        ],
        "missing": [{"location": location, "error": error} for location, error in lineage.missing],
    }


def record_json(record: Record) -> dict[str, Any]:
    return {
        "name": record.name,
        "address": record.address,
        "attempt": record.attempt,
        "status": record.status,
        "recipe_key": record.recipe_key,
        "content_key": record.content_key,
        "digest": record.digest,
        "function": record.payload.get("function", ""),
        "version": record.payload.get("version", ""),
        "config": readable(record.payload.get("config")),
        "execution_only": readable(record.execution_only),
        "code": record.code,
        "result": record.result,
        "milestones": list(record.milestones),
        "started": record.started,
        "ended": record.ended,
        "wall_seconds": record.wall_seconds,
        "provenance": record.provenance,
    }


def why_json(path: tuple[PathStep, ...]) -> dict[str, Any]:
    return {
        "path": [
            {
                "name": step.record.name,
                "address": step.record.address,
                "attempt": step.record.attempt,
                "through": None
                if step.through is None
                else {"path": step.through.path, "part": step.through.part, "digest": step.through.digest},
            }
            for step in path
        ]
    }


def dag_json(graph: "Graph") -> dict[str, Any]:
    return {
        "targets": list(graph.targets),
        "steps": [
            {
                "name": name,
                "key": graph.keys[name],
                "amends": step.amends.name if step.amends else "",
                "inputs": [
                    {
                        "path": i.path,
                        "step": i.step,
                        "part": i.part,
                        "at": i.at,
                        "execution_only": i.execution_only,
                    }
                    for i in graph.inputs[name]
                ],
            }
            for name, step in graph.steps.items()
        ],
    }
