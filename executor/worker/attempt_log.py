"""The log of one attempt: written beside the artifact; here, and copied there as it grows, for a remote store."""

import tempfile
import threading

from executor.storage.files import LocalFiles
from executor.storage.store import Store
from executor.worker.capture import Log

_COPY_SECONDS = 20.0


class AttemptLog:
    """Opened before the step's function is called; `text` may be asked for at any time."""

    def __init__(self, store: Store, address: str, attempt: str, *, file: str = "log.txt") -> None:
        folder = store.log_dir(address, attempt)
        self.location = f"{folder}/{file}"
        self._store, self._path = store, f"{address}/.step/attempts/{attempt}/{file}"
        self._is_remote = not isinstance(store.files, LocalFiles)
        if self._is_remote:
            folder = tempfile.mkdtemp(prefix="marinade-log-")
        self.log = Log(f"{folder}/{file}")
        self._copied = 0
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._copy_on, daemon=True, name="log copy")
        if self._is_remote:
            self._thread.start()

    def text(self) -> str:
        with open(self.log.path, errors="replace") as file:
            return file.read()

    def close(self) -> None:
        """Nothing more will be written here."""
        self.log.close()
        self._done.set()

    def copy(self) -> None:
        """Bring the store's copy up to date; one copy at a time, so that an older one never comes last."""
        with self._lock:
            data = self.text().encode()
            if self._is_remote and len(data) > self._copied:
                self._store.files.write(self._path, data)
                self._copied = len(data)

    def _copy_on(self) -> None:
        """A step may run for days: what it says is to be read elsewhere before it ends, also if it is killed."""
        while not self._done.wait(_COPY_SECONDS):
            try:
                self.copy()
            except Exception as error:  # the last copy is made by the attempt itself, which says what goes wrong
                self.log.write(f"the log could not be copied to the store: {type(error).__name__}: {error}\n".encode())
