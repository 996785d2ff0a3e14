"""Milestones of a step that is being run: which are still owed."""

from executor.record import MilestoneRecord
from executor.store import Store
from executor.task import Task


def unpublished(store: Store, task: Task) -> tuple[int, ...]:
    """Milestones wanted of a step that have no record which counts, in order.

    One of before a forced run does not count, nor one whose files are gone.
    """
    published = store.milestones(task.address)
    asked = {*task.milestones, *(() if task.stop_at is None else (task.stop_at,))}
    return tuple(sorted(at for at in asked if at not in published or not counts(store, task, published[at])))


def counts(store: Store, task: Task, milestone: MilestoneRecord) -> bool:
    """Whether a published milestone can be read by those who depend on it."""
    return milestone.attempt >= task.not_before and not store.absent_from(milestone)
