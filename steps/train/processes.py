"""One run in several processes, one on each host, over the devices of all of them.

The engine starts the processes and says where they meet; from here on JAX sees one mesh. What the compiled step
computes is the same everywhere. What is decided by a clock is decided by process 0 and told to the others, and what one
is asked by a signal all are asked, so that all of them save, stop and judge at the same step.
"""

from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from executor import StepContext

_HEARTBEAT_SECONDS = 100
"""JAX ends the processes of a run by itself when one has been silent for so long; the engine is faster where it can."""


def connect(context: StepContext) -> None:
    """Join the other processes of this step; a no-op where there are none. Before anything asks JAX for devices."""
    if context.processes == 1 or jax.distributed.is_initialized():
        return
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        coordinator_address=context.coordinator,
        num_processes=context.processes,
        process_id=context.process,
        heartbeat_timeout_seconds=_HEARTBEAT_SECONDS,
    )


def agreed(context: StepContext, is_due: bool, seconds: float) -> tuple[bool, bool, float]:
    """Whether any process was asked to stop; process 0's answers to the rest."""
    stopping = context.stopping
    if context.processes == 1:
        return stopping, is_due, seconds
    told = multihost_utils.process_allgather(np.asarray([stopping, is_due, seconds], np.float32))
    return bool(told[:, 0].any()), bool(told[0, 1]), float(told[0, 2])


def together(context: StepContext, name: str) -> None:
    """Wait until every process is here."""
    if context.processes > 1:
        multihost_utils.sync_global_devices(name)


def fetched(tree: Any) -> Any:
    """Arrays of a tree as NumPy arrays, in whole, on every process."""

    def one(array: jax.Array) -> np.ndarray:
        if array.is_fully_addressable or array.is_fully_replicated:
            return np.asarray(array)
        return multihost_utils.process_allgather(array, tiled=True)

    return jax.tree.map(one, tree) if jax.process_count() > 1 else jax.device_get(tree)
