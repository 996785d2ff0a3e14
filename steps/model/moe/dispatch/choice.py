"""Which transport moves the rows: a matter of time and memory, never of the result.

    one device                    local     nothing to move
    GPUs                          ragged    sends what was accepted and no padding
    no more devices than top_k    ring      S rows a token travel, where waves send 1.25 K
    anything else                 waves     padded, works everywhere

A ring's buffers hold as many rows as the limit on devices allows, so it is chosen where that is at most twice an even
load. `dense` is never chosen, only asked for.
"""

import functools
import logging

from steps.model.config import Transport
from steps.model.moe.plan import Limits

_MOST_LOAD = 2
_LOG = logging.getLogger(__name__)


def choose(asked: Transport, platform: str, limits: Limits, *, tokens: int, top_k: int) -> Transport:
    """The transport for this platform (`cpu`, `gpu`, `tpu`), these limits, tokens of a device and experts per token;
    what was asked for, if it can run there.

    Raises ValueError that names what would do instead.
    """
    if limits.num_devices == 1:
        if asked in ("auto", "local", "dense"):
            return _said("dense" if asked == "dense" else "local", "all experts are on one device")
        raise ValueError(
            f"transport {asked!r} moves rows between devices, and expert_parallel is 1; use 'auto' or 'local'"
        )
    if asked == "local":
        raise ValueError(
            f"transport 'local' moves nothing, and experts are spread over {limits.num_devices} devices; "
            "use 'auto', 'waves' or 'ring'"
        )
    if asked == "ragged" and platform == "cpu":
        raise ValueError("transport 'ragged': XLA does not implement ragged_all_to_all on CPUs; use 'waves' or 'ring'")
    if asked != "auto":
        return _said(asked, "asked for")
    if platform in ("gpu", "cuda", "rocm"):
        return _said("ragged", f"{platform}, {limits.num_devices} devices: nothing but accepted rows travels")
    if limits.num_devices <= top_k and limits.device_rows <= _MOST_LOAD * tokens * top_k:
        return _said("ring", f"{platform}, {limits.num_devices} devices for {top_k} experts a token: fewer rows travel")
    return _said("waves", f"{platform}, {limits.num_devices} devices: padded all-to-alls work everywhere")


@functools.cache
def _said(chosen: Transport, why: str) -> Transport:
    """Say it once in a process."""
    _LOG.info("expert-parallel transport: %s (%s)", chosen, why)
    return chosen
