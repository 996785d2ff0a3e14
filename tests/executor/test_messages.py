"""What listeners of a running step hear, early, late, and when they stopped listening."""

import threading

from executor.worker.messages import Messages
from executor.worker.task import Answer, Progress, Published, Started

STARTED = Started(attempt="1", address="a-x", host="h", pid=1)
ANSWER = Answer(status="succeeded")


def progress(done: float) -> Progress:
    return Progress(done=done, total=1000.0, unit="steps", metrics={})


def heard(messages: Messages) -> list:
    return [message for said in messages.listen() for message in said]


def test_a_late_listener_hears_what_still_matters():
    messages = Messages()
    for message in (STARTED, progress(1), Published(record="3"), progress(2), Published(record="5"), progress(3)):
        messages.put(message)
    threading.Timer(0.05, messages.put, [ANSWER]).start()
    assert heard(messages) == [STARTED, Published(record="3"), Published(record="5"), progress(3), ANSWER]
    assert heard(messages)[-1] == ANSWER, "also after the end"


def test_all_listeners_hear_all():
    messages = Messages()
    found: list[list] = [[], []]
    threads = [threading.Thread(target=lambda mine=mine: mine.extend(heard(messages))) for mine in found]
    for thread in threads:
        thread.start()
    while len(messages._listeners) < 2:
        pass
    said = [STARTED, progress(1), progress(2), ANSWER]
    for message in said:
        messages.put(message)
    for thread in threads:
        thread.join()
    assert found == [said, said] and not messages._listeners


def test_one_that_takes_nothing_piles_up_no_progress_and_misses_nothing_else():
    messages = Messages()
    messages.put(STARTED)
    listening = messages.listen()
    first = next(listening)
    for done in range(1000):
        messages.put(progress(done))
    messages.put(Published(record="7"))
    messages.put(ANSWER)
    later = [message for said in listening for message in said]
    assert first == (STARTED,) and later[-2:] == [Published(record="7"), ANSWER]
    assert len(later) <= 102
