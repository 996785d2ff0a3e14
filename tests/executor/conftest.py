"""Ray clusters of several hosts on this machine, each host at a loopback address of its own."""

import os
import secrets
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from executor.storage.processes import children


@pytest.fixture(scope="module")
def start_cluster():
    """`start_cluster(cores, ...)`: a host for each number of cores, the labels of each in `labels`; called again, more
    of them. Returns the address and the environment of its drivers; the hosts end with the module."""
    hosts: list[subprocess.Popen[str]] = []
    settings = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16), "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}

    with socket.socket() as free:
        free.bind(("127.0.0.2", 0))
        port = free.getsockname()[1]
    address = f"127.0.0.2:{port}"

    def start(*cores: int, labels: tuple[str, ...] = ()) -> tuple[str, dict[str, str]]:
        for count, label in zip(cores, labels or [""] * len(cores), strict=True):
            place = [f"--address={address}"] if hosts else ["--head", f"--port={port}", "--include-dashboard=false"]
            place += [f"--labels={label}"] if label else []
            hosts.append(_started(f"127.0.0.{len(hosts) + 2}", count, place, settings))
        return address, settings

    yield start
    for host in reversed(hosts):
        for pid in (host.pid, *children(host.pid)):
            os.kill(pid, signal.SIGKILL)
        host.wait()
        assert host.stdout is not None
        host.stdout.close()


def _started(address: str, cores: int, place: list[str], settings: dict[str, str]) -> subprocess.Popen[str]:
    """One host, in a process group of its own."""
    host = subprocess.Popen(
        [
            str(Path(sys.executable).with_name("ray")), "start", "--block", f"--node-ip-address={address}",
            f"--num-cpus={cores}", f"--object-store-memory={100 << 20}", *place,
        ],
        env=os.environ | settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )  # fmt: skip
    assert host.stdout is not None
    assert any("Ray runtime started" in line for line in host.stdout)
    return host
