"""Metrics of finished runs, side by side: many attempts are one curve, two curves share one axis."""

import json
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from executor.comparing.alignment import align
from executor.comparing.metrics import Curve, Description, Final, read_curve
from executor.errors import MarinadeError, UsageError
from executor.render.curves import metrics_json, metrics_markdown, metrics_text, sparkline
from executor.render.picture import draw
from executor.render.terminal import Terminal
from executor.storage.record import Record
from executor.storage.store import Store

ADDRESS = "run-abc"
GOLDEN = Path(__file__).parent / "golden"
CHARTS = {
    "axis": {"column": "tokens_seen", "name": "tokens"},
    "final": [{"column": "loss", "take": "tail"}, {"column": "eval/*"}, {"column": "drops", "take": "mean"}],
    "drawn": [{"column": "loss", "name": "training loss", "unit": "nats"}, {"column": "eval/all"}],
}


def golden(name: str, text: str) -> None:
    """`UPDATE_GOLDEN=1 pytest tests/executor/test_metrics.py` writes them anew. Only text has a width."""
    if os.environ.get("UPDATE_GOLDEN"):
        (GOLDEN / name).write_text(text)
    assert text == (GOLDEN / name).read_text()
    assert name.endswith(".md") or max(map(len, text.splitlines())) <= 80


class Runs:
    """A store with one artifact whose attempts are written by hand."""

    def __init__(self, prefix: str) -> None:
        self.store = Store(prefix)
        self.records: list[Record] = []

    def attempt(
        self,
        rows: Iterable[dict[str, Any]],
        *,
        begins: float | None = 0,
        seconds: float = 10.0,
        parts: int = 0,
        tail: str = "",
    ) -> "Runs":
        number = len(self.records) + 1
        record = Record(
            name="run",
            address=ADDRESS,
            attempt=f"{number:04d}",
            number=number,
            status="succeeded",
            recipe_key="k",
            content_key="c",
            payload={},
            started="",
            wall_seconds=seconds,
        )
        self.records.append(record)
        self.store.write_attempt(record)
        folder = f"{ADDRESS}/.step/attempts/{record.attempt}"
        if begins is not None:
            self.store.files.write(f"{folder}/metrics.json", json.dumps({**CHARTS, "begins": begins}).encode())
        lines = [json.dumps(row) + "\n" for row in rows]
        if parts:
            size = -(-len(lines) // parts)
            for part in range(parts):
                text = "".join(lines[part * size : (part + 1) * size])
                self.store.files.write(f"{folder}/metrics-{part:06d}.jsonl", text.encode())
        elif lines or tail:
            self.store.files.write(f"{folder}/metrics.jsonl", ("".join(lines) + tail).encode())
        return self

    def curve(self, label: str = "a", otherwise: Description | None = None) -> Curve | None:
        return read_curve(self.store, self.records[-1], label, otherwise)

    def found(self, label: str = "a") -> Curve:
        curve = self.curve(label)
        assert curve is not None
        return curve


@pytest.fixture
def runs(tmp_path: Path):
    count = iter(range(100))
    return lambda: Runs(str(tmp_path / f"store{next(count)}"))


def rows(*steps: int, loss: float = 0.0, every: int = 0) -> list[dict[str, Any]]:
    """Ten tokens a step; the loss falls as 100 / tokens, `loss` is added."""
    found = []
    for step in steps:
        row: dict[str, Any] = {"step": step, "tokens_seen": step * 10, "loss": 100 / (step * 10) + loss, "drops": 0.5}
        if every and step % every == 0:
            row["eval/all"] = 2.0 + loss
        found.append(row)
    return found


def places(curve: Curve, column: str = "loss") -> list[float]:
    return [at for at, _ in curve.columns[column]]


def test_rows_of_one_attempt_are_a_curve(runs) -> None:
    curve = runs().attempt(rows(1, 2, 3, 4, every=2)).found()
    assert places(curve) == [10, 20, 30, 40] and places(curve, "eval/all") == [20, 40]
    assert (curve.begins, curve.ends, curve.rows, curve.attempts, curve.wall_seconds) == (0, 40, 4, 1, 10.0)
    assert "step" not in curve.columns  # neither shown nor drawn


def test_a_resumed_attempt_replaces_what_the_first_logged_beyond_its_checkpoint(runs) -> None:
    curve = runs().attempt(rows(1, 2, 3, 4, 5)).attempt(rows(4, 5, 6, loss=1.0), begins=30).found()
    assert places(curve) == [10, 20, 30, 40, 50, 60]
    assert [round(value - 100 / at, 9) for at, value in curve.columns["loss"]] == [0, 0, 0, 1, 1, 1]
    assert (curve.attempts, curve.replaced, curve.wall_seconds, curve.begins) == (2, 2, 20.0, 0)


def test_rows_beyond_the_checkpoint_do_not_stay_where_the_second_logs_less_often(runs) -> None:
    curve = runs().attempt(rows(1, 2, 3, 4, 5)).attempt(rows(8), begins=20).found()
    assert places(curve) == [10, 20, 80]


def test_an_attempt_that_began_anew_leaves_nothing_of_the_one_before(runs) -> None:
    curve = runs().attempt(rows(1, 2, 3)).attempt(rows(2, 4, loss=1.0), begins=0, seconds=7.0).found()
    assert places(curve) == [20, 40] and (curve.attempts, curve.replaced, curve.wall_seconds) == (1, 3, 7.0)


def test_later_attempts_than_the_one_asked_for_do_not_count(runs) -> None:
    made = runs().attempt(rows(1, 2)).attempt(rows(3), begins=20)
    curve = read_curve(made.store, made.records[0], "a")
    assert curve is not None and places(curve) == [10, 20]


@pytest.mark.parametrize("prefix", ["", "memory://metrics-parts"])
def test_numbered_parts_are_read_in_order(runs, prefix) -> None:
    """A store that cannot append has a part for every flush."""
    many = (Runs(prefix) if prefix else runs()).attempt(rows(*range(1, 31)), parts=12).found()
    assert places(many) == [step * 10.0 for step in range(1, 31)]


def test_a_line_cut_short_is_counted_and_the_rest_is_read(runs) -> None:
    curve = runs().attempt(rows(1, 2), tail='{"step": 3, "tokens_seen": 3').found()
    assert places(curve) == [10, 20] and curve.unread == 1


def test_an_attempt_killed_before_it_wrote_leaves_a_gap_and_the_begin(runs) -> None:
    curve = runs().attempt([], begins=0).attempt(rows(*range(51, 61)), begins=500).found()
    assert (curve.begins, curve.gaps) == (0, ((0, 500),))
    fork = runs().attempt(rows(*range(51, 61)), begins=500).found()
    assert (fork.begins, fork.gaps) == (500, ())


def test_a_checkpoint_between_two_rows_is_no_gap(runs) -> None:
    curve = runs().attempt(rows(10, 20)).attempt(rows(30, 40), begins=250).found()
    assert curve.gaps == ()


def test_no_rows_at_all_is_no_curve(runs) -> None:
    assert runs().attempt([]).curve() is None
    assert runs().attempt([], begins=None).curve() is None


def test_rows_without_a_description_take_the_first_column_as_axis(runs) -> None:
    curve = runs().attempt(rows(1, 2), begins=None).found()
    assert curve.description.axis == "step" and curve.begins == 1
    assert curve.description.final == (Final(column="tokens_seen"), Final(column="loss"), Final(column="drops"))
    described = runs().attempt(rows(1)).found().description
    lent = runs().attempt(rows(1, 2), begins=None).curve(otherwise=described)
    assert lent is not None and places(lent) == [10, 20]


@pytest.mark.parametrize(
    "changed", [{"axis": {}}, {"final": [{"column": "loss", "take": "median"}]}, {"drawn": 3}, {"axis": None}]
)
def test_a_description_that_is_none_counts_as_absent(runs, changed) -> None:
    made = runs().attempt(rows(1, 2))
    text = json.dumps({**CHARTS, **changed}).encode()
    made.store.files.write(f"{ADDRESS}/.step/attempts/0001/metrics.json", text)
    assert made.found().description.axis == "step"


# Two curves


def test_different_intervals_meet_at_the_nearest_row_at_or_before(runs) -> None:
    a, b = runs().attempt(rows(*range(1, 41))).found(), runs().attempt(rows(*range(3, 40, 3), 40, loss=1.0)).found()
    aligned = align(a, b)
    assert aligned.shared == (0, 400) and [mark.at for mark in aligned.marks] == [100, 200, 300, 400]
    at = [(m.values[0].a_at, m.values[0].b_at) for m in aligned.marks]
    assert at == [(100, 90), (200, 180), (300, 300), (400, 400)] and aligned.largest_lag == 20
    # The difference is taken where b has rows, against the row that a has just there.
    assert [place for place, _ in aligned.drawn[0].difference] == places(b)
    assert [value for _, value in aligned.drawn[0].difference] == pytest.approx([1.0] * len(b.columns["loss"]))
    assert "at most 20 tokens before; nothing is interpolated" in metrics_text(aligned, Terminal()).replace("\n", " ")


def test_runs_of_different_length_are_marked_over_the_shorter(runs) -> None:
    aligned = align(runs().attempt(rows(*range(1, 21))).found(), runs().attempt(rows(*range(1, 101))).found())
    assert [mark.at for mark in aligned.marks] == [50, 100, 150, 200]
    value = aligned.final[0]
    assert (value.a, value.b) == (100 / 200, pytest.approx(sum(100 / (s * 10) for s in range(96, 101)) / 5))
    assert max(place for place, _ in aligned.drawn[0].difference) == 200


def test_a_fork_is_marked_from_where_it_begins(runs) -> None:
    base = runs().attempt(rows(*range(1, 101))).found()
    fork = runs().attempt(rows(*range(61, 101), loss=-1.0), begins=600).found("b")
    aligned = align(base, fork)
    assert [mark.at for mark in aligned.marks] == [700, 800, 900, 1000]
    assert all(mark.values[0].b == mark.values[0].a - 1.0 for mark in aligned.marks)
    assert "b begins at 600 tokens, where it continues another run" in metrics_text(aligned, Terminal())


def test_phases_that_follow_each_other_share_nothing(runs) -> None:
    aligned = align(
        runs().attempt(rows(*range(1, 61))).found(), runs().attempt(rows(*range(61, 101)), begins=600).found()
    )
    assert aligned.shared is None and aligned.marks == () and aligned.drawn[0].difference == ()
    text = metrics_text(aligned, Terminal())
    assert "the two share no tokens: a covers 0 to 600, b 600 to 1K" in text.replace("\n", " ")


def test_a_column_that_one_run_lacks_is_said_to_be_absent(runs) -> None:
    aligned = align(runs().attempt(rows(1, 2, every=1)).found(), runs().attempt(rows(1, 2)).found())
    final = {value.column: (value.a, value.b) for value in aligned.final}
    assert final["eval/all"] == (2.0, None) and final["drops"] == (0.5, 0.5)
    assert aligned.drawn[1].b == () and "no row in common" in metrics_text(aligned, Terminal())


def test_curves_on_different_axes_are_refused_in_words(runs) -> None:
    a, b = runs().attempt(rows(1, 2)).found("x"), runs().attempt(rows(1, 2), begins=None).found("y")
    with pytest.raises(MarinadeError, match="x is measured along tokens_seen and y along step"):
        align(a, b)


def test_a_loss_that_is_not_finite_is_said_in_text_and_null_in_json(runs, tmp_path) -> None:
    broken = [*rows(1, 2), {"tokens_seen": 30, "loss": math.nan}]
    aligned = align(runs().attempt(rows(1, 2, 3)).found(), runs().attempt(broken).found())
    assert "nan" in metrics_text(aligned, Terminal())
    data = json.loads(json.dumps(metrics_json(aligned), allow_nan=False))
    assert data["final"][0]["b"] is None and data["marks"][-1]["values"][0]["b"] is None
    draw(aligned, str(tmp_path / "x.svg"))


def test_a_sparkline_spans_its_range() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7, None, 8], 0, 8) == "▁▂▃▄▅▆▇█ █"
    assert sparkline([1.0, 1.0 + 1e-12], 1.0, 1.0 + 1e-12) == "▁▁"


@pytest.fixture
def pair(runs):
    a = runs().attempt(rows(*range(1, 41), every=10)).attempt(rows(*range(36, 101), every=10), begins=350).found("a")
    b = runs().attempt(rows(*range(5, 101, 5), loss=0.25, every=10), seconds=75.0).found("b")
    return align(a, b)


def test_text_and_markdown(pair) -> None:
    golden("metrics.txt", metrics_text(pair, Terminal(), "hero/pretrain"))
    golden("metrics.md", metrics_markdown(pair, "hero/pretrain", "run.svg"))


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_a_picture_is_drawn_and_is_the_same_again(pair, tmp_path, ending) -> None:
    first, second = tmp_path / f"one.{ending}", tmp_path / f"two.{ending}"
    draw(pair, str(first), step="hero/pretrain")
    draw(pair, str(second), step="hero/pretrain")
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes().startswith({"svg": b"<?xml", "png": b"\x89PNG"}[ending])


def test_a_picture_of_another_kind_is_refused(pair, tmp_path) -> None:
    with pytest.raises(UsageError, match="one of svg, png, pdf"):
        draw(pair, str(tmp_path / "x.gif"))
