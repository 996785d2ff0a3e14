"""Measurements as a table for people, with what the issue of speed asks for beside what was found."""

from collections.abc import Iterator, Sequence

from measuring import Measurement

_HEADINGS = ("case", "steps", "tool", "CPU s", "wall s", "ms a step", "of marinade", "")


def as_table(found: Sequence[Measurement]) -> str:
    """Markdown. CPU seconds are compared; with Ray seconds on the wall, since CPU time is then the driver's only."""
    rows = [_HEADINGS, *(_row(one, found) for one in found)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    lines = [_line(row, widths) for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join([*lines, "", *verdicts(found)])


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"


def _row(one: Measurement, found: Sequence[Measurement]) -> tuple[str, ...]:
    seconds = _compared(one)
    ours = _figure(found, one.case, "marinade", one.steps)
    ratio = f"{seconds / _compared(ours):.2f}" if ours is not None and one.tool != "marinade" else ""
    each = f"{1000 * seconds / one.steps:.2f}" if one.steps else ""
    details = ", ".join(f"{value} {name}" for name, value in one.details.items() if not isinstance(value, dict))
    details = details.replace("_", " ")
    return (
        one.case,
        str(one.steps),
        one.tool,
        f"{one.cpu_seconds:.3f}",
        f"{one.wall_seconds:.3f}",
        each,
        ratio,
        details,
    )


def _compared(one: Measurement) -> float:
    return one.wall_seconds if one.case.startswith(("ray", "slow")) else one.cpu_seconds


def _figure(found: Sequence[Measurement], case: str, tool: str, steps: int) -> Measurement | None:
    return next((one for one in found if (one.case, one.tool, one.steps) == (case, tool, steps)), None)


def verdicts(found: Sequence[Measurement]) -> Iterator[str]:
    """One line for each target that these measurements can say something about."""
    imported = _figure(found, "import", "marinade", 0)
    for shape in ("chain", "fan"):
        case = f"{shape}-cached"
        sizes = {one.steps: one.cpu_seconds for one in found if (one.case, one.tool) == (case, "marinade")}
        if 200 in sizes:
            yield _said(f"{case}, 200 steps: under 0.5 s", sizes[200], 0.5)
            if imported is not None:
                yield _said(f"{case}, 200 steps: import + 1 ms a step", sizes[200], imported.cpu_seconds + 0.2)
        if 1000 in sizes:
            yield _said(f"{case}, 1,000 steps: under 1.2 s", sizes[1000], 1.2)
        if 1000 in sizes and 10_000 in sizes and imported is not None:
            linear = imported.cpu_seconds + 10 * (sizes[1000] - imported.cpu_seconds)
            yield _said(f"{case}, 10,000 steps: linear from 1,000 (within a quarter)", sizes[10_000], 1.25 * linear)
        for peer in ("redun", "hamilton", "snakemake"):
            other = _figure(found, case, peer, 200)
            if other is not None and 200 in sizes:
                yield _said(f"{case}, 200 steps: half of {peer}", sizes[200], other.cpu_seconds / 2)
    for case, steps in (("ray-first", 200), ("ray-chain-10", 10)):
        ours, raw = (_figure(found, case, tool, steps) for tool in ("marinade", "ray"))
        if ours is not None and raw is not None:
            most = max(1.5 * raw.wall_seconds, raw.wall_seconds + 0.005 * steps)
            yield _said(f"{case}: 1.5 of raw Ray, or 5 ms a step more", ours.wall_seconds, most)


def _said(target: str, seconds: float, most: float) -> str:
    return f"- {'met' if seconds <= most else 'MISSED'}: {target}: {seconds:.3f} s, at most {most:.3f}"
