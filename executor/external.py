"""Raw inputs as steps: data that no step of ours made.

    external("gs://bucket/tokens", digest="sha256:...")    the digest is identity; where it lies is not
    adopt("gs://bucket/raw/*.jsonl")                       the URL is identity; its listing is the content

Both are resolved when a plan is made: nothing runs. A listing that cannot be reached leaves its consumers at `maybe`.
"""

import dataclasses
import hashlib
import re
from typing import Any

from executor.errors import MarinadeError
from executor.keys.identity import hash_json
from executor.secrets import redact
from executor.step import Step, execution

_DIGEST = re.compile(r"(sha256:)?[0-9a-f]{64}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExternalConfig:
    """Data known by its digest: sha256 of the file, or of the listing `path size sha256` of a folder."""

    digest: str
    url: str = execution("")


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdoptConfig:
    """Data known by where it is. Credentials in the URL are used, never recorded."""

    url: str
    access: str = execution("")


def external_data(config: ExternalConfig, output: str) -> None:
    """Never called: external data is there already."""
    raise MarinadeError("external data is not made by a step")


def adopted_data(config: AdoptConfig, output: str) -> None:
    """Never called: adopted data is there already."""
    raise MarinadeError("adopted data is not made by a step")


def external(url: str, *, digest: str, name: str = "") -> Step:
    """Data that must have this digest, wherever it lies (`sha256:` and 64 hex digits)."""
    if not _DIGEST.fullmatch(digest):
        raise MarinadeError(f"external({redact(url)!r}): digest {digest!r} is not sha256: and 64 hex digits")
    digest = "sha256:" + digest.removeprefix("sha256:")
    return Step(
        name or _name("external", url, digest), external_data, ExternalConfig(digest=digest, url=url), code="pin"
    )


def adopt(url: str, *, name: str = "") -> Step:
    """Data at a URL (a file, a folder or a glob), known by its listing: relative path, size, checksum else mtime."""
    shown = redact(url)
    access = url if shown != url else ""
    return Step(name or _name("adopt", shown, shown), adopted_data, AdoptConfig(url=shown, access=access), code="pin")


def _name(kind: str, url: str, distinct: str) -> str:
    tail = re.sub(r"[^A-Za-z0-9._-]+", "-", url.rstrip("/").rpartition("/")[2]).strip("-")[:40]
    return f"{kind}/{tail or 'data'}-{hashlib.sha256(distinct.encode()).hexdigest()[:6]}"


def is_raw(step: Step) -> bool:
    """True for external and adopted data."""
    return isinstance(step.config, ExternalConfig | AdoptConfig)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RawData:
    """Raw data as it was found: `digest` empty and `unreachable` set where the listing could not be taken."""

    location: str
    digest: str = ""
    unreachable: str = ""


def look(step: Step) -> RawData:
    """Resolve external or adopted data without reading its content."""
    config = step.config
    location = config.url if isinstance(config, ExternalConfig) else config.access or config.url
    try:
        listing = list_files(location)
    except Exception as error:
        return RawData(location=location, unreachable=redact(f"{config.url}: {type(error).__name__}: {error}"))
    if not listing:
        return RawData(location=location, unreachable=redact(f"{config.url}: there is no such file"))
    if isinstance(config, ExternalConfig):
        return RawData(location=location, digest=config.digest)
    return RawData(location=location, digest="listing:" + hash_json(listing))


def list_files(url: str) -> list[list[Any]]:
    """[relative path, size, checksum or mtime] of every file under a URL or glob, sorted; fresh, not from a cache."""
    from executor.storage.places import open_files

    return open_files(url).listing()


def verify(step: Step, location: str) -> None:
    """Read external data and compare with the digest it was declared to have."""
    from executor.storage.places import open_files

    if not isinstance(step.config, ExternalConfig):
        return
    found = open_files(location).content_digest()
    if found != step.config.digest:
        raise MarinadeError(
            f"{step.name}: the data at {redact(location)} has digest {found}, declared was {step.config.digest}; "
            "fetch it again, or declare the digest it really has"
        )
