"""Eight virtual CPU devices for every test, asked for before anything imports JAX."""

import os

FLAG = "--xla_force_host_platform_device_count"

if FLAG not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FLAG}=8".strip()
