"""Reading what the store holds and comparing it with the records: every file, every milestone, every link of a lineage.

A plan looks at names and sizes only, and only where that matters; here everything is read:

    sha256:            the file is read again
    md5:, crc32c:      the store's own checksum of what lies there now is asked for again
    attempt:           a large file of an opaque step has no digest: its existence and size are all there is to compare

Invariant: nothing is changed, and one artifact's damage does not hide another's.
"""

import base64
import dataclasses
import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from executor.errors import MarinadeError
from executor.external import ExternalConfig, RawData
from executor.external import verify as verify_external
from executor.planning.planner import Prepared
from executor.secrets import redact
from executor.storage.addresses import is_inside_artifact
from executor.storage.files import FileInfo
from executor.storage.locate import read_record
from executor.storage.record import FileRecord, MilestoneRecord, Record, digest_of_files
from executor.storage.store import Store

_TEMPORARY = ".writing-"

Tell = Callable[[str, int, int], None]
"""Progress: name of the artifact, bytes read of it so far, bytes in all."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verified:
    """One artifact, compared with its record.

    Attributes:
        files, size: how many files, and their bytes, the record lists (of raw data: that are there).
        unread: how many of them are known by existence and size only.
        milestones: how many published milestones were looked at too.
        problems: what is wrong, a sentence each; empty when all is as recorded.
    """

    name: str
    address: str
    attempt: str = ""
    files: int = 0
    size: int = 0
    unread: int = 0
    milestones: int = 0
    problems: tuple[str, ...] = ()


def verify_recipe(prepared: Prepared, store: Store, tell: Tell) -> Iterable[Verified]:
    """All artifacts that a recipe would use as it stands, and its raw inputs, inputs first. Plan with `survey`."""
    records = {n: r for step in prepared.plan.steps if (r := prepared.results.of(n := step.name).record) is not None}
    gaps = lineage_gaps(records.values())
    for step in prepared.plan.steps:
        result = prepared.results.of(step.name)
        if result.raw is not None:
            yield _verify_raw(prepared, step.name, result.raw)
        elif result.record is not None:
            yield verify_artifact(store, result.record, gaps.get(step.name, ()), tell)
        elif step.address and (published := store.milestones(step.address)):
            yield _verify_milestones_only(store, step.name, step.address, published, tell)


def verify_artifact(store: Store, record: Record, gaps: tuple[str, ...], tell: Tell) -> Verified:
    """Read one artifact; `gaps` are the problems of its lineage."""
    if not record.finished:
        ended = f"its attempt {record.attempt} ended as {record.status}, so it is no artifact"
        return Verified(name=record.name, address=record.address, attempt=record.attempt, problems=(ended,))
    reader = _Reader(store, record.name, record.address, tell)
    problems = reader.compare(record.attempt, "", record.files)
    problems += [f"{path} is not in the record" for path in reader.unlisted(record.attempt, record.files)]
    digest = digest_of_files(record.files)
    if record.files and record.digest.startswith("sha256:") and record.digest != digest:
        problems.append(f"its record has digest {record.digest}, the files in that record give {digest}")
    milestones = store.milestones(record.address)
    problems += [f"milestone {at} has no record" for at in record.milestones if at not in milestones]
    problems += reader.milestones(milestones.values())
    return Verified(
        name=record.name,
        address=record.address,
        attempt=record.attempt,
        files=len(record.files),
        size=sum(file.size for file in record.files),
        unread=sum(file.digest.startswith("attempt:") for file in record.files),
        milestones=len(milestones),
        problems=(*problems, *gaps),
    )


def lineage_gaps(roots: Iterable[Record]) -> Mapping[str, tuple[str, ...]]:
    """Name of a root -> inputs of it, or of what is behind it, whose record cannot be read. Each is read once."""
    gaps: dict[str, list[str]] = {}
    queue = deque((root.name, root) for root in roots)
    seen = {(root.address, root.attempt) for _, root in queue}
    looked: set[str] = set()
    while queue:
        origin, record = queue.popleft()
        for read in record.inputs:
            if read.location in looked or not is_inside_artifact(read.location):
                continue
            looked.add(read.location)
            try:
                found = read_record(read.location)
            except MarinadeError as error:
                behind = "" if record.name == origin else f" of {record.name} behind it"
                gaps.setdefault(origin, []).append(f"its input {read.step}{behind} has no record: {error}")
                continue
            if (found.address, found.attempt) not in seen:
                seen.add((found.address, found.attempt))
                queue.append((origin, found))
    return {name: tuple(found) for name, found in gaps.items()}


def _verify_milestones_only(
    store: Store, name: str, address: str, published: Mapping[int, MilestoneRecord], tell: Tell
) -> Verified:
    """A step of which only milestones are wanted has no record of its own."""
    problems = _Reader(store, name, address, tell).milestones(published.values())
    return Verified(name=name, address=address, milestones=len(published), problems=tuple(problems))


def _verify_raw(prepared: Prepared, name: str, raw: RawData) -> Verified:
    """External data is read and compared with its declared digest; adopted data is its listing, so it is listed."""
    step, shown = prepared.graph.steps[name], redact(raw.location)
    if raw.unreachable:
        return Verified(name=name, address=shown, problems=(f"cannot be reached: {raw.unreachable}",))
    from executor.external import list_files

    listing = list_files(raw.location)
    found = Verified(name=name, address=shown, files=len(listing), size=sum(size for _, size, _ in listing))
    if not isinstance(step.config, ExternalConfig):
        return dataclasses.replace(found, unread=len(listing))
    try:
        verify_external(step, raw.location)
    except MarinadeError as error:
        return dataclasses.replace(found, problems=(redact(str(error)),))
    return found


class _Reader:
    """Reads the files of one address, each once, and says how they differ from what was recorded."""

    def __init__(self, store: Store, name: str, address: str, tell: Tell) -> None:
        self.store, self.name, self.address, self.tell = store, name, address, tell
        self._tell: Callable[[int], None] = lambda _: None
        self._found: dict[str, dict[str, FileInfo]] = {}
        self._compared: dict[tuple[str, FileRecord], str] = {}

    def compare(self, attempt: str, part: str, files: Iterable[FileRecord]) -> list[str]:
        """Problems of recorded files, whose paths are relative to a part of an attempt (or are that part itself)."""
        files = tuple(files)
        total = sum(file.size for file in files)
        done, problems = 0, []
        for file in files:
            self._tell = lambda read, done=done: self.tell(self.name, done + read, total)
            self._tell(0)
            path = f"{part}/{file.path}".strip("/")
            key = (f"{attempt}/{path}", dataclasses.replace(file, path=path))
            if key not in self._compared:
                self._compared[key] = self._problem(attempt, path, file)
            if self._compared[key]:
                problems.append(f"{path} {self._compared[key]}")
            done += file.size
        self.tell(self.name, total, total)
        return problems

    def milestones(self, published: Iterable[MilestoneRecord]) -> list[str]:
        problems = []
        for milestone in published:
            wrong = self.compare(milestone.attempt, milestone.part, milestone.files)
            if milestone.digest.startswith("sha256:") and digest_of_files(milestone.files) != milestone.digest:
                wrong.append("its record's digest is not that of the files in it")
            problems += [f"milestone {milestone.at}: {problem}" for problem in wrong]
        return problems

    def unlisted(self, attempt: str, files: Iterable[FileRecord]) -> list[str]:
        """Files that no record knows of; whoever reads the folder would read them too."""
        known = {file.path for file in files}
        return [
            path
            for path in self._listing(attempt)
            if path not in known and not path.rpartition("/")[2].startswith(_TEMPORARY)
        ]

    def _listing(self, attempt: str) -> dict[str, FileInfo]:
        if attempt not in self._found:
            self._found[attempt] = self.store.find(self.address, attempt)
        return self._found[attempt]

    def _problem(self, attempt: str, path: str, file: FileRecord) -> str:
        info = self._listing(attempt).get(path)
        if info is None:
            return "is missing"
        if info.size != file.size:
            return f"has {info.size} bytes, {file.size} were written"
        if file.digest.startswith("attempt:"):
            return ""
        try:
            found = self._digest(f"{self.address}/{attempt}/{path}", file.digest.partition(":")[0], info)
        except OSError as error:
            return f"cannot be read: {redact(str(error))}"
        return "" if found == file.digest else f"has {found}, {file.digest} was written"

    def _digest(self, path: str, kind: str, info: FileInfo) -> str:
        """What the file has now, in the kind of digest that was recorded where the store or we can tell it."""
        if info.mark.startswith(f"{kind}:"):
            return info.mark
        md5 = kind == "md5"  # of an object store, in its spelling, and the artifact was copied elsewhere since
        digest = hashlib.md5(usedforsecurity=False) if md5 else hashlib.sha256()
        read = 0
        for block in self.store.files.read_all(path):
            digest.update(block)
            read += len(block)
            self._tell(read)
        return "md5:" + base64.b64encode(digest.digest()).decode() if md5 else "sha256:" + digest.hexdigest()
