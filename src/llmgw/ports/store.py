"""What is kept: the lease, the roster, keys, usage and events.

Law: Protocols and values only; the errors a port may raise stand beside it.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from llmgw.core.inventory import OperatorMark
from llmgw.wire.admin_v1 import EventRow
from llmgw.wire.watch_v1 import KeyEntry, UsageRow


class StoreUnavailable(Exception):
    """The database could not be reached or did not answer in time. Never evidence about who leads (H2)."""


class LeaseOwner(msgspec.Struct, frozen=True):
    """Who asks for the lease: random per process, with the process's identity for same-host takeover."""

    owner: str
    boot_id: str
    pid: int
    start_time: int
    address: str | None = None  # where this server's agent listener is, for standbys to point at


class Lease(msgspec.Struct, frozen=True):
    """The lease row after an attempt: whether the asker holds it; `term` grows with each holder."""

    held: bool
    term: int
    holder: LeaseOwner
    expires_in_s: float  # by the database's clock


class LeaseStore(Protocol):
    """The lease (H1): taken and renewed by one statement, judged by the database's clock."""

    async def cluster_id(self) -> str:
        """Written with the first migration."""
        ...

    async def take(self, owner: LeaseOwner, duration_s: float) -> Lease:
        """Take it when free, expired, or held by a dead process of this host; renew it when ours."""
        ...

    async def raise_term(self, owner: LeaseOwner, above: int) -> Lease:
        """Make the term `above + 1`, only while `owner` holds the lease (H2)."""
        ...

    async def release(self, owner: LeaseOwner) -> None:
        """Give it up, if it is ours."""
        ...


class RosterRow(msgspec.Struct, frozen=True):
    """A node that was seen once, with the operator's mark."""

    node_id: str
    mark: OperatorMark
    address: str | None = None


class RosterStore(Protocol):
    """The stored roster of nodes and their marks (I2, R10)."""

    async def roster(self) -> tuple[RosterRow, ...]: ...

    async def remember_node(self, node_id: str, address: str | None) -> None: ...

    async def set_mark(self, node_id: str, mark: OperatorMark) -> None: ...

    async def forget_node(self, node_id: str) -> None: ...


class KeyStore(Protocol):
    """What routers must know of API keys, and the revision that changes with any of it (G17)."""

    async def key_revision(self) -> int: ...

    async def keys(self) -> tuple[KeyEntry, ...]: ...


class LedgerStore(Protocol):
    """Where usage rows and events end up."""

    async def add_usage(self, rows: Sequence[UsageRow]) -> None:
        """Idempotent by request id: a batch sent twice is stored once."""
        ...

    async def add_events(self, events: Sequence[EventRow]) -> None: ...

    async def events(self, limit: int, model: str | None, node: str | None) -> tuple[EventRow, ...]: ...


class ControlStore(LeaseStore, RosterStore, KeyStore, LedgerStore, Protocol):
    """All the control plane needs of the store."""
