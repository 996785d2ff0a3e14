"""Two sides (recipes, runs, lineages) -> what differs, root causes first.

A step is a cause only if its own payload differs: function, version, config, code, and its inputs *by name*. Every
other step whose key changed inherits, and lists the causes it inherits from:

    tokenizer  vocab_size 2048 -> 4096        the one cause
    tokens/code, hero/pretrain, ...           inherit from tokenizer

A step declared under another name is matched (executor.comparing.matching). An amendment (`Step.amends`) is compared
with the step it amends and is one cause; consumers that moved from the original to the amendment inherit from it.

Invariant: the multisets of keys of the two sides differ if and only if the diff has causes, added or removed steps.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Literal

from executor.comparing.code_diff import CodeDiff, code_diff
from executor.comparing.fields import Change, flat_changes, inputs_at
from executor.comparing.matching import amendments, match, own_changes, share_nothing
from executor.comparing.side import Names, Side, SideStep, input_names, inputs_first
from executor.comparing.upstream import Upstream


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cause:
    """A step whose own declaration differs; `amends` names the step it was compared with when it is an amendment."""

    step: str
    changes: tuple[Change, ...]
    amends: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inherited:
    """A step that differs only through its inputs, and the causes it inherits from."""

    step: str
    causes: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Note:
    """What is no difference of keys: `execution` fields, `pinned` code that drifted; and of a step that differs, that
    its key was `accepted` for the artifact there is, so that it does not run again."""

    step: str
    kind: Literal["execution", "pinned", "accepted"]
    changes: tuple[Change, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Diff:
    """What differs between two sides.

    Attributes:
        renamed: (old name, new name).
        identical: steps of equal key.
        rewired: step -> its inputs that are amended or an amendment, with their places in b: what reads the amendment
            instead of the original follows from the amendment and is no change of its own. Put in after the changes,
            they give the payloads of b.
        shares_nothing: both have steps, and none of one is a step of the other.
    """

    a: str
    b: str
    causes: tuple[Cause, ...] = ()
    inherited: tuple[Inherited, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    identical: int = 0
    notes: tuple[Note, ...] = ()
    rewired: Mapping[str, tuple[Change, ...]] = dataclasses.field(default_factory=dict)
    shares_nothing: bool = False

    @property
    def different(self) -> bool:
        return bool(self.causes or self.added or self.removed)


def diff(a: Side, b: Side) -> Diff:
    """Diff of `b` against `a`."""
    if share_nothing(a.steps, b.steps):
        return Diff(a=a.label, b=b.label, added=tuple(b.steps), removed=tuple(a.steps), shares_nothing=True)
    old_of = match(a.steps, b.steps, (a.root, b.root))
    matched = set(old_of.values())
    forks_a, forks_b = amendments(a.steps, matched), amendments(b.steps, old_of.keys())
    names_a = Names(steps=a.steps, forks=forks_a, old_of={name: name for name in matched}, unmatched="-")
    names_b = Names(steps=b.steps, forks=forks_b, old_of=old_of, unmatched="+")

    texts = _Texts()
    causes: dict[str, Cause] = {}
    inherited: list[Inherited] = []
    upstream = Upstream()
    for name, original in forks_a.items():
        raw = Names(steps=a.steps)
        fork, amended = a.steps[name], a.steps[original]
        found = texts.added_to(own_changes(fork, amended, raw, raw), fork, amended)
        causes[name] = Cause(step=name, changes=found, amends=original)
        upstream.cause(name, ())
    for name in inputs_first(b.steps):
        step = b.steps[name]
        if name in forks_b:
            raw = Names(steps=b.steps)
            original = b.steps[forks_b[name]]
            found = texts.added_to(own_changes(original, step, raw, raw), original, step)
            causes[name] = Cause(step=name, changes=found, amends=forks_b[name])
            upstream.cause(name, _read(original, step, forks_a))
        elif name in old_of and a.steps[old_of[name]].key != step.key:
            before = a.steps[old_of[name]]
            found = own_changes(before, step, names_a, names_b)
            read = _read(before, step, forks_a)
            if not found and not upstream.any(read):
                # The same words under another hash: one side was written under other identity rules.
                found = (Change(kind="code", path="identity rules", old=before.key, new=step.key),)
            if found:
                causes[name] = Cause(step=name, changes=texts.added_to(found, before, step))
                upstream.cause(name, read)
            else:
                inherited.append(Inherited(step=name, causes=upstream.inherits(name, read)))

    return Diff(
        a=a.label,
        b=b.label,
        causes=tuple(causes.values()),
        inherited=tuple(inherited),
        added=tuple(name for name in b.steps if name not in old_of and name not in forks_b),
        removed=tuple(name for name in a.steps if name not in matched and name not in forks_a),
        renamed=tuple((old, new) for new, old in old_of.items() if old != new),
        identical=sum(a.steps[old].key == b.steps[new].key for new, old in old_of.items()),
        notes=tuple(_notes(a, b, old_of, texts)),
        rewired=dict(_rewired(names_a, names_b, old_of)) if forks_a or forks_b else {},
    )


class _Texts:
    """Text diffs of changed code, each made once however many steps reach it."""

    def __init__(self) -> None:
        self._made: dict[tuple[object, ...], CodeDiff] = {}

    def added_to(self, changes: tuple[Change, ...], before: SideStep, after: SideStep) -> tuple[Change, ...]:
        return tuple(
            dataclasses.replace(change, code=self._diff(change, before, after)) if is_text(change) else change
            for change in changes
        )

    def _diff(self, change: Change, before: SideStep, after: SideStep) -> CodeDiff:
        lacking = tuple(
            label
            for label, fingerprint, source in (("a", change.old, before.source), ("b", change.new, after.source))
            if fingerprint is not None and change.path not in (source or {})
        )
        key = (change.path, change.old, change.new, lacking)
        if key not in self._made:
            self._made[key] = (
                CodeDiff(missing=f"the text of {' and '.join(lacking)} was not kept")
                if lacking
                else code_diff(before.source or {}, after.source or {}, change.path)
            )
        return self._made[key]


def is_text(change: Change) -> bool:
    """Whether a change is one of code that has a text: a fingerprint is all that its values say."""
    named = change.path in ("function", "version", "identity rules") or change.path.startswith("packages.")
    return change.kind == "code" and not named


def _rewired(names_a: Names, names_b: Names, old_of: Mapping[str, str]) -> Iterator[tuple[str, tuple[Change, ...]]]:
    """Inputs that are an amendment or amended on either side, of changed steps, at their places in the config of b."""
    amended = {names.name(name, "") for names in (names_a, names_b) for name in names.forks}
    for new, old in old_of.items():
        step = names_b.steps[new]
        if names_a.steps[old].key != step.key:
            found = tuple(
                Change(kind="input", path=".".join(map(str, at)), new=read, at=at)
                for at, read in inputs_at(names_b.payload(step).get("config"))
                if names_b.name(read["reference"]["step"], "") in amended
            )
            if found:
                yield new, found


def _read(before: SideStep, step: SideStep, forks_a: Mapping[str, str]) -> list[str]:
    """What a step reads, and the amendments that it read before: one that only the old side has counts too."""
    return [*input_names(step.payload), *(name for name in input_names(before.payload) if name in forks_a)]


def _notes(a: Side, b: Side, old_of: Mapping[str, str], texts: _Texts) -> Iterator[Note]:
    for new, old in old_of.items():
        before, after = a.steps[old], b.steps[new]
        if before.execution_only is not None and after.execution_only is not None:
            found = flat_changes(before.execution_only, after.execution_only)
            if found:
                yield Note(step=new, kind="execution", changes=found)
        if before.pinned is not None and after.pinned is not None:
            changed = [
                n for n in sorted({*before.pinned, *after.pinned}) if before.pinned.get(n) != after.pinned.get(n)
            ]
            drifted = tuple(
                Change(kind="code", path=name, old=before.pinned.get(name), new=after.pinned.get(name))
                for name in changed
            )
            drifted = texts.added_to(drifted, before, after)
            if drifted:
                yield Note(step=new, kind="pinned", changes=drifted)
