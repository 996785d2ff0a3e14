"""The JSON that says how an artifact came to be; docs/record.md describes it, schemas/record.json checks it.

A record is written last, by the one who holds the lease; an artifact exists only if its record says `succeeded`.
It keeps the payload of every key beside the key, so that a change can be shown as fields instead of hashes.
"""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterable
from typing import Any, Literal

SCHEMA = 2

Status = Literal["succeeded", "failed", "interrupted", "halted", "stopped_at_milestone", "running"]


@functools.cache
def _fields(kind: type) -> frozenset[str]:
    return frozenset(field.name for field in dataclasses.fields(kind))


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputRecord:
    """One input as it was read.

    Attributes:
        path: config field that held it, dotted (`mixture.tokens.code`).
        step: name of the step it came from.
        part: file or folder of the artifact, empty for all of it; for a milestone `@{training step}`.
        recipe_key: key of the step it came from.
        digest: what was read, as a digest.
        location: where it was read.
        execution_only: True where the field does not enter the key.
    """

    path: str
    step: str
    part: str = ""
    recipe_key: str
    digest: str
    location: str
    execution_only: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileRecord:
    """One file of an artifact: path relative to the attempt, size in bytes, digest."""

    path: str
    size: int
    digest: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    """How one attempt of a step came to be what it is.

    Attributes:
        amends: name of the step that this one amends, empty for none.
        payload: what the recipe key hashes, canonical JSON: function, config with defaults, inputs by recipe key, code.
        execution_only: the config's execution-only fields, by dotted path.
        code: qualified name of every reachable function -> fingerprint.
        source: the same names -> source text.
        resources: what the attempt was given.
        provenance: recipe, arguments, git commit and branch, digest of the patch, versions, host, devices, Ray job.
        number: the attempts at this address are counted from 1; no clock decides which came later.
        digest: of the whole artifact, from `files`, or the attempt's identity when opaque.
    """

    schema: int = SCHEMA
    name: str
    amends: str = ""
    address: str
    attempt: str
    number: int = 1
    status: Status
    recipe_key: str
    content_key: str
    digest: str = ""
    payload: dict[str, Any]
    execution_only: dict[str, Any] = dataclasses.field(default_factory=dict)
    inputs: tuple[InputRecord, ...] = ()
    code: dict[str, str] = dataclasses.field(default_factory=dict)
    source: dict[str, str] = dataclasses.field(default_factory=dict)
    files: tuple[FileRecord, ...] = ()
    result: dict[str, Any] | None = None
    milestones: tuple[int, ...] = ()
    events: tuple[dict[str, Any], ...] = ()
    error: str = ""
    started: str
    ended: str = ""
    wall_seconds: float = 0.0
    resources: dict[str, Any] = dataclasses.field(default_factory=dict)
    provenance: dict[str, Any] = dataclasses.field(default_factory=dict)

    def to_json(self) -> str:
        return self._json

    @functools.cached_property
    def _json(self) -> str:  # kept, as a finished record is written twice and told to the driver
        return _dumps(self)

    @property
    def finished(self) -> bool:
        """True when the attempt wrote the whole artifact."""
        return self.status == "succeeded"

    def part_digest(self, part: str = "") -> str:
        """Digest of the artifact, or of the files at or under one part of it; empty where there is no such file.

        Opaque artifacts, and parts of which a file was not read, have the attempt's identity in place of a content.
        """
        if not part:
            return self.digest
        return digest_of_files(self.files, part) or ""

    @classmethod
    def from_json(cls, text: str) -> "Record":
        """Read a record; fields of later schemas that are unknown here are ignored."""
        data = json.loads(text)
        known = _fields(cls)
        data = {name: value for name, value in data.items() if name in known}
        data["inputs"] = tuple(InputRecord(**item) for item in data.get("inputs", ()))
        data["files"] = tuple(FileRecord(**item) for item in data.get("files", ()))
        data["resources"] = dict(data.get("resources", {}))
        data["milestones"] = tuple(data.get("milestones", ()))
        data["events"] = tuple(data.get("events", ()))
        return cls(**data)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MilestoneRecord:
    """A published part of an attempt; written once, never changed.

    Attributes:
        at: the training step it stands for.
        part: folder under the attempt.
        digest: identity of the milestone when the step is opaque, else digest of its files.
    """

    at: int
    name: str
    address: str
    attempt: str
    part: str
    recipe_key: str
    content_key: str
    digest: str
    files: tuple[FileRecord, ...] = ()
    result: dict[str, Any] | None = None
    published: str

    def to_json(self) -> str:
        return _dumps(self)

    @classmethod
    def from_json(cls, text: str) -> "MilestoneRecord":
        data = json.loads(text)
        known = _fields(cls)
        data = {name: value for name, value in data.items() if name in known}
        data["files"] = tuple(FileRecord(**item) for item in data.get("files", ()))
        return cls(**data)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunRecord:
    """One run of a recipe: written before anything starts, completed with its outcome at the end.

    Attributes:
        machine, process_started: with `pid` the one process that ran it (executor.storage.processes).
        experiment: hypothesis, issue, criteria and prediction as declared before the run, with their hash; `known`
            names the steps that they are about and whose results were there by then.
        status: how it ended: succeeded, failed, stopped (halted, or a step left undone) or interrupted; empty until
            then.
        verdict: on the experiment, as executor.experiments.verdict has it; empty while the run goes on.
        steps: name -> key, payload, and the content key and address known when it began; every step of the graph.
        outcome: name -> status, address, attempt, content_key; the run it is of; seconds, cpus, gpus of the last
            attempt. Steps that the run left out keep the outcome of the run
            before; the others have none while the run goes on (or if it was killed).
    """

    schema: int = SCHEMA
    id: str
    recipe: str
    scale: str
    arguments: tuple[str, ...] = ()
    started: str
    ended: str = ""
    host: str = ""
    pid: int = 0
    machine: str = ""
    process_started: str = ""
    experiment: dict[str, Any] = dataclasses.field(default_factory=dict)
    steps: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    outcome: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    status: str = ""
    verdict: dict[str, Any] = dataclasses.field(default_factory=dict)

    def to_json(self) -> str:
        # Its fields hold JSON only, of every step of the graph: asdict would copy all of that first.
        return json.dumps({name: getattr(self, name) for name in _fields(type(self))}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "RunRecord":
        data = json.loads(text)
        known = _fields(cls)
        data = {name: value for name, value in data.items() if name in known}
        data["arguments"] = tuple(data.get("arguments", ()))
        return cls(**data)


def _dumps(record: Any) -> str:
    fields = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    return json.dumps(fields, indent=1, sort_keys=True, default=dataclasses.asdict)


def digest_of_files(files: Iterable[FileRecord], part: str = "") -> str | None:
    """Digest of relative paths, sizes and file digests at or under `part`; None where nothing is there."""
    chosen = files_under(files, part)
    if not chosen:
        return None
    lines = [[name, file.size, file.digest] for name, file in sorted(chosen.items())]
    text = json.dumps(lines, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def files_under(files: Iterable[FileRecord], part: str) -> dict[str, FileRecord]:
    """Files at or under a part, by path relative to it (a single file by its own name)."""
    found: dict[str, FileRecord] = {}
    for file in files:
        if not part:
            found[file.path] = file
        elif file.path == part:
            found[file.path.rpartition("/")[2]] = file
        elif file.path.startswith(part + "/"):
            found[file.path[len(part) + 1 :]] = file
    return found
