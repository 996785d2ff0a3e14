"""The store: where artifacts, records, the index and runs lie, and how they come to be there in one move.

    {prefix}/{name}-{content key}/{attempt}/...               data of one attempt
    {prefix}/{name}-{content key}/.step/record.json           the record that counts; an artifact exists only with it
    {prefix}/{name}-{content key}/.step/attempts/{attempt}/   record.json, source.json, log.txt of every attempt
    {prefix}/{name}-{content key}/.step/milestones/{n}.json   published parts
    {prefix}/.index/recipe/{key}.json, content/{key}.json     shortcuts to addresses; can be rebuilt from records
    {prefix}/.leases/{content key}/                           see lease.py
    {prefix}/.runs/{id}.json                                  one file for every run

Invariant: records are replaced in one move, milestones are never replaced, and nothing here deletes data.
"""

import base64
import dataclasses
import json
import os
import secrets as entropy
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from executor.errors import StoreError
from executor.failpoints import reached
from executor.files import FileInfo, open_files
from executor.record import MilestoneRecord, Record, RunRecord, files_under
from executor.secrets import redact

if TYPE_CHECKING:
    from executor.recipe import Recipe

_SHORT = 16


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


def address_of(name: str, content_key: str) -> str:
    """`{name}-{short content key}`: readable, and unique by the 80 bits of the hash in it."""
    short = base64.b32encode(bytes.fromhex(content_key)).decode().lower()[:_SHORT]
    return f"{name}-{short}"


def new_id() -> str:
    """Sorts by time; unique without asking anybody."""
    return (
        time.strftime("%Y%m%dT%H%M%S", time.gmtime())
        + f"{time.time() % 1:.3f}"[1:].replace(".", "")
        + entropy.token_hex(3)
    )


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + f"{time.time() % 1:.3f}"[1:] + "Z"


@dataclasses.dataclass(frozen=True, kw_only=True)
class IndexEntry:
    """Where the artifact of a recipe key or content key lies."""

    content_key: str
    address: str


class Store:
    """One prefix."""

    def __init__(self, prefix: str) -> None:
        self.files = open_files(prefix)
        self.prefix = self.files.root

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
        """The records that count, read together; None for addresses without one."""
        paths = {address: f"{address}/.step/record.json" for address in addresses}
        found = self.files.read_many(paths.values())
        return {address: _parse_record(found.get(path), path) for address, path in paths.items()}

    def attempt(self, address: str, attempt: str) -> Record | None:
        path = f"{address}/.step/attempts/{attempt}/record.json"
        return _parse_record(self.files.read(path), path)

    def attempts(self, address: str) -> tuple[Record, ...]:
        """Records of all attempts, newest first: by their numbers, since hosts' clocks differ."""
        names = self.files.names(f"{address}/.step/attempts")
        paths = [f"{address}/.step/attempts/{name}/record.json" for name in names]
        found = self.files.read_many(paths)
        records = [record for path in paths if (record := _parse_record(found.get(path), path)) is not None]
        return tuple(sorted(records, key=lambda record: (record.number, record.attempt), reverse=True))

    def write_attempt(self, record: Record) -> None:
        self.files.write(f"{record.address}/.step/attempts/{record.attempt}/record.json", _bytes(record.to_json()))

    def write_source(self, address: str, attempt: str, source: dict[str, str]) -> None:
        text = json.dumps(source, indent=1, sort_keys=True)
        self.files.write(f"{address}/.step/attempts/{attempt}/source.json", _bytes(text))

    def source(self, address: str, attempt: str) -> dict[str, str]:
        """Text of the code that an attempt could reach, by qualified name."""
        data = self.files.read(f"{address}/.step/attempts/{attempt}/source.json")
        return json.loads(data) if data is not None else {}

    def commit(self, record: Record) -> None:
        """Make this attempt, which is on record, the artifact: the record that counts, then the index."""
        assert record.finished
        self.files.write(f"{record.address}/.step/record.json", _bytes(record.to_json()))
        reached("record-written")
        self.enter(record.recipe_key, IndexEntry(content_key=record.content_key, address=record.address))
        reached("recipe-indexed")

    def log(self, address: str, attempt: str) -> str:
        data = self.files.read(f"{address}/.step/attempts/{attempt}/log.txt")
        return data.decode(errors="replace") if data is not None else ""

    # Milestones

    def milestones(self, address: str) -> dict[int, MilestoneRecord]:
        folder = f"{address}/.step/milestones"
        found = self.files.read_many(f"{folder}/{name}" for name in self.files.names(folder) if name.endswith(".json"))
        records = [MilestoneRecord.from_json(data.decode()) for data in found.values()]
        return {record.at: record for record in sorted(records, key=lambda record: record.at)}

    def publish(self, record: MilestoneRecord, *, replace: bool = False) -> bool:
        """Put a milestone's record; False if that milestone was published before, which then stays what it is.

        `replace` is for one that does not count any more: forced, or its files are gone.
        """
        path = f"{record.address}/.step/milestones/{record.at}.json"
        if replace:
            self.files.write(path, _bytes(record.to_json()))
            return True
        return self.files.create(path, _bytes(record.to_json()))

    def absent_from(self, milestone: MilestoneRecord) -> str:
        """What is missing of a milestone's files, empty where nothing is."""
        found = self.find(milestone.address, f"{milestone.attempt}/{milestone.part}".rstrip("/"))
        for file in milestone.files:
            if file.path not in found or found[file.path].size != file.size:
                return f"{file.path} is missing or has another size"
        return ""

    # Index

    def enter(self, recipe_key: str, entry: IndexEntry) -> None:
        """Note which artifact a recipe key led to."""
        self.files.write(f".index/recipe/{recipe_key}.json", _entry_bytes(entry))

    def enter_content(self, entry: IndexEntry) -> None:
        """Note where the attempts at a content key lie, so that they are found under any name of the step."""
        self.files.write(f".index/content/{entry.content_key}.json", _entry_bytes(entry))

    def addresses(self, wanted: dict[str, str]) -> dict[str, str]:
        """Step name -> content key, as step name -> address: where attempts at it lie, else where they would."""
        entries = self.lookup("content", wanted.values())
        return {name: entries[key].address if key in entries else address_of(name, key) for name, key in wanted.items()}

    def lookup(self, kind: str, keys: Iterable[str]) -> dict[str, IndexEntry]:
        """Index entries for recipe keys (`recipe`) or content keys (`content`); absent where there is none to read."""
        paths = {f".index/{kind}/{key}.json": key for key in keys if key}
        found = self.files.read_many(paths)
        entries = {paths[path]: _parse_entry(data) for path, data in found.items()}
        return {key: entry for key, entry in entries.items() if entry is not None}

    def find_content(self, name: str, content_key: str) -> Record | None:
        """The finished artifact of a content key, under whatever name."""
        return self.find_contents({name: content_key})[name]

    def find_contents(
        self, wanted: dict[str, str], addresses: dict[str, str] | None = None
    ) -> dict[str, Record | None]:
        """The same for several steps at once: name -> content key (and their addresses, where these are known)."""
        addresses = addresses or self.addresses(wanted)
        records = self.records(addresses.values())
        return {name: checked(records[addresses[name]], key) for name, key in wanted.items()}

    # Files

    def find(self, address: str, attempt: str) -> dict[str, FileInfo]:
        return self.files.find(f"{address}/{attempt}")

    def absent(self, record: Record, part: str = "") -> str:
        """What is missing or has another size among an artifact's files, in words; empty when all are there."""
        wanted = {file.path: file.size for file in files_under(record.files, part).values()}
        if not wanted:
            return ""
        found = self.find(record.address, record.attempt)
        for path, size in wanted.items():
            if path not in found:
                return f"{path} is missing"
            if found[path].size != size:
                return f"{path} has {found[path].size} bytes, {size} were written"
        return ""

    def has_files(self, address: str, attempt: str) -> bool:
        return bool(self.files.names(f"{address}/{attempt}"))

    # Runs

    def run_ids(self) -> tuple[str, ...]:
        """Oldest first."""
        return tuple(name.removesuffix(".json") for name in self.files.names(".runs") if name.endswith(".json"))

    def run(self, run_id: str) -> RunRecord:
        data = self.files.read(f".runs/{run_id}.json")
        if data is None:
            raise StoreError(f"there is no run {run_id} under {self.prefix}/.runs")
        return RunRecord.from_json(data.decode())

    def last_run(self, recipe: str, scale: str) -> RunRecord | None:
        """The newest run of a recipe at a scale."""
        ending = f"-{run_slug(recipe, scale)}"
        for run_id in reversed(self.run_ids()):
            if run_id.endswith(ending):
                found = self.run(run_id)
                if (found.recipe, found.scale) == (recipe, scale):
                    return found
        return None

    def write_run(self, record: RunRecord) -> None:
        self.files.write(f".runs/{record.id}.json", _bytes(record.to_json()))


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


def _entry_bytes(entry: IndexEntry) -> bytes:
    return _bytes(json.dumps(dataclasses.asdict(entry), sort_keys=True))


def _parse_entry(data: bytes) -> IndexEntry | None:
    """None for a damaged entry: the index holds nothing that the records do not, and is written again."""
    try:
        entry = IndexEntry(**json.loads(data))
    except (ValueError, TypeError):
        return None
    return entry if isinstance(entry.content_key, str) and isinstance(entry.address, str) else None


def _parse_record(data: bytes | None, path: str) -> Record | None:
    if data is None:
        return None
    try:
        return Record.from_json(data.decode())
    except (ValueError, TypeError, KeyError) as error:
        raise StoreError(
            f"{path}: not a record ({type(error).__name__}: {error}); move it away to run the step again"
        ) from error


def _bytes(text: str) -> bytes:
    return redact(text).encode()


def read_record(location: str) -> Record:
    """The record of the artifact that a location belongs to: an artifact's folder, an attempt, a file in it.

    The attempt that the location names counts, so a checkpoint leads to the attempt that wrote it.
    """
    store, address, attempt = locate(location)
    record = store.attempt(address, attempt) if attempt else store.record(address)
    if record is None:
        raise StoreError(f"{redact(location)}: no record of {f'attempt {attempt} of ' if attempt else ''}{address}")
    return dataclasses.replace(record, source=store.source(address, record.attempt))


def locate(location: str) -> tuple[Store, str, str]:
    """The store (rooted at the artifact's parent folder), address and attempt that a location belongs to."""
    files = open_files(location)
    here, below = files.root, ""
    while True:
        parent, _, name = here.rpartition("/")
        if not name or parent.endswith(":/"):
            break
        if name != ".step" and {"attempts", "record.json"} & set(open_files(here + "/.step").names("")):
            attempt = below.split("/")[0]
            if attempt == ".step":
                parts = below.split("/")
                attempt = parts[2] if len(parts) > 2 and parts[1] == "attempts" else ""
            return Store(parent), name, attempt
        here, below = parent, f"{name}/{below}" if below else name
    raise StoreError(f"{redact(location)}: belongs to no artifact (no .step folder there or above it)")
