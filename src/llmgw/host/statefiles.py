"""Keeps the small files of a role's state directory; implements `ports.StateFiles`.

Laws: a file is whole or the old one (temporary, fsync, rename, fsync of the folder); mode 0600 in a
folder of mode 0700; one process uses a state directory at a time.
"""

import contextlib
import fcntl
import os
from pathlib import Path

_TEMPORARY = ".tmp"
_LOCK = "lock"


class StateFolderBusy(Exception):
    """Another process uses this state directory; the text names it."""


class StateFolder:
    """A state directory; made when it is not there. Raises `OSError` when it cannot be."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock: int | None = None

    def hold(self) -> None:
        """Claim it for this process until `release` or exit. Raises `StateFolderBusy`."""
        lock = os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as busy:
            holder = os.pread(lock, 20, 0).decode(errors="replace").strip() or "unknown"
            os.close(lock)
            raise StateFolderBusy(f"{self._folder} is used by process {holder}") from busy
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        self._lock = lock

    def release(self) -> None:
        """Let another process have it. Idempotent."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def read(self, name: str) -> bytes | None:
        """The content, or `None` when there is no such file."""
        try:
            return self._at(name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        """Replace the file as a whole. Raises `OSError`, and then the old one is still there."""
        target = self._at(name)
        temporary = target.with_name(target.name + _TEMPORARY)
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            with contextlib.ExitStack() as stack:
                stack.callback(os.close, file)
                view = memoryview(data)
                while view:
                    view = view[os.write(file, view) :]
                os.fsync(file)
            temporary.replace(target)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        self._sync_folder()

    def remove(self, name: str) -> None:
        """No error when it is not there."""
        with contextlib.suppress(FileNotFoundError):
            self._at(name).unlink()

    def names(self, prefix: str) -> list[str]:
        """Names that begin with `prefix`, sorted."""
        return sorted(
            entry.name
            for entry in os.scandir(self._folder)
            if entry.name.startswith(prefix) and not entry.name.endswith(_TEMPORARY) and entry.is_file()
        )

    def path(self, name: str) -> str:
        """Absolute path of a file, there or not."""
        return str(self._at(name))

    def _at(self, name: str) -> Path:
        assert name and "/" not in name and not name.startswith("."), name
        return self._folder / name

    def _sync_folder(self) -> None:
        folder = os.open(self._folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
