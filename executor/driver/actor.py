"""The Worker as a Ray actor; `ray` is handed in by the one file that imports it."""

import pickle
import sys
from typing import Any


def actor_class(ray: Any) -> Any:
    """The Worker as an actor: its messages stream, and the other calls are heard while a step runs."""

    class StepWorker:
        def __init__(self, path: list[str], arguments: bytes) -> None:
            # Ray puts the folder that the driver was started in first. What lies there must not be taken for the
            # driver's modules: neither this class nor its arguments name any of them before the path is right.
            sys.path[:] = [*path, *(folder for folder in sys.path if folder not in path)]
            from executor.worker.worker import Worker

            place = ray.get_runtime_context()
            where = {"ray_job": place.get_job_id(), "ray_node": place.get_node_id()}
            self.worker = Worker(*pickle.loads(arguments), where=where)

        @ray.method(num_returns="streaming")
        def run(self, payload: bytes, actors: list[Any] | None = None, gang: str = "") -> Any:
            from executor.driver.others import RayOthers
            from executor.driver.placement import give_back

            others = RayOthers(ray, actors, payload) if actors else None
            yield from self.worker.run(payload, others, lambda: give_back(ray, gang))

        def join(self, payload: bytes, told: Any) -> Any:
            return self.worker.join(payload, told)

        @ray.method(num_returns="streaming", concurrency_group="listeners")
        def follow(self) -> Any:
            yield from self.worker.follow()

        @ray.method(concurrency_group="control")
        def here(self, driver: str) -> None:
            self.worker.here(driver)

        @ray.method(concurrency_group="control")
        def leave(self, driver: str) -> None:
            self.worker.leave(driver)

        @ray.method(concurrency_group="control")
        def stop(self, driver: str, patient: bool) -> str:
            return self.worker.stop(driver, patient=patient)

    return ray.remote(concurrency_groups={"control": 3, "listeners": 8})(StepWorker)
