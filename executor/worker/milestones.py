"""Milestones of a step that is being run: which are still owed, and how one is published."""

from executor.errors import MarinadeError
from executor.failpoints import reached
from executor.storage.lease import Lease
from executor.storage.record import MilestoneRecord, digest_of_files
from executor.storage.stamps import now
from executor.storage.store import Store
from executor.worker.manifest import manifest, opaque_digest
from executor.worker.task import Task


def unpublished(store: Store, task: Task) -> tuple[int, ...]:
    """Milestones wanted of a step that have no record which counts, in order.

    One of before a forced run does not count, nor one whose files are gone.
    """
    published = store.milestones(task.address)
    asked = {*task.milestones, *(() if task.stop_at is None else (task.stop_at,))}
    return tuple(sorted(at for at in asked if at not in published or not _counts(store, task, published[at])))


def _counts(store: Store, task: Task, milestone: MilestoneRecord) -> bool:
    """Whether a published milestone can be read by those who depend on it."""
    replaced = task.afresh and milestone.attempt in task.superseded
    return not replaced and not store.absent_from(milestone)


def publish(
    store: Store, task: Task, lease: Lease, attempt: str, at: int, part: str, result: dict | None
) -> MilestoneRecord:
    """Make a folder of the output the milestone `at`; one that was published before, and counts, stays what it is."""
    lease.check()
    files = manifest(store, task, attempt, part, opaque_bytes=0)
    if not files:
        raise MarinadeError(f"step {task.name}: milestone {at} has no files: {part!r} under its output is empty")
    reached("milestone-listed")
    record = MilestoneRecord(
        at=at,
        name=task.name,
        address=task.address,
        attempt=attempt,
        part=part,
        recipe_key=task.recipe_key,
        content_key=task.content_key,
        digest=opaque_digest(task.content_key, attempt, at) if task.opaque else digest_of_files(files) or "",
        files=files,
        result=result,
        published=now(),
    )
    if not store.publish(record):
        before = store.milestones(task.address)[at]
        if _counts(store, task, before):
            return before
        store.publish(record, replace=True)
    reached("milestone-published")
    return record
