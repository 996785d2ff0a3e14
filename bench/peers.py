"""The tools that the engine is compared with, each from PyPI in a virtual environment of its own.

    tool = Peer.of("redun", cache)      creates the environment when it is not there
    tool.command("first")

The environments lie in a cache folder; delete it to take the newest versions.
"""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

GRAPHS = Path(__file__).resolve().parent / "graphs"

_PACKAGES = {"doit": "doit", "redun": "redun", "hamilton": "sf-hamilton", "snakemake": "snakemake"}
NAMES = tuple(_PACKAGES)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Peer:
    """One tool, ready to run.

    Attributes:
        command: brings the graph of `graphs/` up to date in the current folder.
    """

    name: str
    version: str
    command: tuple[str, ...]
    environment: dict[str, str]

    @classmethod
    def of(cls, name: str, cache: Path) -> "Peer":
        """Raises CalledProcessError where the environment cannot be made (no network, no uv)."""
        binaries = _environment(_PACKAGES[name], cache)
        return cls(
            name=name,
            version=_version(_PACKAGES[name], binaries),
            command=_command(name, binaries),
            # All of them read the graph's shape from graphs/shapes.py; none of them may phone home meanwhile.
            environment={"PYTHONPATH": str(GRAPHS), "HAMILTON_TELEMETRY_ENABLED": "false"},
        )


def _command(name: str, binaries: Path) -> tuple[str, ...]:
    if name == "doit":
        return (str(binaries / "doit"), "-f", str(GRAPHS / "with_doit.py"), "-d", ".")
    if name == "redun":
        return (str(binaries / "redun"), "run", str(GRAPHS / "with_redun.py"), "main")
    if name == "hamilton":
        return (str(binaries / "python"), str(GRAPHS / "with_hamilton.py"))
    return (str(binaries / "snakemake"), "-s", str(GRAPHS / "Snakefile"), "--cores", "1")


def _environment(package: str, cache: Path) -> Path:
    """The folder of an environment's programs; `.complete` is written last, so that half of one is made anew."""
    folder = cache / package
    complete = folder / ".complete"
    if not complete.exists():
        print(f"making an environment for {package} in {folder}", file=sys.stderr)
        cache.mkdir(parents=True, exist_ok=True)
        _uv("venv", "--clear", "--python", sys.executable, str(folder))
        _uv("pip", "install", "--python", str(folder / "bin" / "python"), package)
        complete.touch()
    return folder / "bin"


def _uv(*arguments: str) -> None:
    subprocess.run(["uv", *arguments, "--quiet"], check=True, env={**os.environ, "VIRTUAL_ENV": ""})


def _version(package: str, binaries: Path) -> str:
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.run(
        [str(binaries / "python"), "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()
