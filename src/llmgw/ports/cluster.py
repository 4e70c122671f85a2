"""The control plane as its pages and API see it.

Law: Protocols and values only; the errors a port may raise stand beside it.
"""

from collections.abc import AsyncIterator
from typing import Protocol

from llmgw.core.inventory import OperatorMark
from llmgw.wire.admin_v1 import EventRow, Explanation, ModelRow, NodeRow, ReplicaRow, RouterRow, Status


class AdminRefused(Exception):
    """An admin request that cannot be done: `code` for programs, the text for a person; a 4xx status."""

    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.code = code


class LogFollower(Protocol):
    """Lines of an engine's log as they come; `async for`."""

    def __aiter__(self) -> AsyncIterator[str]: ...

    async def aclose(self) -> None: ...


class ClusterAdmin(Protocol):
    """What the admin API and the dashboard may ask of the control plane; answers are values."""

    def status(self) -> Status: ...

    def nodes(self) -> tuple[NodeRow, ...]: ...

    def replicas(self) -> tuple[ReplicaRow, ...]: ...

    def models(self) -> tuple[ModelRow, ...]: ...

    def routers(self) -> tuple[RouterRow, ...]: ...

    async def explain(self, model: str) -> Explanation:
        """Raises `AdminRefused` (404) for an unknown model."""
        ...

    async def events(self, limit: int, model: str | None, node: str | None) -> tuple[EventRow, ...]: ...

    async def set_mark(self, node: str, mark: OperatorMark) -> NodeRow:
        """Raises `AdminRefused` (404) for an unknown node."""
        ...

    async def logs(self, replica: str, rank: int, lines: int, follow: bool) -> LogFollower:
        """Raises `AdminRefused`: 404 unknown replica, 503 when its node is not connected."""
        ...
