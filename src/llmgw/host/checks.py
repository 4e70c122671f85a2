"""Looks at the node before an engine starts; implements `ports.NodeChecks`.

Law: files may lie on a disk that does not answer, so every look at one is off the loop and bounded.
"""

import stat
from pathlib import Path

from llmgw.core.weights import FileFacts, FileKind
from llmgw.host import netports
from llmgw.host.offloop import OffLoop

LOOK_WITHIN_S = 20.0  # a cold network filesystem answers within seconds
HEAD = 64  # bytes: magic numbers and format versions
SECRET_MAX = 64 * 1024
_SILENT = f"its filesystem did not answer within {LOOK_WITHIN_S:g} s"


class HostChecks:
    """The `NodeChecks` of production."""

    def __init__(self, off_loop: OffLoop) -> None:
        self._off_loop = off_loop

    async def port_free(self, address: str, port: int) -> bool:
        """Whether an engine could listen there now. Raises `OSError` for an address that is not ours."""
        return netports.port_free(address, port)  # binds, which does not block

    async def file(self, path: str) -> FileFacts:
        """What is at a path."""
        try:
            return await self._off_loop.run(lambda: _look(path), within=LOOK_WITHIN_S, at=path)
        except TimeoutError:
            return FileFacts(FileKind.SILENT, detail=_SILENT)

    async def secret(self, path: str) -> str:
        """The content of a secret's file without its last newline. Raises `OSError`."""
        try:
            return await self._off_loop.run(lambda: _secret(path), within=LOOK_WITHIN_S, at=path)
        except TimeoutError as error:
            raise OSError(_SILENT) from error


def _look(path: str) -> FileFacts:
    try:
        found = Path(path).stat()
        if stat.S_ISDIR(found.st_mode):
            return FileFacts(FileKind.FOLDER)
        if not stat.S_ISREG(found.st_mode):
            return FileFacts(FileKind.UNREADABLE, detail="it is neither a file nor a folder")
        with Path(path).open("rb") as file:
            return FileFacts(FileKind.FILE, found.st_size, file.read(HEAD))
    except (FileNotFoundError, NotADirectoryError):
        return FileFacts(FileKind.MISSING)
    except OSError as error:
        return FileFacts(FileKind.UNREADABLE, detail=error.strerror or str(error))


def _secret(path: str) -> str:
    with Path(path).open(encoding="utf-8") as file:
        return file.read(SECRET_MAX).removesuffix("\n")
