"""Which step of one side is which step of the other.

    same name, same key                          the same step
    every key still there under other names      renamed
    same name                                    the same step, changed
    same function and payload, inputs by name    renamed, changed through its inputs
    both are the artifact that was asked for     renamed, changed, if the function is the same
    amends a step that has a counterpart         an amendment, compared with the step it amends

The first rule that holds decides; what none holds for was added or removed.
"""

from collections.abc import Collection, Iterator, Mapping

from executor.comparing.fields import Change, field_changes
from executor.comparing.side import Names, SideStep, inputs_first, payload_text
from executor.keys.changes import code_of
from executor.secrets import redact_json


def match(a: Mapping[str, SideStep], b: Mapping[str, SideStep], roots: tuple[str, str] = ("", "")) -> dict[str, str]:
    """New name -> old name, in the order of `b`; `roots` are the artifacts that were asked for, old and new."""
    old_of = {name: name for name in b if name in a and a[name].key == b[name].key}
    old_of.update((new, old) for old, new in list(_renamed_by_key(a, b, old_of)))
    taken = set(old_of.values())
    for name in b:
        if name in a and name not in old_of and name not in taken:
            old_of[name] = name
            taken.add(name)
    _match_payloads(a, b, old_of)
    old, new = roots
    is_open = old in a and new in b and new not in old_of and old not in old_of.values() and not b[new].amends
    if is_open and a[old].payload.get("function") == b[new].payload.get("function"):
        old_of[new] = old
    return {name: old_of[name] for name in b if name in old_of}


def _renamed_by_key(
    a: Mapping[str, SideStep], b: Mapping[str, SideStep], same: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Pairs (old, new) of equal key. A name that stands on both sides with different keys takes part only when the
    whole chain it is in was renamed (x -> y -> z, nothing left over), or a cycle; else it is matched by name."""
    names_by_key: dict[str, list[str]] = {}
    for name in reversed(list(b)):
        if name not in same:
            names_by_key.setdefault(b[name].key, []).append(name)
    new_of = {}
    for name in a:
        if name not in same and names_by_key.get(a[name].key):
            new_of[name] = names_by_key[a[name].key].pop()
    arrived, seen = set(new_of.values()), set()
    for start in new_of:
        if start in arrived:
            continue
        chain = [start]
        while new_of[chain[-1]] in new_of:
            chain.append(new_of[chain[-1]])
        seen.update(chain)
        if start not in b and new_of[chain[-1]] not in a:
            yield from ((name, new_of[name]) for name in chain)
    yield from ((name, new) for name, new in new_of.items() if name not in seen)


def _match_payloads(a: Mapping[str, SideStep], b: Mapping[str, SideStep], old_of: dict[str, str]) -> None:
    """Match what is left by function and payload, upstream first, so that renamed inputs are known by then."""
    taken = set(old_of.values())
    if len(taken) == len(a) or len(old_of) == len(b):
        return
    names_a = Names(steps=a)
    by_payload: dict[str, list[str]] = {}
    for name in a:
        if name not in taken:
            by_payload.setdefault(payload_text(names_a.payload(a[name])), []).append(name)
    names_b = Names(steps=b, old_of=old_of, unmatched="+")
    for name in inputs_first(b):
        if name not in old_of:
            candidates = by_payload.get(payload_text(names_b.payload(b[name])))
            if candidates:
                old_of[name] = candidates.pop(0)


def amendments(steps: Mapping[str, SideStep], matched: Collection[str]) -> dict[str, str]:
    """Steps without a counterpart that amend one that has (or another amendment): name -> the step they amend."""
    forks: dict[str, str] = {}
    raw = Names(steps=steps)
    for name in inputs_first(steps):
        original = steps[name].amends
        declared = original in steps and name not in matched and (original in matched or original in forks)
        if declared and own_changes(steps[original], steps[name], raw, raw):
            forks[name] = original
    return forks


def own_changes(old: SideStep, new: SideStep, names_old: Names, names_new: Names) -> tuple[Change, ...]:
    """What differs in the two steps' own payloads."""
    before, after = redact_json(names_old.payload(old)), redact_json(names_new.payload(new))
    found = []
    if before.get("function") != after.get("function"):
        found.append(Change(kind="code", path="function", old=before.get("function"), new=after.get("function")))
    if before.get("version", "") != after.get("version", ""):
        found.append(Change(kind="code", path="version", old=before.get("version"), new=after.get("version")))
    found += field_changes(before.get("config"), after.get("config"))
    code_before, code_after = code_of(before), code_of(after)
    for name in sorted({*code_before, *code_after}):
        was, now = code_before.get(name), code_after.get(name)
        if was != now:
            op = "added" if was is None else "removed" if now is None else "changed"
            found.append(Change(kind="code", path=name, old=was, new=now, op=op))
    return tuple(found)


def share_nothing(a: Mapping[str, SideStep], b: Mapping[str, SideStep]) -> bool:
    """True where names are all that there can be in common: no step of one has a key, a function or a config of the
    other's."""
    if not a or not b:
        return False

    def has(steps: Mapping[str, SideStep]) -> set[tuple[str, str]]:
        found = {("key", step.key) for step in steps.values()}
        found |= {("function", step.payload.get("function") or "") for step in steps.values()}
        configs = (step.payload.get("config") for step in steps.values())
        return found | {("config", payload_text(config)) for config in configs if config}

    return has(a).isdisjoint(has(b))
