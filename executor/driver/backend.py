"""What a scheduler asks of where steps run: this process, or Ray."""

from collections.abc import Callable
from typing import Protocol

from executor.driver.resources import Capacity
from executor.retry import Failure
from executor.step import Resources
from executor.storage.lease import Holder
from executor.worker.task import Message, Task

Deliver = Callable[[str, Message | Failure], None]


class Backend(Protocol):
    """Where steps run: this process, or Ray."""

    @property
    def capacity(self) -> Capacity: ...

    def start(self, name: str, task: Task, resources: Resources) -> None: ...

    def attach(self, name: str, holder: Holder) -> bool:
        """Listen to a step that another driver started; False where nothing leads to its process."""
        ...

    def wait(self, timeout_seconds: float | None, deliver: Deliver) -> None:
        """Wait for the next messages (or the time limit) and deliver them; a failure is a worker that is gone."""
        ...

    def stop(self, deliver: Deliver) -> None:
        """End what runs, as cleanly as it lets itself be ended, and deliver the answers."""
        ...
