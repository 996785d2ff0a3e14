"""What differs between two payloads, as dotted paths with both values.

Values are compared as canonical JSON text, so that 1, 1.0 and true differ as they do in keys.
"""

from collections.abc import Mapping
from typing import Any

from executor.keys.identity import canonical_json
from executor.keys.reason import Reason
from executor.secrets import redact_json

_ABSENT = object()


def payload_changes(old: dict[str, Any], new: dict[str, Any]) -> tuple[Reason, ...]:
    """Reasons of kind config, code, input and version; an input's own change is of kind input and names its step."""
    new = redact_json(new)  # as the old one was before it was written
    reasons: list[Reason] = []
    if old.get("function") != new.get("function"):
        reasons.append(Reason(kind="code", path="function", old=old.get("function"), new=new.get("function")))
    if old.get("version", "") != new.get("version", ""):
        reasons.append(Reason(kind="version", path="version", old=old.get("version", ""), new=new.get("version", "")))
    reasons += _code_changes(code_of(old), code_of(new))
    before, after = flatten(old.get("config")), flatten(new.get("config"))
    for path in (*after, *(path for path in before if path not in after)):
        reason = _config_change(path, before.get(path, _ABSENT), after.get(path, _ABSENT))
        if reason is not None:
            reasons.append(reason)
    return tuple(reasons)


def code_of(payload: Mapping[str, Any]) -> dict[str, str]:
    """The code in a payload: functions -> fingerprints, and `packages.NAME` -> version."""
    packages = payload.get("packages") or {}
    return {**(payload.get("code") or {}), **{f"packages.{name}": version for name, version in packages.items()}}


def code_drift(old: dict[str, str], new: dict[str, str]) -> tuple[str, ...]:
    """Qualified names of the functions that differ."""
    return tuple(name for name in sorted({*old, *new}) if old.get(name) != new.get(name))


def _code_changes(old: dict[str, str], new: dict[str, str]) -> list[Reason]:
    return [Reason(kind="code", path=name, old=old.get(name), new=new.get(name)) for name in code_drift(old, new)]


def _config_change(path: str, old: Any, new: Any) -> Reason | None:
    if old is not _ABSENT and new is not _ABSENT and canonical_json(old) == canonical_json(new):
        return None
    was, now = _input(old), _input(new)
    if was is not None and now is not None:
        if (was.get("part"), was.get("at")) == (now.get("part"), now.get("at")):
            if was.get("key") == now.get("key"):
                return None
            if was.get("step") == now.get("step"):
                return Reason(kind="input", path=path, old=was.get("key"), new=now.get("key"), step=now.get("step", ""))
        return Reason(kind="config", path=path, old=_shown(was), new=_shown(now), step=now.get("step", ""))
    return Reason(
        kind="config",
        path=path,
        old=None if old is _ABSENT else _shown(was) if was else old,
        new=None if new is _ABSENT else _shown(now) if now else new,
        step=(now or {}).get("step", ""),
    )


def _input(value: Any) -> dict[str, Any] | None:
    return value["$input"] if isinstance(value, dict) and set(value) == {"$input"} else None


def _shown(found: dict[str, Any]) -> str:
    """An input as a person would write it: `corpus/train`, `pretrain@108000`."""
    at = found.get("at")
    part = found.get("part")
    return f"{found.get('step', '')}{f'@{at}' if at is not None else ''}{f'/{part}' if part else ''}"


def flatten(config: Any) -> dict[str, Any]:
    """Leaves of a canonical config by dotted path; a container is there too, as {"$container": its kind}."""
    leaves: dict[str, Any] = {}
    stack: list[tuple[str, Any]] = [("", config)]
    while stack:
        path, value = stack.pop()
        opened = _open(value)
        if opened is None:
            leaves[path] = value
            continue
        kind, items = opened
        if path and kind != "dataclass":  # a dataclass shows its `$type` as a leaf
            leaves[path] = {"$container": kind}
        stack.extend((f"{path}.{name}" if path else name, item) for name, item in reversed(items))
    return leaves


def _open(value: Any) -> tuple[str, list[tuple[str, Any]]] | None:
    if isinstance(value, list):
        return "list", [(str(number), item) for number, item in enumerate(value)]
    if not isinstance(value, dict):
        return None
    if set(value) == {"$tuple"}:
        return "tuple", [(str(number), item) for number, item in enumerate(value["$tuple"])]
    if set(value) == {"$partial"}:
        return "partial", list(value["$partial"].items())
    if set(value) == {"$dict"}:
        return "dict with typed keys", [(canonical_json(key), item) for key, item in value["$dict"]]
    if "$type" in value:
        return "dataclass", list(value.items())
    if not any(name.startswith("$") for name in value):
        return "dict", list(value.items())
    return None
