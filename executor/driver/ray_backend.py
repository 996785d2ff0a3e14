"""Steps on Ray: the only file that imports it.

One actor is one worker process. It is kept for steps of the same environment, since a fresh one pays seconds of
imports, and replaced when the environment has to change (JAX's device count is fixed for a process) or it died.
Messages of a step arrive as a stream, so that the driver waits and never asks.

On a cluster the actors are detached and have names, which the leases of their steps tell: a driver that was killed
leaves its steps running, and the next one listens to them again. A step on several hosts has an actor on each, in
hosts that are reserved together; drivers talk to the first, which leads the others.
"""

import contextlib
import dataclasses
import os
import pickle
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

from executor.driver.actor import actor_class
from executor.driver.backend import Deliver
from executor.driver.others import loss_of
from executor.driver.placement import Placement, give_back
from executor.driver.resources import Capacity, in_words, local_capacity
from executor.errors import MarinadeError, UsageError
from executor.recipe import Recipe
from executor.retry import Failure
from executor.secrets import redact
from executor.step import Resources
from executor.storage.lease import Holder
from executor.storage.processes import Process, this_process
from executor.storage.stamps import new_id
from executor.worker.task import Answer, Noted, Task
from executor.worker.worker import DRIVER_SECONDS

_ANSWER_SECONDS = 3.0
_PLACING_SECONDS = 0.5
_SAY_SECONDS = 30.0
"""A step that waits longer than this for its hosts says so."""
_NAMESPACE = "marinade"
_OBJECT_STORE_BYTES = 100 << 20


def _import_ray() -> Any:
    # Under `uv run` Ray would start every worker in a new environment with another working folder; the environment
    # that this driver runs in is the one to use. Ray reads it on import, so it is set here and nowhere else.
    os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = "0"
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import ray
        import ray._private.worker as internals

    # Ray prints its own remarks about dead workers to stdout, where only results belong, and has no switch for it.
    internals.print_to_stdstream = lambda *_, **__: None
    return ray


@dataclasses.dataclass(kw_only=True, eq=False)
class _Slot:
    """One worker and what it is doing; a foreign one belongs to another driver, started by it or left to it.

    `name` is what the cluster knows it by; the first of several processes of one step (`is_gang`) lends its name to
    their groups of hosts.
    """

    actor: Any
    environment: dict[str, str]
    gpus: int
    cpus: int
    name: str = ""
    is_gang: bool = False
    foreign: bool = False
    busy: str = ""
    stream: Any = None


@dataclasses.dataclass(kw_only=True, eq=False)
class _Placing:
    """A step that waits for its hosts."""

    task: bytes
    resources: Resources
    placement: Placement
    name: str
    said: bool = False


class RayBackend:
    """Workers on a Ray of our own, started when the first step needs one, or on the cluster at `address`."""

    def __init__(self, recipe: Recipe, address: str = "") -> None:
        self.recipe, self.address = recipe, address
        self.owned = not address
        self.slots: list[_Slot] = []
        self.placing: dict[str, _Placing] = {}
        self._ray: Any = None
        self._actor_class: Any = None
        self._driver: Process = this_process()
        self._id = new_id()
        self._closed = threading.Event()
        self.capacity = local_capacity()
        if address:
            self._connect()
            self.capacity = self._cluster_capacity()
            threading.Thread(target=self._call_on, daemon=True, name="here").start()

    def _connect(self) -> None:
        if self._ray is not None:
            return
        ray = self._ray = _import_ray()
        quiet = {"log_to_driver": False, "logging_level": "ERROR", "ignore_reinit_error": True}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if self.address:
                _init_cluster(ray, self.address, quiet)
            elif not ray.is_initialized():
                ray.init(
                    address="local",
                    namespace=_NAMESPACE,
                    num_cpus=self.capacity.cpus,
                    num_gpus=self.capacity.gpus,
                    include_dashboard=False,
                    object_store_memory=_OBJECT_STORE_BYTES,
                    **quiet,
                )
            else:
                self.owned = False
        self._actor_class = actor_class(ray)

    def _cluster_capacity(self) -> Capacity:
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        cpus = int(sum(node["Resources"].get("CPU", 0) for node in nodes))
        each = [int(node["Resources"].get("GPU", 0)) for node in nodes]
        words = f"the cluster at {self.address}: {len(nodes)} hosts, {cpus} cores, {sum(each)} GPUs"
        return Capacity(
            cpus=cpus,
            gpus=sum(each),
            hosts=len(nodes),
            cpus_per_host=int(max((node["Resources"].get("CPU", 0) for node in nodes), default=0)),
            gpus_per_host=max(each, default=0),
            words=words,
        )

    def start(self, name: str, task: Task, resources: Resources) -> None:
        self._connect()
        payload = self._ray.cloudpickle.dumps(task)
        if resources.hosts * resources.groups > 1:
            gang = f"marinade-{new_id()}"
            placement = Placement(self._ray, resources, min(resources.cpus, self.capacity.cpus_per_host), name=gang)
            self.placing[name] = _Placing(task=payload, resources=resources, placement=placement, name=gang)
            return
        slot = self._slot(dict(resources.environment), resources.gpus, min(resources.cpus, self.capacity.cpus))
        slot.busy = name
        slot.stream = slot.actor.run.remote(payload)

    def _slot(self, environment: dict[str, str], gpus: int, cpus: int) -> _Slot:
        """An idle worker of this environment, else a new one in place of an idle one."""
        idle = [slot for slot in self.slots if not slot.busy and not slot.foreign]
        for slot in idle:
            if slot.environment == environment and slot.gpus == gpus and (self.owned or slot.cpus == cpus):
                return slot
        if idle and (not self.owned or len(self.slots) >= self.capacity.cpus):
            self._end(idle[0])
        name = f"marinade-{new_id()}" if self.address else ""
        actor = self._actor(environment, gpus, cpus, name)
        slot = _Slot(actor=actor, environment=environment, gpus=gpus, cpus=cpus, name=name)
        self.slots.append(slot)
        return slot

    def _actor(self, environment: dict[str, str], gpus: int, cpus: int, name: str, **place: Any) -> Any:
        """A new worker; with a name it outlives this driver."""
        variables = {**environment, "PYTHONPATH": _python_path()}
        options = {
            # On a Ray of our own the scheduler counts cores, so that one worker serves steps of any number of them.
            "num_cpus": 0 if self.owned else cpus,
            "num_gpus": gpus,
            "runtime_env": {"env_vars": {"OMP_NUM_THREADS": str(self.capacity.cpus_per_host), **variables}},
            "max_restarts": 0,
            **place,
        }
        if name:
            options |= {"name": name, "lifetime": "detached", "namespace": _NAMESPACE}
        modules = {self.recipe.module: self.recipe.file} if self.recipe.is_loose else {}
        arguments = pickle.dumps((modules, self._driver, name, self.owned))
        actor = self._actor_class.options(**options).remote(_import_path(), arguments)
        if name:
            actor.here.remote(self._id)
        return actor

    def _place(self, deliver: Deliver) -> None:
        """Start the steps whose hosts are there; say so when one waits for long."""
        for name, placing in list(self.placing.items()):
            state = placing.placement.state()
            if state == "placed":
                del self.placing[name]
                self._assemble(name, placing)
            elif state == "in part":
                del self.placing[name]
                give_back(self._ray, placing.name)
                deliver(name, "not_placed")
            elif not placing.said and time.monotonic() - placing.placement.since > _SAY_SECONDS:
                placing.said = True
                why = "are busy" if state == "busy" else "are not there now"
                wanted = in_words(placing.resources)
                deliver(name, Noted(event={"message": f"waiting for {wanted}: they {why}; it starts when they come"}))

    def _assemble(self, name: str, placing: _Placing) -> None:
        """A worker on each host; the first one leads."""
        needed = placing.resources
        environment, cpus = dict(needed.environment), min(needed.cpus, self.capacity.cpus_per_host)
        names = [placing.name, *(f"{placing.name}-p{n}" for n in range(1, needed.hosts * needed.groups))]
        first, *others = [
            self._actor(environment, needed.gpus, cpus, known, scheduling_strategy=placing.placement.of(process))
            for process, known in enumerate(names)
        ]
        slot = _Slot(actor=first, environment=environment, gpus=needed.gpus, cpus=cpus, name=placing.name, is_gang=True)
        slot.busy = name
        slot.stream = first.run.remote(placing.task, others, placing.name)
        self.slots.append(slot)

    def attach(self, name: str, holder: Holder) -> bool:
        if not holder.worker or not self.address:
            return False
        try:
            actor = self._ray.get_actor(holder.worker, namespace=_NAMESPACE)
        except ValueError:  # another cluster's, or its process is gone
            give_back(self._ray, holder.worker)
            return False
        actor.here.remote(self._id)
        stream = actor.follow.remote()
        slot = _Slot(actor=actor, environment={}, gpus=0, cpus=0, name=holder.worker, foreign=True)
        slot.busy, slot.stream = name, stream
        self.slots.append(slot)
        return True

    def _call_on(self) -> None:
        """Workers of a cluster end when nobody calls."""
        while not self._closed.wait(DRIVER_SECONDS / 5):
            for slot in list(self.slots):
                slot.actor.here.remote(self._id)

    def wait(self, timeout_seconds: float | None, deliver: Deliver) -> None:
        if self.placing:
            self._place(deliver)
            timeout_seconds = min(_PLACING_SECONDS, timeout_seconds or _PLACING_SECONDS)
        streams = {slot.stream: slot for slot in self.slots if slot.busy}
        if not streams:
            time.sleep(timeout_seconds or 0.0)
            return
        ready, _ = self._ray.wait(list(streams), num_returns=1, timeout=timeout_seconds)
        for stream in ready:
            self._receive(streams[stream], deliver)

    def _receive(self, slot: _Slot, deliver: Deliver) -> None:
        exceptions = self._ray.exceptions
        name = slot.busy
        try:
            messages = self._ray.get(next(slot.stream))
        except (
            exceptions.OutOfMemoryError,
            exceptions.NodeDiedError,
            exceptions.RayActorError,
            exceptions.WorkerCrashedError,
            StopIteration,
        ) as error:
            self._lose(slot, loss_of(self._ray, error), deliver)
        except exceptions.RayError as error:
            self._end(slot)
            deliver(name, Answer(status="failed", error=redact(f"step {name}: {error}")))
        else:
            if isinstance(messages[-1], Answer):
                slot.busy, slot.stream = "", None
                if slot.foreign:
                    self.slots.remove(slot)
                    slot.actor.leave.remote(self._id)
                elif slot.is_gang or messages[-1].failure == "node_lost":
                    self._end(slot)
            for message in messages:
                deliver(name, message)

    def _lose(self, slot: _Slot, failure: Failure, deliver: Deliver) -> None:
        name = slot.busy
        self._end(slot)
        if slot.foreign:
            give_back(self._ray, slot.name)
        deliver(name, failure)

    def _end(self, slot: _Slot) -> None:
        self.slots.remove(slot)
        if not slot.foreign:
            with contextlib.suppress(Exception):  # it may be dead already, which is what is wanted
                self._ray.kill(slot.actor, no_restart=True)
        if slot.is_gang and not slot.foreign:
            give_back(self._ray, slot.name)

    def stop(self, deliver: Deliver) -> None:
        """Ask every step to stop; at the second Ctrl-C leave it no time, at the third end the workers."""
        self._stop_placing(deliver)
        with contextlib.suppress(KeyboardInterrupt):
            try:
                self._stop_all(deliver, patient=True)
            except KeyboardInterrupt:
                self._stop_all(deliver, patient=False)
        for slot in list(self.slots):
            self._end(slot)

    def _stop_placing(self, deliver: Deliver) -> None:
        for name, placing in list(self.placing.items()):
            del self.placing[name]
            give_back(self._ray, placing.name)
            deliver(name, Answer(status="interrupted", error="interrupted while it waited for its hosts"))

    def _stop_all(self, deliver: Deliver, *, patient: bool) -> None:
        """A worker answers when its step has ended or is abandoned; then its last message is soon here."""
        asked = {slot.actor.stop.remote(self._id, patient=patient): slot for slot in self.slots if slot.busy}
        until = None if asked else 0.0
        while any(slot.busy for slot in self.slots) and (until is None or time.monotonic() < until):
            ready, _ = self._ray.wait(list(asked), num_returns=1, timeout=0) if asked else ([], [])
            for said in ready:
                slot = asked.pop(said)
                if slot.busy and self._said(said) == "left":
                    name, slot.busy, slot.foreign = slot.busy, "", True
                    deliver(name, Answer(status="interrupted", error="left to another driver that listens to it"))
            if not asked and until is None:
                until = time.monotonic() + _ANSWER_SECONDS
            self.wait(0.2, deliver)

    def _said(self, answer: Any) -> str:
        try:
            return self._ray.get(answer)
        except self._ray.exceptions.RayError:  # the worker is gone, as its stream will say
            return ""

    def close(self) -> None:
        self._closed.set()
        if self._ray is None:
            return
        self._stop_placing(lambda name, message: None)
        for slot in list(self.slots):
            self._end(slot)
        if self.owned or self.address:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._ray.shutdown()


def _init_cluster(ray: Any, address: str, quiet: dict[str, Any]) -> None:
    """Connect, or say in words why not."""
    if "://" in address:
        raise UsageError(
            f"--address {address}: a Ray client's connection ends its steps when it breaks; give HOST:PORT of the "
            "head, from a machine of the cluster"
        )
    try:
        ray.init(address=address, namespace=_NAMESPACE, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise MarinadeError(f"--address {address}: no Ray cluster answers there: {error}") from error


def _import_path() -> list[str]:
    """The driver's, so that a worker finds the same modules in the same order."""
    return [folder or os.getcwd() for folder in sys.path]


def _python_path() -> str:
    """The same for processes that a step starts: the engine's root first."""
    root = str(Path(__file__).resolve().parents[2])
    before = os.environ.get("PYTHONPATH", "")
    return f"{root}{os.pathsep}{before}" if before else root
