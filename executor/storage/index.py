"""Shortcuts from keys to addresses, under `.index/`.

    .index/recipe/{recipe key}.json       the artifact that a recipe key led to
    .index/content/{content key}.json     where attempts at a content key lie, under whatever name they were begun
    .index/accepted/{content key}.json    the artifact that was accepted for it

Invariant: nothing here is data. An entry leads to a record, and only the record says whether it counts; a damaged or
missing entry costs a look or a rerun of nothing, and `marinade reindex` writes all of them anew.
"""

import dataclasses
import json
from collections.abc import Iterable

from executor.secrets import redact
from executor.storage.acceptance import Acceptance
from executor.storage.addresses import address_of
from executor.storage.files import Files


@dataclasses.dataclass(frozen=True, kw_only=True)
class IndexEntry:
    """Where the artifact of a recipe key or content key lies."""

    content_key: str
    address: str


class Index:
    """The index of one prefix."""

    def __init__(self, files: Files) -> None:
        self.files = files

    def enter(self, recipe_key: str, entry: IndexEntry) -> None:
        """Note which artifact a recipe key led to."""
        self.files.write(f".index/recipe/{recipe_key}.json", _entry_bytes(entry), checked=True)

    def enter_all(self, by_recipe_key: dict[str, IndexEntry], contents: Iterable[IndexEntry]) -> None:
        """Note where artifacts lie by recipe key and by content, several at once."""
        by_content_key = {entry.content_key: entry for entry in contents}
        self.files.each(lambda key: self.enter_content(by_content_key[key]), by_content_key)
        self.files.each(lambda key: self.enter(key, by_recipe_key[key]), by_recipe_key)

    def enter_content(self, entry: IndexEntry) -> None:
        """Note where the attempts at a content key lie, so that they are found under any name of the step."""
        self.files.write(f".index/content/{entry.content_key}.json", _entry_bytes(entry), checked=True)

    def addresses(self, wanted: dict[str, str]) -> dict[str, str]:
        """Step name -> content key, as step name -> address: where attempts at it lie, else where they would."""
        entries = self.lookup("content", wanted.values())
        return {name: entries[key].address if key in entries else address_of(name, key) for name, key in wanted.items()}

    def enter_accepted(self, acceptance: Acceptance) -> None:
        """Note which artifact was accepted for a content key; it counts only with the acceptance itself."""
        entry = IndexEntry(content_key=acceptance.content_key, address=acceptance.address)
        self.files.write(f".index/accepted/{entry.content_key}.json", _entry_bytes(entry))

    def lookup(self, kind: str, keys: Iterable[str]) -> dict[str, IndexEntry]:
        """Index entries for recipe keys (`recipe`) or content keys (`content`, `accepted`); absent where there is none
        to read."""
        paths = {f".index/{kind}/{key}.json": key for key in keys if key}
        found = self.files.read_many(paths)
        entries = {paths[path]: _parse_entry(data) for path, data in found.items()}
        return {key: entry for key, entry in entries.items() if entry is not None}


def _entry_bytes(entry: IndexEntry) -> bytes:
    return redact(json.dumps(dataclasses.asdict(entry), sort_keys=True)).encode()


def _parse_entry(data: bytes) -> IndexEntry | None:
    """None for a damaged entry: the index holds nothing that the records do not, and is written again."""
    try:
        entry = IndexEntry(**json.loads(data))
    except (ValueError, TypeError):
        return None
    return entry if isinstance(entry.content_key, str) and isinstance(entry.address, str) else None
