"""A plan as text: one line per step, its action and why.

    run      hero/midtrain  8b21c7f0  learning_rate None -> 0.001
    run      hero/sft       19d0aa41  input hero/midtrain

Long plans fold steps that say the same into one line.
"""

from collections.abc import Sequence

from executor.keys.reason import Reason
from executor.planning.plan import Plan, PlannedStep
from executor.render.terminal import Terminal
from executor.render.values import change_text, value_text

_COLORS = {"reuse": ("green",), "run": ("cyan",), "resume": ("cyan",), "halted": ("red",), "blocked": ("red",)}
_LONG = 48
_KEY = 8
_NAME = 20
_MOST_REASONS = 4


def plan_text(plan: Plan, terminal: Terminal, *, compact: bool = False) -> str:
    """The whole plan. Reused steps fold into one line each folder when `compact` or when the plan is long."""
    counts = plan.counts()
    total = ", ".join(f"{count} {action}" for action, count in sorted(counts.items(), key=_action_order))
    lines = terminal.wrap(f"plan of {plan.recipe}, scale {plan.scale}: {total or 'no steps'}")
    lines += terminal.wrap(f"in {plan.prefix}")
    lines += [f"issue {plan.issue}"] if plan.issue else []
    lines.append("")
    fold = compact or len(plan.steps) > _LONG
    width = min(max((len(step.name) for step in plan.steps), default=0), _NAME)
    for group in _groups(plan.steps) if fold else [[step] for step in plan.steps]:
        lines += _group(group, terminal, width)
    return "\n".join(lines) + "\n"


def reason_text(reason: Reason, width: int = 60) -> str:
    """One reason in words: `learning_rate None -> 0.001`."""
    if reason.kind == "config":
        room = max(width - len(reason.path) - 1, 24)
        return f"{reason.path} {change_text(reason.old, reason.new, room)}"
    if reason.kind == "code" and reason.path.startswith("packages."):
        return f"{reason.path} {change_text(reason.old, reason.new, max(width - len(reason.path) - 1, 24))}"
    if reason.kind == "code":
        return f"code of {reason.path}" if reason.path else "code"
    if reason.kind == "version":
        return f"version {change_text(reason.old, reason.new, width - 8)}"
    if reason.kind == "input":
        # Without a step it is what the inputs hold that changed, under equal recipe keys.
        return f"input {reason.step}" if reason.step else "other content in its inputs"
    if reason.kind == "missing" and reason.path.startswith("@"):
        return f"milestone {reason.path[1:]} is missing"
    words = {
        "failed": "the last attempt failed",
        "missing": "files are missing",
        "unreachable": "cannot be reached",
    }.get(reason.kind, reason.kind)
    about = [part for part in (reason.step, reason.path) if part and part != "url"]
    if reason.kind in ("missing", "failed", "unreachable") and reason.new not in (None, ""):
        text = reason.new if isinstance(reason.new, str) else value_text(reason.new, width)
        about.append(text if len(text) <= 160 else text[:159] + "…")
    return f"{words}: {' '.join(about)}" if about else words


def _group(group: list[PlannedStep], terminal: Terminal, width: int) -> list[str]:
    first = group[0]
    action = terminal.paint(f"{first.action:<7}", *_COLORS.get(first.action, ("yellow",)))
    if len(group) > 1:
        return _folded(group, action, terminal)
    name = first.name
    until = f"up to step {first.stop_at}" if first.stop_at is not None else ""
    parts = [until] if until else []
    indent = 2 + 7 + 2 + width + 2 + _KEY + 2
    room = max(terminal.width - indent, 24)
    parts += _told(first.reasons, room)
    head = f"  {action}  {name:<{width}}  {terminal.paint(first.key[:_KEY], 'dim')}"
    lines = _beside(head, indent, len(name) > width, "; ".join(parts), terminal)
    for note in first.notes:
        lines += [terminal.paint(line, "dim") for line in terminal.wrap(f"note: {note}", 11)]
    return lines


def _told(reasons: Sequence[Reason], width: int = 60) -> list[str]:
    """The first few reasons, each said once (two fields may read the same step).

    What lies behind inputs and cannot be reached is one reason: the raw data's own line says where it was looked for.
    """
    behind = list(dict.fromkeys(r.step for r in reasons if r.kind == "unreachable" and r.step))
    texts = list(dict.fromkeys(reason_text(r, width) for r in reasons if not (r.kind == "unreachable" and r.step)))
    if behind:
        more = f" and {len(behind) - 1} more" if len(behind) > 1 else ""
        texts.insert(0, f"data out of reach behind {behind[0]}{more}")
    return texts if len(texts) <= _MOST_REASONS else [*texts[:_MOST_REASONS], f"… {len(texts) - _MOST_REASONS} more"]


def _beside(head: str, indent: int, long: bool, text: str, terminal: Terminal) -> list[str]:
    """`text` after `head` where it fits, else on lines of its own."""
    if not text:
        return [head]
    if not long and indent + len(text) <= terminal.width:
        return [f"{head}  {text}"]
    return [head, *terminal.wrap(text, 11)]


def _groups(steps: Sequence[PlannedStep]) -> list[list[PlannedStep]]:
    """Reused steps together, first; others each on a line, but those of one folder and the same reasons together."""
    reused = [step for step in steps if step.action == "reuse" and not step.notes]
    groups = [reused] if reused else []
    by_likeness: dict[tuple[object, ...], list[PlannedStep]] = {}
    for step in steps:
        if step.action == "reuse" and not step.notes:
            continue
        folder = step.name.rpartition("/")[0]
        words = tuple(reason_text(reason) for reason in step.reasons)
        likeness = (step.action, folder or step.name, words, step.stop_at, step.notes)
        if likeness in by_likeness:
            by_likeness[likeness].append(step)
        else:
            groups.append(by_likeness.setdefault(likeness, [step]))
    split: list[list[PlannedStep]] = []
    for group in groups:
        split += [group] if group is reused or len(group) > 3 else [[step] for step in group]
    return split


def _folded(group: list[PlannedStep], action: str, terminal: Terminal) -> list[str]:
    names = ", ".join(_folder_names(group))
    head = f"  {action}  {len(group)} steps"
    reasons = "; ".join(_told(group[0].reasons))
    return [f"{head}: {reasons}" if reasons else head, *terminal.wrap(names, 11)]


def _folder_names(steps: Sequence[PlannedStep], most: int = 24) -> list[str]:
    """`corpus`, `tokens/{code,prose}`: names by folder, in order, long folders counted."""
    folders: dict[str, list[str]] = {}
    for step in steps:
        folder, _, leaf = step.name.rpartition("/")
        folders.setdefault(folder or f"\0{leaf}", []).append(leaf)
    names = []
    for folder, leaves in folders.items():
        if folder.startswith("\0"):
            names.append(leaves[0])
        elif len(leaves) == 1:
            names.append(f"{folder}/{leaves[0]}")
        elif len(leaves) <= 6:
            names.append(f"{folder}/{{{','.join(leaves)}}}")
        else:
            names.append(f"{folder}/* ({len(leaves)})")
    return names if len(names) <= most else [*names[: most - 1], f"… {len(names) - most + 1} more"]


def _action_order(item: tuple[str, int]) -> int:
    order = ("run", "resume", "maybe", "wait", "halted", "blocked", "reuse")
    return order.index(item[0]) if item[0] in order else len(order)
