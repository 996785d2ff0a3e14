"""Secrets: their names are recorded, their values nowhere.

    token = Secret("HF_TOKEN")      in a config: the key holds the name
    token.value()                   in a step's function: read from the environment of the process that runs it

Whatever is written for people or for the record passes through `redact`, which knows every value handed out in this
process and the shape of credentials in URLs.
"""

import dataclasses
import os
import re
from typing import Any

from executor.errors import MarinadeError

_HIDDEN = "***"
_SHORTEST = 4
_revealed: set[str] = set()
_USER_INFO = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.\-]*://)[^\s/@\"'<>]+@")
_QUERY = re.compile(
    r"(?P<name>[?&;](?:access_token|token|api_key|apikey|key|password|passwd|secret|sig|signature|"
    r"x-amz-signature|x-amz-credential|x-amz-security-token|x-goog-signature|x-goog-credential)=)[^&\s\"'<>]+",
    re.IGNORECASE,
)


@dataclasses.dataclass(frozen=True)
class Secret:
    """The name of an environment variable whose value must not be written down."""

    name: str

    def value(self) -> str:
        """The value, from this process's environment; from here on every log and record written by it hides it."""
        value = os.environ.get(self.name)
        if value is None:
            raise MarinadeError(f"secret {self.name} is not set here: export {self.name}=... where the step runs")
        reveal(value)
        return value


def reveal(value: str) -> None:
    """Hide `value` in everything that this process writes from now on."""
    if len(value) >= _SHORTEST:
        _revealed.add(value)


def redact(text: str) -> str:
    """The text without secret values and without credentials in URLs."""
    for value in sorted(_revealed, key=len, reverse=True):
        text = text.replace(value, _HIDDEN)
    return without_credentials(text)


def without_credentials(text: str) -> str:
    """The text without what URLs in it say of who asks: the same in every process, whatever secrets it knows."""
    if "@" in text and "://" in text:
        text = _USER_INFO.sub(rf"\g<scheme>{_HIDDEN}@", text)
    if "=" in text:
        text = _QUERY.sub(rf"\g<name>{_HIDDEN}", text)
    return text


def redact_json(value: Any) -> Any:
    """The same for every string inside a JSON value, keys included."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {redact(name): redact_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(redact_json(item) for item in value)
    return value
