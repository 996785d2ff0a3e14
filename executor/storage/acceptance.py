"""A person's word that a change keeps the output: a step's new key leads to the artifact of its old one.

    {prefix}/{name}-{content key}/.step/accepted/{new content key}.json

Invariant: an artifact counts for a content key that is not its own only while this file lies beside its record and
names the record's own key; the index alone is never enough.
"""

import dataclasses
import json
from typing import Any

SCHEMA = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Acceptance:
    """Who accepted which change of a step, and why.

    Attributes:
        recipe_key, content_key, payload: of the step as it is now.
        code: qualified name of every function it reaches now -> fingerprint.
        accepted_key: content key of the artifact's record.
        attempt, digest: of the record that counted at the time, for people.
        changes: what was accepted, each `{"kind", "path", "old", "new"}`.
        accepted: when, ISO 8601.
    """

    schema: int = SCHEMA
    name: str
    address: str
    recipe_key: str
    content_key: str
    accepted_key: str
    attempt: str
    digest: str
    payload: dict[str, Any]
    code: dict[str, str]
    changes: tuple[dict[str, Any], ...]
    reason: str
    accepted: str
    host: str
    user: str
    command: tuple[str, ...]

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "Acceptance":
        """Read an acceptance; fields of later schemas that are unknown here are ignored."""
        data = json.loads(text)
        known = {field.name for field in dataclasses.fields(cls)}
        data = {name: value for name, value in data.items() if name in known}
        data["changes"] = tuple(data["changes"])
        data["command"] = tuple(data["command"])
        return cls(**data)
