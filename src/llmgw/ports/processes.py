"""Processes of a node: started, found, signalled.

Law: Protocols and values only; the errors a port may raise stand beside it.
"""

from collections.abc import Mapping
from typing import Protocol

import msgspec


class ProcessId(msgspec.Struct, frozen=True):
    """Identity of a process: a pid alone may be reused (A14)."""

    boot_id: str
    pid: int
    start_time: int  # clock ticks since boot, /proc/PID/stat field 22


class SpawnSpec(msgspec.Struct, frozen=True):
    """A process to start, in its own process group, output appended to `log_path`."""

    argv: tuple[str, ...]
    env: Mapping[str, str]  # the whole environment, marker included
    log_path: str
    cwd: str | None = None


class SpawnFailed(Exception):
    """The process could not be started; the text is the operating system's reason."""


class ProcessHandle(Protocol):
    """A process we started or adopted."""

    @property
    def identity(self) -> ProcessId: ...

    async def wait(self) -> int | None:
        """Exit status (negative: signal); `None` when it was adopted and the status is not ours to know."""
        ...

    def signal_group(self, signum: int) -> None:
        """Signal its process group; no error when it is gone."""
        ...


class Processes(Protocol):
    """Starts, finds and signals processes on this node."""

    async def spawn(self, spec: SpawnSpec) -> ProcessHandle:
        """Raises `SpawnFailed`."""
        ...

    def adopt(self, identity: ProcessId) -> ProcessHandle | None:
        """A handle on a process that is alive with exactly this identity (zombies are dead)."""
        ...

    async def marked(self, marker: Mapping[str, str]) -> list[ProcessId]:
        """Every live process whose environment holds all of these variables.

        Waits, because looking into a process stuck in the kernel may hang (A17b).
        """
        ...

    def kill(self, identity: ProcessId, signum: int) -> None:
        """Signal one process if it still has this identity."""
        ...

    def boot_id(self) -> str: ...
