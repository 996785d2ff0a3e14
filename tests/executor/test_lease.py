"""One of many gets a lease; the dead lose it; a holder that lost it cannot commit."""

import dataclasses
import subprocess
import sys
import threading
import time

import pytest

from executor.errors import LeaseLost
from executor.lease import Lease, holder
from executor.processes import this_process
from executor.store import Store

KEY = "k" * 64


@pytest.fixture
def store(tmp_path):
    return Store(str(tmp_path))


def acquire(store, **options):
    return Lease.acquire(store, KEY, name="s", attempt="1", **options)


def test_a_released_lease_is_taken_at_once_with_the_next_number(store):
    first = acquire(store)
    assert holder(store, KEY).pid == this_process().pid
    first.release()
    assert holder(store, KEY) is None
    assert acquire(store).number == 2


def test_many_threads_one_at_a_time(store):
    inside, most = [], []

    def work():
        lease = acquire(store)
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.02)
        inside.pop()
        lease.release()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 4


def test_a_holder_whose_process_is_gone_is_taken_over_at_once(store):
    code = (
        "import sys, os; from executor.store import Store; from executor.lease import Lease;"
        f"Lease.acquire(Store(sys.argv[1]), '{KEY}', name='s', attempt='1'); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", code, store.prefix], check=False).returncode == 9
    began = time.monotonic()
    assert acquire(store).number == 2
    assert time.monotonic() - began < 5


def test_a_holder_elsewhere_is_taken_over_only_when_its_beat_stands_still(store, monkeypatch):
    import executor.lease as module

    elsewhere = dataclasses.replace(this_process(), machine="another", host="there")
    monkeypatch.setattr(module, "this_process", lambda: elsewhere)
    other = acquire(store, period_seconds=0.4)
    monkeypatch.undo()
    seen = []
    assert (
        acquire(store, period_seconds=0.4, waiting=lambda found: seen.append(found), give_up=lambda: len(seen) > 4)
        is None
    )
    assert seen[0].host == "there"
    lost = []
    other.on_lost = lambda: lost.append(1)
    other._stop.set()  # its heart stops
    other._thread.join()
    lease = acquire(store, period_seconds=0.4)
    assert lease.number == 2
    with pytest.raises(LeaseLost, match="took the lease over"):
        other.check()
    lease.check()
    lease.release()


def test_a_lost_lease_is_told_to_the_step(store):
    lease = acquire(store, period_seconds=0.2)
    told = threading.Event()
    lease.on_lost = told.set
    store.files.create(f".leases/{KEY}/000002", b"{}")
    assert told.wait(5)
