"""What can be deleted and why, what became of it, and how to go on."""

from collections.abc import Sequence

from executor.render.terminal import Terminal
from executor.render.values import bytes_text
from executor.upkeep.deleting import Deleted
from executor.upkeep.gc import Collection, Garbage

_WHY = {
    "recipe": "reached by a given recipe",
    "run": "named by a recent run",
    "lease": "leased now",
    "age": "made recently",
    "lineage": "behind one of these",
}


def collection_text(collection: Collection, recipes: Sequence[tuple[str, str]], terminal: Terminal) -> str:
    """What is kept, by reason; then each piece of garbage, the largest first."""
    names = ", ".join(f"{recipe} at scale {scale}" for recipe, scale in recipes)
    lines = terminal.wrap(
        f"{collection.prefix}, as needed by {names} and runs of the last {collection.keep_days:g} days"
    )
    counts = {why: list(collection.kept.values()).count(why) for why in _WHY}
    kept = [f"{count} {_WHY[why]}" for why, count in counts.items() if count]
    lines += ["", *terminal.wrap(f"kept: {', '.join(kept) or 'nothing'}")]
    if collection.unknown:
        lines += terminal.wrap(f"left alone, no record says what they are: {', '.join(collection.unknown)}")
    if collection.garbage:
        lines.append("")
    for garbage in sorted(collection.garbage, key=lambda garbage: -garbage.size):
        lines.append(f"  {bytes_text(garbage.size):>9}  {_label(garbage)}")
        made = f"; made by {garbage.recipe}" if garbage.recipe and not garbage.attempt else ""
        lines += terminal.wrap(f"{garbage.why}{made}", 13)
    return "\n".join(lines) + "\n"


def deleted_text(deleted: Deleted, terminal: Terminal) -> str:
    if deleted.skipped:
        return f"{terminal.paint('skipped', 'yellow')}  {_label(deleted.garbage)}: {deleted.skipped}\n"
    return f"deleted  {_label(deleted.garbage)}\n"


def gc_end_text(collection: Collection, done: Sequence[Deleted] | None, terminal: Terminal) -> str:
    """The sum; `done` is None for a dry run."""
    if not collection.garbage:
        return "\nnothing to delete\n"
    if done is None:
        size = sum(garbage.size for garbage in collection.garbage)
        words = f"{_count(collection.garbage)}, {bytes_text(size)}; nothing was deleted: --delete deletes them"
        return "\n" + "\n".join(terminal.wrap(words)) + "\n"
    gone = [deleted.garbage for deleted in done if not deleted.skipped]
    skipped = len(done) - len(gone)
    words = f"deleted {_count(gone)}, {bytes_text(sum(garbage.size for garbage in gone))}"
    return "\n" + "\n".join(terminal.wrap(f"{words}; {skipped} skipped" if skipped else words)) + "\n"


def _label(garbage: Garbage) -> str:
    return f"{garbage.address}/{garbage.attempt}" if garbage.attempt else garbage.address


def _count(garbage: Sequence[Garbage]) -> str:
    attempts = sum(bool(found.attempt) for found in garbage)
    artifacts = len(garbage) - attempts
    parts = [f"{artifacts} artifact{'s' if artifacts != 1 else ''}"] if artifacts or not attempts else []
    if attempts:
        parts.append(f"data of {attempts} attempt{'s' if attempts != 1 else ''}")
    return " and ".join(parts)
