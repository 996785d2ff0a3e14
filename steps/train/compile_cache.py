"""Compiled programs kept on this machine: a rerun, a resumed run or the next rung of a shape does not compile again.

JAX's persistent cache, in a folder of its own for each kind of processor, since compiled code is for one kind. A folder
given as JAX_COMPILATION_CACHE_DIR is taken instead; JAX_ENABLE_COMPILATION_CACHE=false keeps nothing.
"""

import hashlib
import os
import platform
from pathlib import Path

import jax

LARGEST_BYTES = 4 << 30
"""What has not been used for longest goes first."""


def keep_compiled_programs() -> None:
    """Called before anything is compiled."""
    if jax.config.jax_compilation_cache_dir:  # pyright: ignore[reportAttributeAccessIssue]
        return
    home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    jax.config.update("jax_compilation_cache_dir", str(home / "marinade" / "compiled" / _processor()))
    jax.config.update("jax_compilation_cache_max_size", LARGEST_BYTES)


def _processor() -> str:
    """Names what compiled code depends on: the architecture and, where Linux says them, the processor's features."""
    features = ""
    try:
        with open("/proc/cpuinfo") as file:
            features = next((line for line in file if line.startswith(("flags", "Features"))), "")
    except OSError:
        pass
    return f"{platform.machine()}-{hashlib.sha256(features.encode()).hexdigest()[:12]}"
