"""What steps need against what there is, checked before anything starts."""

import dataclasses
import os
import re
from collections.abc import Iterable
from pathlib import Path

from executor.errors import ResourcesMissing
from executor.step import Resources, Step


@dataclasses.dataclass(frozen=True, kw_only=True)
class Capacity:
    """Cores and GPUs to run on, of `hosts` machines that have up to so many each; in words for errors."""

    cpus: int
    gpus: int
    hosts: int
    cpus_per_host: int
    gpus_per_host: int
    words: str


def local_capacity() -> Capacity:
    """This machine."""
    try:
        cpus = len(os.sched_getaffinity(0))
    except AttributeError:
        cpus = os.cpu_count() or 1
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    devices = Path("/dev")
    gpus = sum(1 for entry in devices.iterdir() if re.fullmatch(r"nvidia\d+", entry.name)) if devices.is_dir() else 0
    if visible is not None:
        gpus = min(gpus, len([part for part in visible.split(",") if part.strip()]))
    words = f"this machine: {_count(cpus, 'core')}, {_count(gpus, 'GPU') if gpus else 'no GPU'}"
    return Capacity(cpus=cpus, gpus=gpus, hosts=1, cpus_per_host=cpus, gpus_per_host=gpus, words=words)


def check(steps: Iterable[Step], there: Capacity) -> None:
    """Raise ResourcesMissing listing every step that cannot be placed."""
    lacking = [f"  {step.name} needs {in_words(step.resources)}" for step in steps if not _fits(step.resources, there)]
    if lacking:
        raise ResourcesMissing(
            "the machines that this run needs are not there; nothing was started\n"
            + "\n".join(lacking)
            + f"\n  there is {there.words}\n"
            "connect to a cluster that has them with --address HOST:PORT, or choose a smaller --scale"
        )


def _fits(needed: Resources, there: Capacity) -> bool:
    if needed.hosts * needed.groups > 1:
        return needed.hosts * needed.groups <= there.hosts and needed.gpus <= there.gpus_per_host
    return needed.gpus <= there.gpus_per_host


def in_words(needed: Resources) -> str:
    """`11 groups of 16 hosts, each with 4 GPUs (GB200), 704 in all`."""
    hosts = needed.hosts * needed.groups
    gpus = _count(needed.gpus, "GPU") if needed.gpus else "no GPU"
    kind = f" ({needed.accelerator})" if needed.accelerator else ""
    if hosts == 1:
        return f"{gpus}{kind}"
    groups = f"{needed.groups} groups of {_count(needed.hosts, 'host')}" if needed.groups > 1 else _count(hosts, "host")
    together = f" sharing {needed.colocate}" if needed.colocate else ""
    if not needed.gpus:
        return f"{groups}{together}"
    return f"{groups}{together}, each with {gpus}{kind}, {hosts * needed.gpus} GPUs in all"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
