"""A verdict as text: each criterion with its numbers."""

from collections.abc import Sequence

from executor.experiments.verdict import FOR_PEOPLE, Comparison, CriterionStatus, Judged, Verdict
from executor.render.terminal import Terminal

SIGNS = {"below": "<", "above": ">", "at_most": "<=", "at_least": ">="}
LABEL = 10
_COLORS = {
    "met": ("green",), "not met": ("red", "bold"), "unknown": ("yellow",), "to judge": ("cyan",),
    "confirmed": ("green", "bold"), "refuted": ("red", "bold"), "open": ("yellow", "bold"),
}  # fmt: skip


def verdict_text(verdict: Verdict, hypothesis: str, issue: str, terminal: Terminal) -> str:
    """For the end of a run: the verdict, then every criterion."""
    lines = terminal.wrap(f"hypothesis {verdict.status}: {hypothesis or 'none was put in words'}")
    lines[0] = lines[0].replace(verdict.status, terminal.paint(verdict.status, *_COLORS[verdict.status]), 1)
    lines += [f"  {issue}"] if issue else []
    return "\n".join([*lines, *criteria_lines(verdict, terminal, 2)]) + "\n"


def verdict_line(verdict: Verdict) -> str:
    """`hypothesis refuted: 2 criteria met, 1 not met`."""
    statuses: tuple[CriterionStatus, ...] = ("met", "not met", "unknown", "to judge")
    counts = [(verdict.count(status), status) for status in statuses if verdict.count(status)]
    if not counts:
        return f"hypothesis {verdict.status}: no criteria"
    noun = "criterion" if counts[0][0] == 1 else "criteria"
    words = [f"{count} {noun} {status}" if number == 0 else f"{count} {status}"
             for number, (count, status) in enumerate(counts)]  # fmt: skip
    return f"hypothesis {verdict.status}: {', '.join(words)}"


def criteria_lines(verdict: Verdict, terminal: Terminal, indent: int) -> list[str]:
    lines: list[str] = []
    for criterion in verdict.criteria:
        lines += labelled(criterion.status, criterion.words, terminal, indent)
        for text in numbers_texts(criterion):
            lines += terminal.wrap(text, indent + LABEL)
    return lines


def labelled(label: str, text: str, terminal: Terminal, indent: int) -> list[str]:
    """`label     text`, its further lines below the text."""
    first, *rest = terminal.wrap(text, indent + LABEL)
    head = " " * indent + terminal.paint(label, *_COLORS.get(label, ())) + " " * (LABEL - len(label))
    return [head + first.lstrip(), *rest]


def numbers_texts(criterion: Judged) -> list[str]:
    """The numbers behind a criterion: those that fail, else the closest; and why it is unknown."""
    failing = [comparison for comparison in criterion.comparisons if not comparison.holds]
    texts = [comparison_text(comparison) for comparison in failing[:3]]
    if len(failing) > 3:
        texts.append(f"and {len(failing) - 3} more of {len(criterion.comparisons)} do not hold")
    if not failing and criterion.comparisons:
        closest = min(criterion.comparisons, key=_margin)
        several = len(criterion.comparisons)
        texts.append(comparison_text(closest) + (f" (the closest of {several})" if several > 1 else ""))
    if criterion.reason and criterion.reason != FOR_PEOPLE:
        texts.append(criterion.reason)
    return texts


def comparison_text(comparison: Comparison) -> str:
    """`4.0711 against 4.1315: 1.5%, allowed 2%`, or `code: 1.985 < 3.128`."""
    key = f"{comparison.key}: " if comparison.key else ""
    value, against = number_texts([comparison.value, comparison.against])
    if comparison.relation != "within":
        relation = SIGNS[comparison.relation]
        return f"{key}{value} {relation if comparison.holds else f'is not {relation}'} {against}"
    allowed = comparison.allowed or 0.0
    if not comparison.against:
        return f"{key}{value} against {against}, allowed {share_text(allowed)} of it"
    share = abs(comparison.value - comparison.against) / abs(comparison.against)
    digits = next((n for n in range(1, 8) if round(share * 100, n) != round(allowed * 100, n) or share == allowed), 8)
    return f"{key}{value} against {against}: {share:.{digits}%}, allowed {share_text(allowed)}"


def number_texts(numbers: Sequence[float]) -> list[str]:
    """Five digits, and more where different numbers would look equal."""
    for digits in range(5, 18):
        texts = [_number(number, digits) for number in numbers]
        if len(set(texts)) == len(set(numbers)):
            break
    return texts


def share_text(share: float) -> str:
    return f"{share * 100:.6g}%"


def _number(number: float, digits: int) -> str:
    if isinstance(number, int):
        return f"{number:,}"
    return f"{number:.{digits}g}"


def _margin(comparison: Comparison) -> float:
    """How far a comparison that holds is from not holding, as a share."""
    distance = abs(comparison.value - comparison.against) / (abs(comparison.against) or 1.0)
    return (comparison.allowed or 0.0) - distance if comparison.relation == "within" else distance
