"""The prediction on record: a file of its own in the run's folder, created once and never replaced.

    {prefix}/.runs/{run id}/prediction.json

Invariant: it is written when the step that makes the prediction is committed (or found to be), before any step that
reads that one starts.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from executor.experiments.verdict import Known, Unread, read
from executor.storage.stamps import now

if TYPE_CHECKING:
    from executor.storage.record import Record
    from executor.storage.store import Store


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prediction:
    """What was said, when, and by what.

    Attributes:
        run: id of the run that put it on record.
        declaration: hash of the declaration it belongs to.
        step, path: where the number stands: `step.result(path)`.
        address, attempt, digest: the artifact that it comes from.
        at: when it was put on record, ISO 8601.
    """

    run: str
    declaration: str
    step: str
    path: str
    value: float
    address: str
    attempt: str
    digest: str
    at: str

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "Prediction":
        return cls(**json.loads(text))


def enter(store: "Store", run_id: str, declared: Mapping[str, Any], record: "Record") -> str:
    """Put on record what the artifact says. Returns why it could not be, empty where it was."""
    value = declared["prediction"]
    try:
        number = read(value, {value["step"]: Known(result=record.result or {})})
    except Unread as error:
        return str(error)
    if isinstance(number, Mapping):
        return f"{value['step']}.{value['path']} is not one number"
    prediction = Prediction(
        run=run_id,
        declaration=declared["hash"],
        **value,
        value=number,
        address=record.address,
        attempt=record.attempt,
        digest=record.digest,
        at=now(),
    )
    try:
        store.files.create(_path(run_id), prediction.to_json().encode(), checked=True)
    except OSError as error:
        return str(error)
    return ""


def predictions(store: "Store", run_ids: Iterable[str]) -> dict[str, Prediction]:
    """Run -> its prediction, read together; runs that have none are left out, and damaged ones noted in the store."""
    found: dict[str, Prediction] = {}
    paths = {_path(run_id): run_id for run_id in run_ids}
    for path, data in store.files.read_many(paths).items():
        try:
            found[paths[path]] = Prediction.from_json(data.decode())
        except (ValueError, TypeError) as error:
            store.unreadable[path] = f"{type(error).__name__}: {error}"
    return found


def _path(run_id: str) -> str:
    return f".runs/{run_id}/prediction.json"
