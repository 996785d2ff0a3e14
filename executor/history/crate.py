"""A lineage as an RO-Crate that other tools read: a folder with `ro-crate-metadata.json` and all records.

    write_crate(lineage, "hero-lineage")

It follows the Process Run Crate profile (https://w3id.org/ro/wfrun/process/0.5): every attempt behind the artifact is a
CreateAction; its instrument is the step's function at a commit, its objects are what it read (artifacts, raw data,
values of its config), its result is what it wrote. Artifacts are named by address and attempt and described by place,
digest and size; their files stay where they are.
"""

import io
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from executor.errors import UsageError
from executor.history.lineage import Ancestor, Lineage
from executor.storage.record import InputRecord, Record

if TYPE_CHECKING:
    from rocrate.rocrate import ROCrate

PROFILE = "https://w3id.org/ro/wfrun/process/0.5"
_SPECIFICATION = "1.1"
_STATUS = {"succeeded": "CompletedActionStatus", "running": "ActiveActionStatus"}


def write_crate(lineage: Lineage, folder: str) -> None:
    """Write the crate. Raises UsageError where the folder has something in it already."""
    from rocrate.rocrate import ROCrate

    if os.path.exists(folder) and (not os.path.isdir(folder) or os.listdir(folder)):
        raise UsageError(f"--crate {folder}: there is something already; name a folder that is new or empty")
    crate = ROCrate(version=_SPECIFICATION)
    root = lineage.root
    crate.name = f"{root.name} and how it came to be"
    crate.description = (
        f"The step {root.name} ({root.address}, attempt {root.attempt}) and the {len(lineage.ancestors) - 1} steps "
        "behind it, as their records have them. A file for each record is in records/."
    )
    crate.datePublished = root.ended or root.started
    _add(crate, PROFILE, "CreativeWork", name="Process Run Crate", version="0.5")
    crate.root_dataset["conformsTo"] = {"@id": PROFILE}
    crate.root_dataset["mainEntity"] = {"@id": _artifact_id(root.address, root.attempt)}
    crate.root_dataset["mentions"] = [{"@id": _action(crate, lineage, item)} for item in lineage.ancestors]
    crate.write(Path(folder))


def _add(crate: "ROCrate", at: str, kind: str, **properties: Any) -> str:
    """An entity, once; what is empty is left out. Returns its id."""
    from rocrate.model import ContextEntity

    if crate.get(at) is None:
        kept = {name: value for name, value in properties.items() if value not in ("", None, [])}
        crate.add(ContextEntity(crate, at, properties={"@type": kind, **kept}))
    return at


def _action(crate: "ROCrate", lineage: Lineage, item: Ancestor) -> str:
    record = item.record
    path = f"records/{record.address}/{record.attempt}.json"
    text = io.StringIO(record.to_json())
    crate.add_file(text, path, properties={"name": f"record of {record.name}", "encodingFormat": "application/json"})
    read = [_input(crate, lineage, number, found) for found, number in item.inputs]
    return _add(
        crate,
        f"#attempt/{record.address}/{record.attempt}",
        "CreateAction",
        name=record.name,
        description=" ".join(record.provenance.get("command", ())),
        startTime=record.started,
        endTime=record.ended,
        actionStatus=f"http://schema.org/{_STATUS.get(record.status, 'FailedActionStatus')}",
        error=record.error.partition("\n")[0],
        instrument={"@id": _function(crate, record)},
        object=[{"@id": entity} for entity in dict.fromkeys((*read, *_values(crate, record)))],
        result={"@id": _artifact(crate, record)},
        subjectOf={"@id": path},
    )


def _function(crate: "ROCrate", record: Record) -> str:
    """What ran: a function of the recipe's project at a commit."""
    name, facts = str(record.payload.get("function", "")), record.provenance
    commit = facts.get("commit", "")
    version = f"{commit} with changes" if commit and facts.get("modified") else commit
    return _add(
        crate,
        f"#function/{name}@{commit or 'unknown'}",
        "SoftwareApplication",
        name=name,
        softwareVersion=version,
        softwareRequirements=[f"{package} {at}" for package, at in facts.get("versions", {}).items()],
    )


def _artifact_id(address: str, attempt: str) -> str:
    return f"#artifact/{address}/{attempt}"


def _artifact(crate: "ROCrate", record: Record) -> str:
    return _add(
        crate,
        _artifact_id(record.address, record.attempt),
        "Dataset",
        name=record.name,
        identifier=[text for text in (record.recipe_key, record.digest) if text],
        contentSize=str(sum(file.size for file in record.files)),
    )


def _input(crate: "ROCrate", lineage: Lineage, number: int | None, found: InputRecord) -> str:
    """A step's artifact; raw data, and what has no record any more, is known by place and digest."""
    if number is not None:
        source = lineage.ancestors[number].record
        return _artifact_id(source.address, source.attempt)
    return _add(
        crate,
        f"#data/{found.digest}",
        "Dataset",
        name=f"{found.step}/{found.part}" if found.part else found.step,
        identifier=found.digest,
        url=found.location,
    )


def _values(crate: "ROCrate", record: Record) -> list[str]:
    """The fields of the step's config as parameters, each with its value as canonical JSON."""
    config = record.payload.get("config")
    fields = {name: value for name, value in config.items() if name != "$type"} if isinstance(config, dict) else {}
    return [
        _add(
            crate,
            f"#value/{record.address}/{name}",
            "PropertyValue",
            name=name,
            value=value if isinstance(value, str | int | float) else json.dumps(value, sort_keys=True),
        )
        for name, value in fields.items()
    ]
