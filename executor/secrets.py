"""Secrets: their names are recorded, their values nowhere.

    token = Secret("HF_TOKEN")      in a config: the key holds the name
    token.value()                   in a step's function: read from the environment of the process that runs it

Whatever is written for people or for the record passes through `redact`, which knows every value handed out in this
process, the values of environment variables whose names say that they are secret, the shape of credentials in URLs and
that of common tokens. Keys are made before, from what the recipe says, and never depend on an environment.
"""

import dataclasses
import json
import os
import re
from collections.abc import Mapping
from typing import Any, TextIO

from executor.errors import MarinadeError

HIDDEN = "***"
_SHORTEST = 4
_SHORTEST_GUESSED = 8
_revealed: set[str] = set()
_SECRET_NAME = re.compile(
    r"(?:^|_)(?:API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASS|CREDENTIALS?)(?:_|$)", re.IGNORECASE
)
_TOKEN = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_\-]{20,}|gh[opsur]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,}|"
    r"glpat-[A-Za-z0-9_\-]{20,}|xox[abprs]-[A-Za-z0-9\-]{20,}|AKIA[0-9A-Z]{16}|AIza[A-Za-z0-9_\-]{35})"
)
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


def reveal_environment(environment: Mapping[str, str] = os.environ) -> None:
    """Hide the values of variables such as WANDB_API_KEY or DB_PASSWORD, which steps may read without saying so.

    Plain words, short values and paths (a file of credentials) are left alone: hiding them would garble other text.
    """
    for name, value in environment.items():
        plain = value.isalpha() or value.isdigit() or os.path.isabs(value)
        if len(value) >= _SHORTEST_GUESSED and not plain and _SECRET_NAME.search(name):
            reveal(value)


def redact(text: str) -> str:
    """The text without secret values, tokens, and credentials in URLs."""
    for value in sorted(_revealed, key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    return without_credentials(_TOKEN.sub(HIDDEN, text))


def redact_document(text: str) -> str:
    """The same for a JSON text as a whole, in which values stand escaped."""
    for value in sorted(_revealed, key=len, reverse=True):
        text = text.replace(json.dumps(value)[1:-1], HIDDEN)
    return redact(text)


class RedactedStream:
    """A text stream that hides secrets; everything else is the original's."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(redact(text))

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def without_credentials(text: str) -> str:
    """The text without what URLs in it say of who asks: the same in every process, whatever secrets it knows."""
    if "@" in text and "://" in text:
        text = _USER_INFO.sub(rf"\g<scheme>{HIDDEN}@", text)
    if "=" in text:
        text = _QUERY.sub(rf"\g<name>{HIDDEN}", text)
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
