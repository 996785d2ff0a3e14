"""Experiments as text in 80 columns, and as Markdown for an issue."""

from executor.experiments.listing import Cost, Entry, Experiments, Group
from executor.render.status import clock_text
from executor.render.terminal import Terminal
from executor.render.values import count_text, duration_text
from executor.render.verdict import criteria_lines, labelled, number_texts, numbers_texts

NO_HYPOTHESIS = "no hypothesis was declared"
_COLORS = {
    "running": ("cyan",), "succeeded": ("green",), "failed": ("red", "bold"), "stopped": ("red",),
    "interrupted": ("yellow",), "abandoned": ("yellow",), "unknown": ("yellow",),
    "confirmed": ("green", "bold"), "refuted": ("red", "bold"), "open": ("yellow", "bold"),
}  # fmt: skip


def experiments_text(found: Experiments, terminal: Terminal) -> str:
    """Every group: hypothesis, then its runs, newest first."""
    if not found.groups:
        lines = [f"no runs under {found.prefix}"]
    else:
        blocks = [_group_lines(group, terminal) for group in found.groups]
        lines = [line for block in blocks for line in ["", *block]][1:]
    for path, problem in found.unreadable.items():
        lines += terminal.wrap(f"cannot be read: {path}: {problem}")
    return "\n".join(lines) + "\n"


def experiments_markdown(found: Experiments) -> str:
    """The same as a list for an issue or a page."""
    lines: list[str] = []
    for group in found.groups:
        lines += [f"## {group.recipe}, scale {group.scale}", ""]
        newest = group.entries[0] if group.entries else None
        if newest is not None:
            issue = newest.declared.get("issue", "")
            lines += [_hypothesis(newest) + (f" ([issue]({issue}))" if issue else ""), ""]
        for entry in group.entries:
            lines.append(
                f"- **{entry.status}, {_verdict(entry)}**, {clock_text(entry.started)}: {cost_text(entry.cost)}"
            )
            if newest is not None and _hypothesis(entry) != _hypothesis(newest):
                lines.append(f"  - hypothesis then: {_hypothesis(entry)}")
            for criterion in entry.verdict.criteria if entry.verdict else ():
                texts = "; ".join(numbers_texts(criterion))
                lines.append(f"  - {criterion.status}: {criterion.words}" + (f" ({texts})" if texts else ""))
            lines += [f"  - {_prediction(entry)}"] if entry.prediction else []
            lines += [f"  - note: {note}" for note in entry.notes]
        if group.idle:
            lines.append(f"- {_idle(group)}")
        lines.append("")
    return "\n".join(lines) or "no runs\n"


def cost_text(cost: Cost) -> str:
    """`7:10 wall, 9:20 in 17 steps, 0.31 CPU hours, 876k tokens, 1.2e+14 FLOPs`."""
    parts = [f"{duration_text(cost.wall_seconds)} wall" if cost.wall_seconds is not None else "wall time not known"]
    if cost.attempts:
        steps = f"{cost.steps} step" + ("s" if cost.steps != 1 else "")
        tries = f" ({cost.attempts} attempts)" if cost.attempts > cost.steps else ""
        parts.append(f"{duration_text(cost.step_seconds)} in {steps}{tries}")
    else:
        parts.append("no step ran")
    if cost.gpu_hours:
        parts.append(f"{_hours(cost.gpu_hours)} GPU hours")
    if cost.cpu_hours:
        parts.append(f"{_hours(cost.cpu_hours)} CPU hours")
    if cost.tokens:
        parts.append(f"{count_text(cost.tokens)} tokens")
    if cost.flops:
        parts.append(f"{cost.flops:.3g} FLOPs")
    if cost.cut_off:
        parts.append(f"{cost.cut_off} cut off, its time not known" if cost.cut_off == 1 else
                     f"{cost.cut_off} cut off, their time not known")  # fmt: skip
    return ", ".join(parts)


def _hours(hours: float) -> str:
    return f"{hours:,.0f}" if hours >= 1000 else f"{hours:.3g}" if hours >= 0.01 else "<0.01"


def _group_lines(group: Group, terminal: Terminal) -> list[str]:
    lines = [terminal.paint(f"{group.recipe}, scale {group.scale}", "bold")]
    shown = ""
    for entry in group.entries:
        hypothesis = _hypothesis(entry)
        if hypothesis != shown:
            issue = entry.declared.get("issue", "")
            lines += [*([""] if shown else []), *terminal.wrap(hypothesis, 2), *([f"  {issue}"] if issue else [])]
            shown = hypothesis
        lines += ["", *_entry_lines(entry, terminal)]
    return lines + (["", f"  {_idle(group)}"] if group.idle else [])


def _entry_lines(entry: Entry, terminal: Terminal) -> list[str]:
    verdict = _verdict(entry)
    head = f"  {clock_text(entry.started)}  {terminal.paint(entry.status, *_COLORS[entry.status])}"
    lines = [f"{head}, {terminal.paint(verdict, *_COLORS.get(verdict, ()))}"]
    if entry.status == "running":
        lines += labelled("on", f"{entry.host} process {entry.pid}", terminal, 4)
    if entry.verdict is not None:
        lines += criteria_lines(entry.verdict, terminal, 4)
    if entry.prediction is not None:
        lines += labelled("predicted", _prediction(entry).removeprefix("predicted "), terminal, 4)
    lines += labelled("cost", cost_text(entry.cost), terminal, 4)
    if entry.arguments:
        lines += labelled("arguments", " ".join(entry.arguments), terminal, 4)
    for note in entry.notes:
        lines += labelled("note", note, terminal, 4)
    return lines


def _verdict(entry: Entry) -> str:
    if entry.verdict is not None:
        return entry.verdict.status
    if not entry.declared.get("hypothesis") and not entry.declared.get("success"):
        return "nothing declared"
    return "no verdict yet" if entry.status == "running" else "no verdict"


def _hypothesis(entry: Entry) -> str:
    return entry.declared.get("hypothesis") or NO_HYPOTHESIS


def _prediction(entry: Entry) -> str:
    said = entry.prediction
    assert said is not None
    return f"predicted {number_texts([said.value])[0]} by {said.step}, on record {clock_text(said.at)}"


def _idle(group: Group) -> str:
    return "and 1 run that had nothing to do" if group.idle == 1 else f"and {group.idle} runs that had nothing to do"
