"""What a running step says, for any number of listeners; one that comes late hears what still matters first."""

import contextlib
import queue
import threading
from collections.abc import Iterator

from executor.worker.task import Answer, Message, Noted, Progress, Published, Started

_MOMENT_SECONDS = 0.02
_UNHEARD = 100
"""Messages that a listener did not take; beyond them it gets no more progress."""


class Messages:
    """The messages of one attempt, an answer last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: list[queue.SimpleQueue[Message]] = []
        self._started: Started | None = None
        self._published: list[Published] = []
        self._noted: list[Noted] = []
        self._progress: Progress | None = None
        self._answer: Answer | None = None

    @property
    def ended(self) -> bool:
        return self._answer is not None

    def put(self, message: Message) -> None:
        with self._lock:
            if isinstance(message, Started):
                self._started = message
            elif isinstance(message, Published):
                self._published.append(message)
            elif isinstance(message, Noted):
                self._noted.append(message)
            elif isinstance(message, Progress):
                self._progress = message
            else:
                self._answer = message
            for listener in self._listeners:
                # A driver that is gone takes nothing any more, and a step may go on for months without it.
                if not isinstance(message, Progress) or listener.qsize() < _UNHEARD:
                    listener.put(message)

    def listen(self) -> Iterator[tuple[Message, ...]]:
        """Until the answer; the latest progress stands for all before it.

        What is said within a moment comes together: a message of its own over a network costs more than a short step.
        """
        listener: queue.SimpleQueue[Message] = queue.SimpleQueue()
        with self._lock:
            for message in (self._started, *self._published, *self._noted, self._progress, self._answer):
                if message is not None:
                    listener.put(message)
            self._listeners.append(listener)
        while True:
            said = [listener.get()]
            with contextlib.suppress(queue.Empty):
                while not isinstance(said[-1], Answer):
                    said.append(listener.get(timeout=_MOMENT_SECONDS))
            yield tuple(said)
            if isinstance(said[-1], Answer):
                break
        with self._lock:
            self._listeners.remove(listener)
