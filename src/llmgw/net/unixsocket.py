"""Keeps the file of a Unix listening socket honest: private, never stolen, removed when ours.

Laws: a socket file is replaced only when nobody listens on it; nothing that is not a socket is ever
removed; the file is private before the first connection can be accepted. A loop without real files
(the simulator's) simply has no file to look at.
"""

import asyncio
import contextlib
import errno
import stat
from pathlib import Path

FileId = tuple[int, int]


async def make_way(path: str) -> None:
    """Remove a stale socket file. Raises `OSError` when somebody listens or it is no socket."""
    loop = asyncio.get_running_loop()
    try:
        transport, _ = await loop.create_unix_connection(asyncio.Protocol, path)
    except FileNotFoundError:
        return
    except ConnectionRefusedError:
        _remove_stale(path)
        return
    transport.abort()
    raise OSError(errno.EADDRINUSE, "another process listens on this socket", path)


def _remove_stale(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(Path(path).lstat().st_mode):
            raise OSError(errno.EEXIST, "there is a file that is not a socket; remove it", path)
        Path(path).unlink()


def make_private(path: str) -> FileId | None:
    """Set mode 0600; returns what identifies the file, to tell it later from a successor's."""
    with contextlib.suppress(FileNotFoundError):
        Path(path).chmod(0o600)
        return _identify(path)
    return None


def remove_own(path: str, own: FileId | None) -> None:
    """Remove the socket file unless another process has put its own there since."""
    with contextlib.suppress(FileNotFoundError):
        if own is not None and _identify(path) == own:
            Path(path).unlink()


def _identify(path: str) -> FileId:
    status = Path(path).lstat()
    return status.st_dev, status.st_ino
