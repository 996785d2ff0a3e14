"""The store: where artifacts, records, the index and runs lie, and how they come to be there in one move.

    {prefix}/{name}-{content key}/{attempt}/...               data of one attempt
    {prefix}/{name}-{content key}/.step/record.json           the record that counts; an artifact exists only with it
    {prefix}/{name}-{content key}/.step/attempts/{attempt}/   record.json, source.json, log.txt of every attempt
    {prefix}/{name}-{content key}/.step/milestones/{n}.json   published parts
    {prefix}/{name}-{content key}/.step/accepted/{key}.json   see acceptance.py
    {prefix}/.index/{recipe,content,accepted}/{key}.json      shortcuts to addresses; can be rebuilt from records
    {prefix}/.index/last/{recipe and scale}.json              the run that began last
    {prefix}/.leases/{content key}/                           see lease.py
    {prefix}/.runs/{id}.json                                  one file for every run
    {prefix}/.runs/{id}/prediction.json                       what it predicted (prediction.py)

Invariant: records are replaced in one move, milestones are never replaced, and only `delete` (for gc) removes anything.
What cannot be read (cut short, damaged) counts as absent: it is never served and never ends a plan, and
`Store.unreadable` says so.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from executor.errors import StoreError
from executor.failpoints import reached
from executor.secrets import redact, redact_document
from executor.storage.acceptance import Acceptance
from executor.storage.addresses import address_of
from executor.storage.files import FileInfo, together
from executor.storage.index import Index, IndexEntry
from executor.storage.places import open_files
from executor.storage.record import FileRecord, MilestoneRecord, Record, RunRecord, files_under
from executor.storage.source import Source

if TYPE_CHECKING:
    from executor.recipe import Recipe


def default_prefix(recipe: "Recipe | None" = None) -> str:
    """`$MARINADE_PREFIX`, else `artifacts/` at the root of the project that the recipe (or this folder) is part of."""
    given = os.environ.get("MARINADE_PREFIX")
    if given:
        return given
    start = Path(recipe.file).parent if recipe is not None else Path.cwd()
    for folder in (start, *start.parents):
        if (folder / "pyproject.toml").exists():
            return str(folder / "artifacts")
    return str(start / "artifacts")


class Store:
    """One prefix.

    Attributes:
        unreadable: path below the prefix -> what is wrong with the JSON that was found there.
    """

    def __init__(self, prefix: str) -> None:
        self.files = open_files(prefix)
        self.prefix = self.files.root
        self.index = Index(self.files)
        self.unreadable: dict[str, str] = {}

    def check(self) -> None:
        """Raise StoreError where this store cannot keep two processes apart, with what to use instead.

        For a run that has something to do: it writes one tiny object, `.index/exclusive`, unless the prefix is local.
        """
        self.files.check_exclusive()

    def _parsed[T](self, parse: Callable[[str], T], data: bytes | None, path: str) -> T | None:
        """What a file holds; None where there is none, or it cannot be read, which is noted."""
        if data is None:
            return None
        try:
            return parse(data.decode())
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            self.unreadable[path] = f"{type(error).__name__}: {error}"
            return None

    def location(self, address: str, attempt: str, part: str = "") -> str:
        """Absolute path or URL of an attempt's data, or of a part of it."""
        base = f"{self.prefix}/{address}/{attempt}"
        return f"{base}/{part}" if part else base

    def log_dir(self, address: str, attempt: str) -> str:
        return f"{self.prefix}/{address}/.step/attempts/{attempt}"

    # Records

    def record(self, address: str) -> Record | None:
        """The record that counts."""
        return self.records([address])[address]

    def records(self, addresses: Iterable[str]) -> dict[str, Record | None]:
        """The records that count, read together; None for addresses without one that can be read."""
        paths = {address: f"{address}/.step/record.json" for address in addresses}
        found = self.files.read_many(paths.values())
        return {address: self._parsed(Record.from_json, found.get(path), path) for address, path in paths.items()}

    def damage(self, address: str) -> str:
        """What is wrong with the record of an address that was read; empty where nothing is."""
        path = f"{address}/.step/record.json"
        found = self.unreadable.get(path)
        return f"{path} cannot be read ({found})" if found else ""

    def attempt(self, address: str, attempt: str) -> Record | None:
        path = f"{address}/.step/attempts/{attempt}/record.json"
        return self._parsed(Record.from_json, self.files.read(path), path)

    def attempts(self, address: str) -> tuple[Record, ...]:
        """Records of all attempts, newest first: by their numbers, since hosts' clocks differ."""
        return self.attempts_at([address])[address]

    def attempts_at(self, addresses: Iterable[str]) -> dict[str, tuple[Record, ...]]:
        """The same for several addresses, read together."""
        folders = {address: f"{address}/.step/attempts" for address in addresses}
        found = self._each_in(folders.values(), "{name}/record.json", Record.from_json)

        def newest_first(records: list[Record]) -> tuple[Record, ...]:
            return tuple(sorted(records, key=lambda record: (record.number, record.attempt), reverse=True))

        return {address: newest_first(found[folder]) for address, folder in folders.items()}

    def _each_in[T](self, folders: Iterable[str], file: str, parse: Callable[[str], T]) -> dict[str, list[T]]:
        """What is in the files `file` of several folders, where `{name}` stands for every name; two rounds of calls."""
        names = self.files.each(self.files.names, folders)
        paths = {folder: [f"{folder}/{file.format(name=name)}" for name in names[folder]] for folder in names}
        found = self.files.read_many(path for listed in paths.values() for path in listed)
        parsed = {folder: [self._parsed(parse, found.get(path), path) for path in paths[folder]] for folder in paths}
        return {folder: [item for item in items if item is not None] for folder, items in parsed.items()}

    def write_attempt(self, record: Record) -> None:
        path = f"{record.address}/.step/attempts/{record.attempt}/record.json"
        self.files.write(path, _bytes(record.to_json()), checked=record.finished)

    def write_source(self, address: str, attempt: str, source: Source) -> None:
        self.files.write(f"{address}/.step/attempts/{attempt}/source.json", _bytes(source.to_json()))

    def source(self, address: str, attempt: str) -> Source:
        """What an attempt was made from: code, patch, packages; all empty where it was not kept."""
        path = f"{address}/.step/attempts/{attempt}/source.json"
        return self._parsed(Source.from_json, self.files.read(path), path) or Source()

    def commit(self, record: Record) -> None:
        """Make this attempt, which is on record, the artifact: the record that counts, then the index."""
        assert record.finished
        entry = IndexEntry(content_key=record.content_key, address=record.address)
        together(lambda: self._write_record(record), lambda: self._enter(record.recipe_key, entry))

    def _write_record(self, record: Record) -> None:
        self.files.write(f"{record.address}/.step/record.json", _bytes(record.to_json()), checked=True)
        reached("record-written")

    def _enter(self, recipe_key: str, entry: IndexEntry) -> None:
        # An entry that leads to no record counts for nothing, so it may be there first.
        self.index.enter(recipe_key, entry)
        reached("recipe-indexed")

    def log(self, address: str, attempt: str) -> str:
        data = self.files.read(f"{address}/.step/attempts/{attempt}/log.txt")
        return data.decode(errors="replace") if data is not None else ""

    # Milestones

    def milestones(self, address: str) -> dict[int, MilestoneRecord]:
        return self.milestones_at([address])[address]

    def milestones_at(self, addresses: Iterable[str]) -> dict[str, dict[int, MilestoneRecord]]:
        """Published milestones by training step, in order, of several addresses, read together."""
        folders = {address: f"{address}/.step/milestones" for address in addresses}
        found = self._each_in(folders.values(), "{name}", MilestoneRecord.from_json)
        return {
            address: {record.at: record for record in sorted(found[folder], key=lambda record: record.at)}
            for address, folder in folders.items()
        }

    def publish(self, record: MilestoneRecord, *, replace: bool = False) -> bool:
        """Put a milestone's record; False if that milestone was published before, which then stays what it is.

        `replace` is for one that does not count any more: forced, or its files are gone. One that cannot be read does
        not count either.
        """
        path, data = f"{record.address}/.step/milestones/{record.at}.json", _bytes(record.to_json())
        if not replace:
            if self.files.create(path, data, checked=True):
                return True
            if self._parsed(MilestoneRecord.from_json, self.files.read(path), path) is not None:
                return False
        self.files.write(path, data, checked=True)
        return True

    def absent_from(self, milestone: MilestoneRecord) -> str:
        """What is missing of a milestone's files or is another than was written, in words; empty where nothing is."""
        found = self.find(milestone.address, f"{milestone.attempt}/{milestone.part}".rstrip("/"))
        return _first_difference(milestone.files, found)

    # Artifacts by content

    def find_content(self, name: str, content_key: str) -> Record | None:
        """The finished artifact of a content key, under whatever name."""
        return self.find_contents({name: content_key})[name]

    def find_contents(
        self, wanted: dict[str, str], addresses: dict[str, str] | None = None
    ) -> dict[str, Record | None]:
        """The same for several steps at once: name -> content key (and their addresses, where these are known).

        Where there is none of the key's own, one that was accepted for it.
        """
        addresses = addresses or self.index.addresses(wanted)
        records = self.records(addresses.values())
        found = {name: checked(records[addresses[name]], key) for name, key in wanted.items()}
        return found | self._accepted({name: wanted[name] for name, record in found.items() if record is None})

    def _accepted(self, wanted: dict[str, str]) -> dict[str, Record | None]:
        entries = self.index.lookup("accepted", wanted.values())
        places = {name: (entries[key].address, key) for name, key in wanted.items() if key in entries}
        records = self.records(address for address, _ in places.values())
        acceptances = self.acceptances(places.values())
        return {name: accepted(records[place[0]], acceptances.get(place)) for name, place in places.items()}

    # Acceptances

    def acceptance(self, address: str, content_key: str) -> Acceptance | None:
        """What was accepted of the artifact at an address for another content key than its own."""
        return self.acceptances([(address, content_key)]).get((address, content_key))

    def acceptances(self, wanted: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Acceptance]:
        """The same for several (address, content key) at once."""
        paths = {f"{address}/.step/accepted/{key}.json": (address, key) for address, key in wanted}
        found = self.files.read_many(paths)
        return {paths[path]: _parse_acceptance(data, path) for path, data in found.items()}

    def accept(self, acceptance: Acceptance) -> Acceptance:
        """Put an acceptance beside its record, then into the index. One of before stays what it is and is returned."""
        path = f"{acceptance.address}/.step/accepted/{acceptance.content_key}.json"
        if not self.files.create(path, _bytes(acceptance.to_json())):
            acceptance = self.acceptance(acceptance.address, acceptance.content_key) or acceptance
        self.index.enter_accepted(acceptance)
        self.index.enter(
            acceptance.recipe_key, IndexEntry(content_key=acceptance.content_key, address=acceptance.address)
        )
        return acceptance

    # Files

    def find(self, address: str, attempt: str) -> dict[str, FileInfo]:
        return self.files.find(f"{address}/{attempt}")

    def absent(self, record: Record, part: str = "") -> str:
        """What is missing or is another than was written among an artifact's files, in words; empty when nothing is.

        Files are compared by size, and by checksum where the store keeps the kind that was recorded.
        """
        wanted = files_under(record.files, part).values()
        return _first_difference(wanted, self.find(record.address, record.attempt)) if wanted else ""

    def has_files(self, address: str, attempt: str) -> bool:
        return bool(self.files.names(f"{address}/{attempt}"))

    # Runs

    def run_ids(self) -> tuple[str, ...]:
        """Oldest first."""
        return tuple(name.removesuffix(".json") for name in self.files.names(".runs") if name.endswith(".json"))

    def run(self, run_id: str) -> RunRecord:
        """Raises StoreError where there is no such run, or its file cannot be read."""
        path = f".runs/{run_id}.json"
        data = self.files.read(path)
        if data is None:
            raise StoreError(f"there is no run {run_id} under {self.prefix}/.runs")
        found = self._parsed(RunRecord.from_json, data, path)
        if found is None:
            raise StoreError(
                f"{self.prefix}/{path} cannot be read ({self.unreadable[path]}); move it away to go on without it"
            )
        return found

    def runs(self) -> tuple[RunRecord, ...]:
        """Every run that can be read, oldest first; the others are in `unreadable`. Read together."""
        paths = [f".runs/{run_id}.json" for run_id in self.run_ids()]
        found = self.files.read_many(paths)
        parsed = (self._parsed(RunRecord.from_json, found.get(path), path) for path in paths)
        return tuple(run for run in parsed if run is not None)

    def last_run(self, recipe: str, scale: str) -> RunRecord | None:
        """The run of a recipe at a scale that began last: two reads, however many there are.

        Where the note of it is gone or leads nowhere, the newest by name.
        """
        path = _last_path(recipe, scale)
        noted = self._parsed(lambda text: str(json.loads(text)["run"]), self.files.read(path), path)
        found = self._run_of(noted, recipe, scale) if noted else None
        return found if found is not None else next(self.runs_of(recipe, scale), None)

    def runs_of(self, recipe: str, scale: str) -> Iterator[RunRecord]:
        """The runs of a recipe at a scale, newest first by name, each read when it is asked for."""
        ending = f"-{run_slug(recipe, scale)}"
        for run_id in reversed(self.run_ids()):
            if run_id.endswith(ending) and (found := self._run_of(run_id, recipe, scale)) is not None:
                yield found

    def _run_of(self, run_id: str, recipe: str, scale: str) -> RunRecord | None:
        path = f".runs/{run_id}.json"
        found = self._parsed(RunRecord.from_json, self.files.read(path), path)
        return found if found is not None and (found.recipe, found.scale) == (recipe, scale) else None

    def write_run(self, record: RunRecord) -> None:
        """Put a run on record; when it begins, note it as the last of its recipe and scale."""
        self.files.write(f".runs/{record.id}.json", _bytes(redact_document(record.to_json())))
        if not record.ended:
            self.files.write(_last_path(record.recipe, record.scale), _bytes(json.dumps({"run": record.id})))


def run_slug(recipe: str, scale: str) -> str:
    stem = recipe.rpartition("/")[2].removesuffix(".py")
    return "".join(character if character.isalnum() else "_" for character in f"{stem}-{scale}")


def checked(record: Record | None, content_key: str) -> Record | None:
    """The record if it is a finished artifact of this very content key."""
    if record is None or not record.finished:
        return None
    if record.content_key != content_key:
        if address_of("", record.content_key) == address_of("", content_key):
            raise StoreError(
                f"{record.address}: its record has content key {record.content_key}, asked for was {content_key}; "
                "two keys share one address, which should not happen in the life of the universe"
            )
        return None
    return record


def accepted(record: Record | None, acceptance: Acceptance | None) -> Record | None:
    """The record if it is a finished artifact and the very one that was accepted."""
    if record is None or acceptance is None or not record.finished:
        return None
    return record if record.content_key == acceptance.accepted_key else None


def _first_difference(wanted: Iterable[FileRecord], found: dict[str, FileInfo]) -> str:
    for file in wanted:
        info = found.get(file.path)
        if info is None:
            return f"{file.path} is missing"
        if info.size != file.size:
            return f"{file.path} has {info.size} bytes, {file.size} were written"
        scheme = file.digest.partition(":")[0]
        if info.has_checksum and info.mark.startswith(f"{scheme}:") and info.mark != file.digest:
            return f"{file.path} has other content than was written (checksum {info.mark}, was {file.digest})"
    return ""


def _last_path(recipe: str, scale: str) -> str:
    return f".index/last/{run_slug(recipe, scale)}-{hashlib.sha256(f'{recipe} {scale}'.encode()).hexdigest()[:8]}.json"


def _parse_acceptance(data: bytes, path: str) -> Acceptance:
    try:
        return Acceptance.from_json(data.decode())
    except (ValueError, TypeError, KeyError) as error:
        raise StoreError(
            f"{path}: not an acceptance ({type(error).__name__}: {error}); move it away and accept again"
        ) from error


def _bytes(text: str) -> bytes:
    return redact(text).encode()
