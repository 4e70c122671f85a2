"""Small files of a role, and what a running role offers.

Law: Protocols and values only; the errors a port may raise stand beside it.
"""

from typing import Protocol


class StateFiles(Protocol):
    """Small files of a role's state directory; written whole (temporary, fsync, rename), mode 0600."""

    def read(self, name: str) -> bytes | None: ...

    def write(self, name: str, data: bytes) -> None: ...

    def remove(self, name: str) -> None: ...

    def names(self, prefix: str) -> list[str]: ...

    def path(self, name: str) -> str:
        """Absolute path of a state file, for a process that must be told where it is."""
        ...


class LoopOwner(Protocol):
    """What a running role offers to the one that started it."""

    async def run(self) -> None: ...

    async def aclose(self) -> None: ...
