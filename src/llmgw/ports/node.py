"""A node as its agent looks at it: what it is, what is checked before a start, logs.

Law: Protocols and values only; the errors a port may raise stand beside it.
"""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from llmgw.core.inventory import Filesystem, Gpu, NodeReport
from llmgw.core.weights import FileFacts


class NodeVitals(msgspec.Struct, frozen=True):
    """What changes from moment to moment (A6). `None`: could not be learned.

    `stale_s` names the fields whose probe did not answer in time, with the age of the value given.
    """

    memory_total_bytes: int | None = None
    memory_available_bytes: int | None = None
    gpus: tuple[Gpu, ...] | None = None
    filesystems: tuple[Filesystem, ...] | None = None
    ports_in_use: tuple[int, ...] | None = None
    stale_s: Mapping[str, float] = {}


class NodeProbe(Protocol):
    """Looks at this node. Every look is bounded; one that hangs yields the last value (A17b)."""

    async def report(self) -> NodeReport:
        """The whole node, looked at anew (A1)."""
        ...

    async def vitals(self, ports: range) -> NodeVitals:
        """What a heartbeat carries; of the ports only those in `ports`."""
        ...


class NodeChecks(Protocol):
    """What is looked at on the node before an engine is started (A16), and after it ended."""

    async def port_free(self, address: str, port: int) -> bool:
        """Whether an engine could listen there now. Raises `OSError` when the address is not ours."""
        ...

    async def file(self, path: str) -> FileFacts:
        """What is at a path; a filesystem that does not answer is `UNREADABLE`."""
        ...

    async def secret(self, path: str) -> str:
        """The content of a secret's file without its last newline. Raises `OSError`."""
        ...


class EngineLogs(Protocol):
    """The bounded files engines write their output to (A15), by name."""

    def path(self, name: str) -> str:
        """Where an engine's output goes; the folder is there."""
        ...

    async def tail(self, name: str, lines: int) -> tuple[str, ...]:
        """The last lines, oldest first; () when there is no such log."""
        ...

    async def read(self, name: str, offset: int | None) -> tuple[tuple[str, ...], int]:
        """Whole lines after a byte offset and the next offset; `None` begins at the end.

        A log that was cut meanwhile is read from its new start.
        """
        ...

    async def trim(self) -> None:
        """Cut logs that grew beyond their bound, remove the oldest of those no engine writes."""
        ...
