"""A step's stdout, stderr and logging, kept in its log and still shown where they went before.

In a worker the file descriptors themselves are taken, so that compiled code and child processes are heard too; in
this process (`--inline`) only Python's streams, so that a debugger keeps its terminal.
"""

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

from executor.secrets import redact

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class Log:
    """A log file that never holds a secret: written line by line through `redact`."""

    def __init__(self, path: str) -> None:
        self.path = path
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - closed by `close`
        self._rest = b""
        self._lock = threading.Lock()

    def write(self, data: bytes) -> None:
        with self._lock:
            lines = (self._rest + data).split(b"\n")
            self._rest = lines.pop()
            if len(self._rest) > 1 << 16:
                lines, self._rest = [*lines, self._rest], b""
            for line in lines:
                self._put(line + b"\n")

    def _put(self, line: bytes) -> None:
        text = redact(line.decode(errors="replace")).encode()
        # A full disk must not hide the error that the step itself is about to raise because of it.
        with contextlib.suppress(OSError, ValueError):
            self._file.write(text)

    def close(self) -> None:
        with self._lock:
            if self._rest:
                self._put(self._rest + b"\n")
                self._rest = b""
            self._file.close()


class _Tee:
    """A text stream that also writes to the log; everything else is the original's."""

    def __init__(self, stream: Any, log: Log) -> None:
        self._stream, self._log = stream, log

    def write(self, text: str) -> int:
        self._log.write(text.encode(errors="replace"))
        return self._stream.write(redact(text))

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def captured(log: Log, *, descriptors: bool) -> Iterator[None]:
    """Everything written while inside goes to the log, too."""
    with _descriptors(log) if descriptors else _streams(log):
        yield


@contextlib.contextmanager
def _streams(log: Log) -> Iterator[None]:
    before = sys.stdout, sys.stderr
    handler = logging.StreamHandler(_LogStream(log))  # type: ignore[arg-type]
    handler.setFormatter(logging.Formatter(_FORMAT))
    logging.getLogger().addHandler(handler)
    sys.stdout, sys.stderr = _Tee(before[0], log), _Tee(before[1], log)  # type: ignore[assignment]
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        logging.getLogger().removeHandler(handler)


class _LogStream:
    def __init__(self, log: Log) -> None:
        self._log = log

    def write(self, text: str) -> None:
        self._log.write(text.encode(errors="replace"))

    def flush(self) -> None:
        pass


@contextlib.contextmanager
def _descriptors(log: Log) -> Iterator[None]:
    _flush()
    reading, writing = os.pipe()
    kept = os.dup(1), os.dup(2)
    os.dup2(writing, 1)
    os.dup2(writing, 2)
    os.close(writing)

    def pump() -> None:
        with open(reading, "rb", buffering=0) as pipe:
            while data := pipe.read(1 << 16):
                log.write(data)
                with contextlib.suppress(OSError):
                    os.write(kept[1], redact(data.decode(errors="replace")).encode())

    thread = threading.Thread(target=pump, daemon=True, name="log")
    thread.start()
    try:
        yield
    finally:
        _flush()
        os.dup2(kept[0], 1)
        os.dup2(kept[1], 2)
        thread.join(timeout=2)  # a child process of the step that is still alive keeps the pipe open
        for descriptor in kept if not thread.is_alive() else ():
            os.close(descriptor)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def log_to_stderr() -> None:
    """Python's logging of a worker process goes to stderr, where the log takes it."""
    logging.basicConfig(level=logging.INFO, format=_FORMAT, stream=sys.stderr)


def tail(text: str, lines: int = 20) -> str:
    """The last lines of a log."""
    return "\n".join(text.rstrip("\n").splitlines()[-lines:])
