"""One of many gets a lease; the dead lose it; a holder that lost it cannot commit."""

import dataclasses
import subprocess
import sys
import threading
import time

import pytest

import executor.storage.lease as module
from executor.errors import LeaseLost
from executor.storage.lease import Lease, Watch, holder
from executor.storage.processes import this_process
from executor.storage.store import Store

KEY = "k" * 64


@pytest.fixture
def store(tmp_path):
    return Store(str(tmp_path))


def take(store, **options):
    return Lease.take(store, KEY, name="s", attempt="1", **options)


def test_a_released_lease_is_taken_at_once_with_the_next_number(store):
    first = take(store)
    assert holder(store, KEY).pid == this_process().pid
    assert take(store).attempt == "1", "who has it is told"
    first.release()
    assert holder(store, KEY) is None
    assert take(store).number == 2


def test_one_of_many_threads_gets_it(store):
    found = []
    threads = [threading.Thread(target=lambda: found.append(take(store))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (lease,) = [one for one in found if isinstance(one, Lease)]
    assert lease.number == 1
    lease.release()


def test_a_holder_whose_process_is_gone_is_taken_over_at_once(store):
    code = (
        "import sys, os; from executor.storage.store import Store; from executor.storage.lease import Lease;"
        f"Lease.take(Store(sys.argv[1]), '{KEY}', name='s', attempt='1'); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", code, store.prefix], check=False).returncode == 9
    assert Watch(store, KEY).look() is None
    assert take(store).number == 2


@pytest.fixture
def elsewhere(store, monkeypatch):
    """A lease whose holder is on another machine, and a short period."""
    monkeypatch.setattr(module, "PERIOD_SECONDS", 0.4)
    there = dataclasses.replace(this_process(), machine="another", host="there")
    with monkeypatch.context() as patch:
        patch.setattr(module, "this_process", lambda: there)
        lease = take(store)
    yield lease
    lease.release()


def stand_still(lease):
    lease._stop.set()
    lease._thread.join()


def watched(store, seconds=5.0):
    """A watch that has seen the lease become free."""
    watch, until = Watch(store, KEY), time.monotonic() + seconds
    while watch.look() is not None:
        assert time.monotonic() < until, "never free"
        time.sleep(0.05)
    return watch


def test_a_holder_elsewhere_keeps_it_while_its_heart_beats(store, elsewhere):
    watch, until = Watch(store, KEY), time.monotonic() + 1.2
    while time.monotonic() < until:
        assert watch.look().host == "there"
        time.sleep(0.05)
    assert take(store, after=0).host == "there"


def test_a_holder_elsewhere_is_taken_over_when_its_beat_stands_still(store, elsewhere):
    stand_still(elsewhere)
    assert take(store).host == "there", "not by who has not watched it"
    lease = take(store, after=watched(store).number)
    assert lease.number == 2
    with pytest.raises(LeaseLost, match="took the lease over"):
        elsewhere.check()
    with pytest.raises(LeaseLost, match="took the lease over"):
        elsewhere.commit("1")
    lease.check()
    lease.commit("2")
    lease.release()
    assert holder(store, KEY) is None


def test_what_was_committed_in_time_cannot_be_taken_over(store, elsewhere):
    stand_still(elsewhere)
    number = watched(store).number
    elsewhere.commit("1")
    assert take(store, after=number).number == 2
    elsewhere.check()


def test_only_the_number_that_was_watched_may_be_taken_over(store, elsewhere, monkeypatch):
    stand_still(elsewhere)
    number = watched(store).number
    second = take(store, after=number)
    assert take(store, after=number).number == 2
    second.release()


def test_a_stale_listing_leads_to_no_second_holder(store, elsewhere, monkeypatch):
    stand_still(elsewhere)
    number, before = watched(store).number, store.files.names(f".leases/{KEY}")
    second = take(store, after=number)
    monkeypatch.setattr(type(store.files), "names", lambda self, folder: before)
    found = take(store, after=number)
    assert not isinstance(found, Lease) and found.number == second.number
    second.release()


def test_a_lost_lease_is_told_to_the_step(store, elsewhere):
    told = threading.Event()
    elsewhere.on_lost = told.set
    store.files.create(f".leases/{KEY}/000001.end", b"{}")
    assert told.wait(5)


def test_a_holder_that_cannot_be_read_counts_until_its_beat_stands_still(store, monkeypatch):
    monkeypatch.setattr(module, "PERIOD_SECONDS", 0.2)
    store.files.create(f".leases/{KEY}/000001", b'{"cut o')
    assert holder(store, KEY).host == "unknown"
    assert take(store, after=watched(store).number).number == 2
