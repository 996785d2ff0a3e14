"""Which steps have what is wanted of them: content keys, artifacts and milestones, found in waves from the sources.

Once the inputs of a step are known so is its content key, and with it whether there is an artifact. Each wave is one
batch of reads, and mostly none: the records that are likely to count have been read before.

Invariant: a step is a hit only by a record of its very content key (or one accepted for it), every wanted milestone
among it, and its files there where that matters.
"""

from collections.abc import Callable, Iterable

from executor.errors import MarinadeError
from executor.external import is_raw
from executor.keys.graph import Graph, InputRef
from executor.planning.results import Results
from executor.storage.record import MilestoneRecord, Record
from executor.storage.store import Store, checked


class Settled:
    """What is there for the steps of one graph.

    Attributes:
        content_keys: name -> content key, empty while an input is not known.
        hits: steps that have all that is wanted of them.
        missing: name -> which files are gone, in words; such a step is no hit.
        broken: name -> why its inputs cannot be read, in words.
        superseded: name -> attempts whose records do not count, since files are missing.
    """

    def __init__(self, graph: Graph, store: Store, results: Results, forced: frozenset[str]) -> None:
        self.graph, self.store, self.results, self.forced = graph, store, results, forced
        self.content_keys: dict[str, str] = {}
        self.hits: set[str] = set()
        self.missing: dict[str, str] = {}
        self.broken: dict[str, str] = {}
        self.superseded: dict[str, tuple[str, ...]] = {}
        self._likely: dict[str, Record | None] = {}
        self._contents: dict[tuple[str, str], Record | None] = {}
        self._addresses: dict[tuple[str, str], str] = {}
        self._published: dict[str, dict[int, MilestoneRecord]] = {}
        self._present: dict[tuple[str, str, int | None], str] = {}

    def read(self, likely: dict[str, str]) -> None:
        """Read the records at the addresses where the steps' artifacts most likely are: name -> address."""
        records = self.store.records(likely.values())
        self._likely = {name: records[address] for name, address in likely.items()}

    def settle(self, needed: list[str], whole: set[str], wanted: dict[str, set[int]]) -> None:
        """Find content keys and artifacts, in waves from the sources."""
        for name in needed:  # an earlier look may have found more than is there
            result = self.results.of(name)
            result.record, result.milestones = None, {}
        self.hits.clear()
        self.content_keys.clear()
        self.broken.clear()
        readers = self._readers(needed)
        left = {name: len({ref.step for ref in self.graph.inputs[name] if not ref.execution_only}) for name in needed}
        wave = [name for name in needed if left[name] == 0]
        while wave:
            self._settle_wave(wave, whole, wanted)
            following: list[str] = []
            for name in wave:
                for consumer, references in readers[name].items():
                    if all(self._is_known(ref) for ref in references):
                        left[consumer] -= 1
                        if left[consumer] == 0:
                            following.append(consumer)
            wave = following

    def _readers(self, needed: list[str]) -> dict[str, dict[str, list[InputRef]]]:
        """Step -> step that reads it -> what it reads; of a join of ten thousand each input is looked at once."""
        readers: dict[str, dict[str, list[InputRef]]] = {name: {} for name in self.graph.steps}
        for name in needed:
            for reference in self.graph.inputs[name]:
                if not reference.execution_only:
                    readers[reference.step].setdefault(name, []).append(reference)
        return readers

    def _is_known(self, reference: InputRef) -> bool:
        """True where an input can be read now: a milestone of an unfinished step, too."""
        try:
            return bool(self.results.digest(reference))
        except MarinadeError:  # the part is not there; the consumer's own turn says so
            return True

    def _settle_wave(self, wave: list[str], whole: set[str], wanted: dict[str, set[int]]) -> None:
        unknown: dict[str, str] = {}
        for name in wave:
            if is_raw(self.graph.steps[name]):
                raw = self.results.of(name).raw
                if raw is not None and raw.digest:
                    self.hits.add(name)
                continue
            try:
                key = self.content_keys[name] = self.results.content_key(name)
            except MarinadeError as error:  # the artifact at hand lacks a part: its step runs again and says so itself
                self.broken[name] = str(error)
                continue
            record = checked(self._likely.get(name), key)
            if record is not None:
                self._contents[name, key] = record
            elif key and (name, key) not in self._contents:
                unknown[name] = key
        addresses = self.store.index.addresses(unknown) if unknown else {}
        for name, record in self.store.find_contents(unknown, addresses).items() if unknown else ():
            self._contents[name, unknown[name]] = record
            self._addresses[name, unknown[name]] = addresses[name]
        known = [name for name in wave if self.content_keys.get(name)]
        places = {self._milestones_at(name, self.content_keys[name]) for name in known if wanted[name]}
        self._published |= self.store.milestones_at(places - self._published.keys())
        for name in known:
            self._decide(name, self.content_keys[name], name in whole, wanted[name])

    def _decide(self, name: str, key: str, whole: bool, wanted: set[int]) -> None:
        record = self._contents[name, key]
        result = self.results.of(name)
        result.record, result.milestones = None, {}
        if wanted:
            result.milestones = self._published[self._milestones_at(name, key)]
        if name in self.forced or name in self.missing:
            if record is not None and name not in self.forced:
                self.superseded[name] = (record.attempt,)
            result.milestones = {}
            return
        if record is not None:
            result.record = record
        if (record is not None or not whole) and wanted <= set(result.milestones):
            self.hits.add(name)

    def address(self, name: str, content_key: str) -> str:
        """Where the attempts at this work lie, which may have been begun under another name.

        An artifact that was accepted for it is other work: what is run now must not take its place.
        """
        record = self._contents.get((name, content_key))
        if record is not None and record.content_key == content_key:
            return record.address
        return self._addresses.get((name, content_key), "")

    def _milestones_at(self, name: str, content_key: str) -> str:
        """Where the milestones of this work lie; an accepted artifact's count, too."""
        record = self._contents[name, content_key]
        return record.address if record is not None else self.address(name, content_key)

    def check_files(
        self, needed: list[str], used: Iterable[str], whole: set[str], wanted: dict[str, set[int]]
    ) -> dict[str, str]:
        """Hits among the used steps that lack files: name -> what is missing."""
        used = frozenset(used)
        looks: dict[str, Callable[[], str]] = {}
        gone: dict[str, str] = {}
        for name in needed:
            result = self.results.of(name)
            if name not in self.hits or name not in used or result.raw is not None:
                continue
            found: list[tuple[str, Record | MilestoneRecord]] = []
            found += [(f"milestone {at}: ", result.milestones[at]) for at in sorted(wanted[name])]
            if name in whole and result.record is not None:
                found.append(("", result.record))
            looks[name] = lambda found=found: self._absent(found)
        for name, absent in self.store.files.each(lambda name: looks[name](), looks).items():
            if absent:
                gone[name] = absent
        return gone

    def _absent(self, found: list[tuple[str, Record | MilestoneRecord]]) -> str:
        """What is missing of the first that lacks something; a look at each is taken once."""
        for prefix, record in found:
            at = record.at if isinstance(record, MilestoneRecord) else None
            if (record.address, record.attempt, at) not in self._present:
                looked = self.store.absent(record) if isinstance(record, Record) else self.store.absent_from(record)
                self._present[record.address, record.attempt, at] = looked
            if absent := self._present[record.address, record.attempt, at]:
                return prefix + absent
        return ""
