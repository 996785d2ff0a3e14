"""The process that runs steps, one at a time, for as long as their environment stays the same.

The step's function runs in a thread of its own; the main one hands its messages to the driver, and can stop it or, if
it does not let itself be stopped, record that and end. The process ends with its driver, also when the driver was
killed without a word.
"""

import contextlib
import os
import pickle
import queue
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator

from executor.attempt import run_task
from executor.capture import log_to_stderr
from executor.control import Control
from executor.processes import Process, children, is_alive, machine, start_time
from executor.secrets import redact
from executor.task import Answer, Message, Task


class Worker:
    """Lives in a worker process; the driver calls it from outside.

    `modules` are recipes that lie outside of any package: module name -> file. `owned` when the Ray that this worker
    belongs to is the driver's own and has to end with it, too.
    """

    def __init__(self, sys_path: list[str], modules: dict[str, str], driver: Process, owned: bool) -> None:
        for folder in sys_path:
            if folder not in sys.path:
                sys.path.append(folder)
        from executor.recipe import load_module

        for name, file in modules.items():
            load_module(name, file)
        self._control: Control | None = None
        log_to_stderr()
        beside = [(pid, start_time(pid)) for pid in children(os.getppid())] if owned else []
        threading.Thread(target=_end_with, args=(driver, beside), daemon=True, name="driver watch").start()

    def run(self, payload: bytes) -> Iterator[Message]:
        """Run one step; its messages, an answer last."""
        messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        control = self._control = Control()

        def work() -> None:
            try:
                task: Task = pickle.loads(payload)
                answer = run_task(task, messages.put, control, descriptors=True)
            except BaseException as error:  # whatever it is, the driver has to hear of it
                answer = Answer(status="failed", error=redact(repr(error)), traceback=redact(traceback.format_exc()))
            control.finished()
            messages.put(answer)

        thread = threading.Thread(target=work, daemon=True, name="step")
        thread.start()
        while True:
            message = messages.get()
            yield message
            if isinstance(message, Answer):
                break
        thread.join()
        self._control = None

    def stop(self, seconds: float) -> bool:
        """Stop what runs; False when it had to be abandoned."""
        control = self._control
        stopped = control is None or control.stop_within(seconds)
        _end_children()
        return stopped


def _end_with(driver: Process, beside: list[tuple[int, str | None]]) -> None:
    """End this process, what it started, and its siblings (Ray's agents), when the driver on this machine is gone."""
    if driver.machine != machine():
        return
    handle = None
    with contextlib.suppress(OSError, AttributeError):
        handle = os.pidfd_open(driver.pid)
    while is_alive(driver):
        if handle is not None:
            select.select([handle], [], [])
            break
        time.sleep(1.0)
    _end_children()
    for pid, started in beside:
        if pid != os.getpid() and start_time(pid) == started:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
    os._exit(1)


def _end_children() -> None:
    for pid in children(os.getpid()):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
