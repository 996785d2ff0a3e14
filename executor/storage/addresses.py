"""Addresses: the readable name and the enforced hash of a piece of work, as one folder's name."""

import base64
import re

_SHORT = 16
_ADDRESS = re.compile(rf".+-[a-z2-7]{{{_SHORT}}}")


def address_of(name: str, content_key: str) -> str:
    """`{name}-{short content key}`: readable, and unique by the 80 bits of the hash in it."""
    short = base64.b32encode(bytes.fromhex(content_key)).decode().lower()[:_SHORT]
    return f"{name}-{short}"


def is_inside_artifact(location: str) -> bool:
    """Whether a location has the form of an artifact's: raw data lies elsewhere and has no record."""
    return any(_ADDRESS.fullmatch(part) for part in location.split("/"))
