"""Config values, numbers, times and sizes as people read them, shortened to a width."""

import json
import math
from collections.abc import Sequence
from typing import Any

from executor.comparing.fields import readable

_SHORT_WORD = 60


def value_text(value: Any, width: int = 48) -> str:
    """A canonical value in at most about `width` characters: what does not fit is counted, not cut in silence."""
    return _text(value, width)


def change_text(old: Any, new: Any, width: int = 64) -> str:
    """`old -> new`; of two long strings only the part that differs."""
    return " -> ".join(change_texts(old, new, width))


def change_texts(old: Any, new: Any, width: int = 64) -> tuple[str, str]:
    """The two values, in about `width` characters together."""
    if isinstance(old, str) and isinstance(new, str) and len(old) + len(new) > width:
        old, new = _differing(old, new, (width - 4) // 2)
    texts = value_text(old, width), value_text(new, width)
    if len(texts[0]) + len(texts[1]) + 4 <= width:
        return texts
    half = max((width - 4) // 2, 12)
    return value_text(old, half), value_text(new, half)


def _text(value: Any, width: int) -> str:
    if value is None or isinstance(value, bool | int):
        return str(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, str):
        return _string(value, width)
    if isinstance(value, list):
        return _items("[", [(None, item) for item in value], "]", width)
    if isinstance(value, dict):
        if "$input" in value:
            return str(readable(value))
        if set(value) == {"$tuple"}:
            return _items("(", [(None, item) for item in value["$tuple"]], ")", width)
        if "$type" in value:
            name = value["$type"].rpartition(".")[2]
            fields = [(f"{field}=", item) for field, item in value.items() if field != "$type"]
            return _items(f"{name}(", fields, ")", width)
        plain = readable(value)
        if isinstance(plain, dict):
            return _items("{", [(f"{name}: ", item) for name, item in plain.items()], "}", width)
        return _text(plain, width)
    return str(value)


def _string(value: str, width: int) -> str:
    plain = value if value and value.isprintable() and " " not in value else json.dumps(value, ensure_ascii=False)
    if len(plain) <= max(width, 12):
        return plain
    keep = max((max(width, 12) - 1) // 2, 4)
    return f"{plain[:keep]}…{plain[-keep:]}"


def _items(opening: str, items: Sequence[tuple[str | None, Any]], closing: str, width: int) -> str:
    shown: list[str] = []
    used = len(opening) + len(closing)
    for number, (name, item) in enumerate(items):
        left = len(items) - number
        text = (name or "") + _text(item, max(width - used - len(name or ""), 12))
        reserve = len(f", … {left - 1} more") if left > 1 else 0
        if used + len(text) + reserve > width and (shown or left > 1 or len(text) > max(width, 24)):
            shown.append(f"… {left} more" if shown else f"… {left}")
            break
        shown.append(text)
        used += len(text) + 2
    return opening + ", ".join(shown) + closing


def _differing(old: str, new: str, room: int) -> tuple[str, str]:
    """The part in which two texts differ, with as much around it as fits into `room` characters each."""
    shorter = min(len(old), len(new))
    front = next((i for i in range(shorter) if old[i] != new[i]), shorter)
    rest = shorter - front
    back = next((i for i in range(rest) if old[-1 - i] != new[-1 - i]), rest)
    context = max((room - (max(len(old), len(new)) - front - back) - 4) // 2, 2)

    def cut(text: str) -> str:
        start, end = max(front - context, 0), min(len(text) - back + context, len(text))
        return ("…" if start > 0 else "") + text[start:end] + ("…" if end < len(text) else "")

    return cut(old), cut(new)


def count_text(value: float) -> str:
    """`535.48B`, `2.696e24`, `18.005T`, `96`: five digits, a letter up to trillions, then an exponent."""
    if isinstance(value, int) and abs(value) < 10_000:
        return str(value)
    if abs(value) >= 1e15:
        mantissa, exponent = f"{value:.3e}".split("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")):
        if abs(value) >= size:
            return f"{value / size:.5g}{letter}"
    return f"{value:.4g}"


def bytes_text(value: float) -> str:
    """`87.3 GiB`."""
    for size, unit in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if abs(value) >= size:
            return f"{value / size:.{3 if value < 1000 * size else 4}g} {unit}"
    return f"{value:.0f} B"


def duration_text(seconds: float) -> str:
    """`0.3 s`, `42 s`, `3:05`, `2:14:09`, `36 d 04 h`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    whole = round(seconds)
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24} d {hours % 24:02d} h"
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


def metric_text(value: Any) -> str:
    """A metric in a table: five digits at most."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return count_text(value) if isinstance(value, int) else f"{value:.4g}"


def percent_text(old: float, new: float) -> str:
    """`+12.3%`, `-0.004%`; `x 23.4` from ten times on; empty where they are equal, or `old` is 0 or not finite."""
    if not old or new == old or not (math.isfinite(old) and math.isfinite(new)):
        return ""
    ratio = new / old
    if math.isclose(ratio, 1.0, rel_tol=1e-9):  # sums in another order
        return ""
    if ratio >= 10:
        return f"x {ratio:.3g}"
    percent = (ratio - 1) * 100
    return f"{percent:+.1f}%" if abs(percent) >= 0.05 else f"{percent:+.1g}%"
