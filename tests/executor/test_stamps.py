"""Identities and moments sort by time, also where a second ends."""

import time

from executor.storage import stamps


def test_ids_and_moments_sort_where_a_second_ends(monkeypatch):
    times = [1_800_000_000_998_900_000, 1_800_000_000_999_900_000, 1_800_000_001_000_100_000]
    shown = []
    for moment in times:
        monkeypatch.setattr(time, "time_ns", lambda moment=moment: moment)
        monkeypatch.setattr(time, "time", lambda moment=moment: moment / 1e9)
        shown.append((stamps.new_id(), stamps.now()))
    assert shown == sorted(shown) and len({text for _, text in shown}) == 3
    assert [now for _, now in shown][1] == "2027-01-15T08:00:00.999Z"
    assert [identity[:18] for identity, _ in shown][1] == "20270115T080000999"
