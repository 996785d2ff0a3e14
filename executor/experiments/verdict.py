"""What came of an experiment: each criterion held against the results of the steps it reads.

    verdict = judge(declared, known)       declared: experiment.declaration; known: step -> result or why not
    verdict.status                         confirmed: all criteria met; refuted: one is not; open: one cannot be told

Invariant: a criterion is `met` only where every number it asks for was there and every comparison held.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Literal

VerdictStatus = Literal["confirmed", "refuted", "open"]
CriterionStatus = Literal["met", "not met", "unknown", "to judge"]

FOR_PEOPLE = "for people to judge"

_HOLDS = {
    "below": lambda value, bound: value < bound,
    "above": lambda value, bound: value > bound,
    "at_most": lambda value, bound: value <= bound,
    "at_least": lambda value, bound: value >= bound,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Known:
    """What is known of a step: its result as recorded, or in words why there is none."""

    result: Mapping[str, Any] | None = None
    reason: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two numbers held against each other.

    Attributes:
        relation: within, below, above, at_most or at_least.
        holds: whether `value` stands in that relation to `against`.
        against: `step.path` of the number on the right, or the number itself, as declared: `source`.
        key: where an object of numbers was compared, which.
        allowed: for `within`, the share of `against` that the two may lie apart.
    """

    value: float
    relation: str
    against: float
    holds: bool
    source: str
    key: str = ""
    allowed: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judged:
    """One criterion with its numbers; `reason` says why it is unknown or not for a machine to judge."""

    words: str
    status: CriterionStatus
    reason: str = ""
    comparisons: tuple[Comparison, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """Of one run; `criteria` in the order of their declaration."""

    status: VerdictStatus
    criteria: tuple[Judged, ...]

    def count(self, status: CriterionStatus) -> int:
        return sum(criterion.status == status for criterion in self.criteria)

    def to_json(self) -> dict[str, Any]:
        return {"status": self.status, "criteria": [dataclasses.asdict(criterion) for criterion in self.criteria]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Verdict":
        criteria = tuple(
            Judged(**{**item, "comparisons": tuple(Comparison(**found) for found in item["comparisons"])})
            for item in data["criteria"]
        )
        return cls(status=data["status"], criteria=criteria)


def judge(declared: Mapping[str, Any], known: Mapping[str, Known]) -> Verdict | None:
    """The verdict on a declaration; None where nothing was declared."""
    success = declared.get("success", ())
    if not success and not declared.get("hypothesis"):
        return None
    criteria = tuple(_judged(criterion, known) for criterion in success)
    statuses = {criterion.status for criterion in criteria}
    if "not met" in statuses:
        return Verdict(status="refuted", criteria=criteria)
    return Verdict(status="confirmed" if statuses == {"met"} else "open", criteria=criteria)


class Unread(Exception):
    """A number that is not there; its text says why."""


def read(value: Mapping[str, Any], known: Mapping[str, Known]) -> Any:
    """The number, or the object of numbers, that `{"step", "path"}` stands for. Raises Unread."""
    step, path = value["step"], value["path"]
    found = known.get(step, Known(reason=f"{step} is not part of the run"))
    if found.result is None:
        raise Unread(found.reason)
    here: Any = found.result
    walked = ""
    for part in path.split("."):
        if isinstance(here, list) and part.isdigit() and int(part) < len(here):
            here = here[int(part)]
        elif isinstance(here, Mapping) and part in here:
            here = here[part]
        else:
            raise Unread(f"{step} returned no {path}: {walked or 'its result'} has {_fields(here)}")
        walked = f"{walked}.{part}" if walked else part
    if isinstance(here, Mapping):
        if bad := [key for key, item in here.items() if not _is_number(item)]:
            raise Unread(f"{step}.{path} has other things than numbers in it: {', '.join(bad[:5])}")
        if not here:
            raise Unread(f"{step}.{path} is empty")
    elif not _is_number(here):
        raise Unread(f"{step}.{path} is {here!r}, not a number")
    return here


def _judged(criterion: Any, known: Mapping[str, Known]) -> Judged:
    if isinstance(criterion, str):
        return Judged(words=criterion, status="to judge", reason=FOR_PEOPLE)
    comparisons: list[Comparison] = []
    reasons: dict[str, None] = {}
    for relation, bounds in criterion["bounds"].items():
        for bound in bounds:
            try:
                value = read(criterion["value"], known)
                against = read(bound, known) if isinstance(bound, Mapping) else bound
                comparisons += _compared(value, relation, against, criterion.get("within"), _source(bound))
            except Unread as error:
                reasons[str(error)] = None
    if any(not comparison.holds for comparison in comparisons):
        status: CriterionStatus = "not met"
    else:
        status = "unknown" if reasons else "met"
    return Judged(
        words=criterion["words"],
        status=status,
        reason="; ".join(reasons),
        comparisons=tuple(comparisons),
    )


def _compared(value: Any, relation: str, against: Any, allowed: float | None, source: str) -> Iterator[Comparison]:
    if isinstance(value, Mapping) and isinstance(against, Mapping) and set(value) != set(against):
        odd = ", ".join(sorted(set(value) ^ set(against))[:5])
        raise Unread(f"the two sides have other keys; only one of them has {odd}")
    keys = next((list(side) for side in (value, against) if isinstance(side, Mapping)), [""])
    for key in keys:
        left = value[key] if isinstance(value, Mapping) else value
        right = against[key] if isinstance(against, Mapping) else against
        if relation == "within":
            assert allowed is not None
            holds = abs(left - right) <= allowed * abs(right)
        else:
            holds = _HOLDS[relation](left, right)
        yield Comparison(
            value=left,
            relation=relation,
            against=right,
            holds=holds,
            source=source,
            key=key,
            allowed=allowed if relation == "within" else None,
        )


def _source(bound: Any) -> str:
    return f"{bound['step']}.{bound['path']}" if isinstance(bound, Mapping) else str(bound)


def _fields(value: Any) -> str:
    if isinstance(value, Mapping):
        names = [str(name) for name in value]
        return ", ".join([*names[:8], *(["..."] if len(names) > 8 else [])]) or "no fields"
    if isinstance(value, list):
        return f"items 0 to {len(value) - 1}" if value else "no items"
    return f"no fields, it is {value!r}"


def _is_number(value: Any) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool)
