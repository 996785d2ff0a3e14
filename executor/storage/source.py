"""What an attempt was made from, beside its record: text too long for it.

`.step/attempts/{attempt}/source.json`, written before the step's function is called.
"""

import dataclasses
import json
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """Code and environment of one attempt, without secrets.

    Attributes:
        functions: qualified name -> text of every function, class and constant that the step can reach.
        patch: changes of the checkout that no commit holds; `git apply` takes it on the recorded commit.
        packages: installed distribution -> version.
    """

    functions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    patch: str = ""
    packages: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1, sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> "Source":
        """Schema 1 kept the functions alone, by name."""
        data = json.loads(text)
        if isinstance(data.get("functions"), dict):
            return cls(functions=data["functions"], patch=data.get("patch", ""), packages=data.get("packages", {}))
        return cls(functions=data)
