"""The other processes of a step on several hosts, as process 0 reaches them through Ray.

Runs in process 0, a worker; `ray` is handed in by the one file that imports it.
"""

from typing import Any

from executor.context import StepContext
from executor.retry import POLICIES, Failure
from executor.worker.gang import Ended


class RayOthers:
    """Actors on the other hosts; see `executor.worker.gang.Others`."""

    def __init__(self, ray: Any, actors: list[Any], payload: bytes) -> None:
        self.size = 1 + len(actors)
        self.host = ray.util.get_node_ip_address()
        self._ray, self._actors, self._payload = ray, actors, payload
        self._running: dict[Any, int] = {}

    def call(self, contexts: list[StepContext]) -> None:
        for actor, told in zip(self._actors, contexts, strict=True):
            self._running[actor.join.remote(self._payload, told)] = told.process
        self.call_on()

    def ended(self, seconds: float) -> list[Ended]:
        ready, _ = self._ray.wait(list(self._running), num_returns=1, timeout=seconds)
        return [self._end_of(reference) for reference in ready]

    def _end_of(self, reference: Any) -> Ended:
        process = self._running.pop(reference)
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            failure = loss_of(self._ray, error)
            return Ended(process=process, error=POLICIES[failure].words, failure=failure)

    def call_on(self) -> None:
        for actor in self._actors:
            actor.here.remote("process 0")


def loss_of(ray: Any, error: Exception) -> Failure:
    """The kind of a worker's end. Ray's words for it, which mention memory whatever happened, count only where they
    name the node."""
    exceptions = ray.exceptions
    if isinstance(error, exceptions.OutOfMemoryError):
        return "out_of_memory"
    if isinstance(error, exceptions.NodeDiedError | exceptions.ActorUnavailableError):
        return "node_lost"
    return "node_lost" if "actor's node" in str(error) or "preempted" in str(error) else "crashed"
