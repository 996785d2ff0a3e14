"""What an attempt wrote: every file with its size and digest, and what stands for the whole of it.

Opaque steps (checkpoints, whose bytes differ between equal runs) are known by their attempt instead of by content;
small files of theirs are still digested, so that a part such as `history.json` can be depended on by content.
"""

from executor.errors import MarinadeError
from executor.keys.identity import hash_json
from executor.storage.record import FileRecord, digest_of_files, files_under
from executor.storage.store import Store
from executor.worker.task import Task

_LARGEST_OPAQUE_BYTES = 64 << 20


def manifest(
    store: Store, task: Task, attempt: str, part: str = "", *, opaque_bytes: int = _LARGEST_OPAQUE_BYTES
) -> tuple[FileRecord, ...]:
    """Every file under a part of the output; of opaque steps those up to `opaque_bytes` are digested by content."""
    folder = f"{attempt}/{part}" if part else attempt
    found = store.find(task.address, folder)

    def record(path: str) -> FileRecord:
        info = found[path]
        if task.opaque and info.size > opaque_bytes:
            digest = f"attempt:{attempt}"
        else:
            base = f"{task.address}/{folder}"
            digest = store.files.digest(f"{base}/{path}" if path else base, info)
        return FileRecord(path=path, size=info.size, digest=digest)

    return tuple(store.files.each(record, sorted(found)).values())


def check_parts(task: Task, files: tuple[FileRecord, ...]) -> None:
    """Raise MarinadeError where a part that another step reads was not written."""
    for part, consumer in task.parts.items():
        if not files_under(files, part):
            wrote = ", ".join(file.path for file in files[:8]) or "nothing"
            raise MarinadeError(
                f"step {task.name} returned without writing {part!r}, which step {consumer} reads; "
                f"it wrote {wrote}{', ...' if len(files) > 8 else ''}"
            )


def digest_of(task: Task, attempt: str, files: tuple[FileRecord, ...]) -> str:
    """Digest of the whole artifact."""
    if task.opaque:
        return opaque_digest(task.content_key, attempt)
    return digest_of_files(files) or "sha256:" + hash_json([])


def opaque_digest(content_key: str, attempt: str, *at: int) -> str:
    """What stands for an attempt of an opaque step, or for its milestone at a training step."""
    return "attempt:" + hash_json([content_key, attempt, *at])
