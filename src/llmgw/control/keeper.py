"""Brings what must not be lost to the store, and what people changed in the store to the fleet.

Laws: nothing here makes the owner wait; every buffer is bounded and counts what it drops; a store that
stalls or vanishes stops nothing that runs (H2), it is retried and shown.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from llmgw.core import happenings as h
from llmgw.ports import Clock, ControlStore, StoreUnavailable
from llmgw.wire.admin_v1 import EventRow
from llmgw.wire.watch_v1 import KeyEntry, UsageBatch

_LOG = logging.getLogger("llmgw.control.store")

RING = 2000  # events kept in memory: a few hours of a busy fleet
EVENTS_A_WRITE = 500  # keeps one write far below a quarter of a second
PENDING_MAX = 20_000  # events and nodes waiting for the store; at ten a second half an hour without it

Tell = Callable[[h.Event], Awaitable[None]]


class Storekeeper:
    """Events, the roster, keys and usage, between the fleet and the store."""

    def __init__(self, store: ControlStore, clock: Clock, tell: Tell) -> None:
        self._store = store
        self._clock = clock
        self._tell = tell
        self._ring: deque[EventRow] = deque(maxlen=RING)
        self._events: deque[EventRow] = deque()
        self._nodes: dict[str, str | None] = {}
        self._writing = asyncio.Lock()
        self._key_revision: int | None = None
        self.keys: tuple[KeyEntry, ...] = ()
        self.trouble: str | None = None
        self.dropped_events = 0

    # ------------------------------------------------------------ called by the owner, never waiting

    def record(self, event: h.Record) -> None:
        """Keep a decision: in the ring at once, in the store soon."""
        row = EventRow(self._clock.now(), event.kind, event.text, event.model, event.replica, event.node)
        about = [part for part in (row.kind, row.model, row.replica, row.node) if part]
        _LOG.info("%s: %s", " ".join(about), row.text)
        self._ring.append(row)
        self._events.append(row)
        self._drop_oldest()

    def remember(self, node: str, address: str | None) -> None:
        """A node joined the roster."""
        if len(self._nodes) < PENDING_MAX:
            self._nodes[node] = address

    def recent(self, limit: int, model: str | None, node: str | None) -> tuple[EventRow, ...]:
        """Events in memory, newest first."""
        wanted = (
            row
            for row in reversed(self._ring)
            if (model is None or row.model == model) and (node is None or row.node == node)
        )
        return tuple(row for row, _ in zip(wanted, range(limit), strict=False))

    # ------------------------------------------------------------ run beside the owner

    async def beat(self) -> None:
        """Once a second: write what waits, look whether keys changed."""
        try:
            await self._write_nodes()
            await self._write_events()
            await self.read_keys()
        except StoreUnavailable as error:
            self._note(str(error))
        else:
            self._note(None)

    async def read_keys(self) -> None:
        """Read the keys when their revision moved. Raises `StoreUnavailable`."""
        revision = await self._store.key_revision()
        if revision == self._key_revision:
            return
        self.keys = await self._store.keys()
        self._key_revision = revision
        await self._tell(h.KeysChanged())

    async def store_usage(self, batch: UsageBatch) -> bool:
        """Store a router's batch; false when it must be sent again."""
        try:
            await self._store.add_usage(batch.rows)
        except StoreUnavailable as error:
            self._note(str(error))
            return False
        return True

    async def events(self, limit: int, model: str | None, node: str | None) -> tuple[EventRow, ...]:
        """Events, newest first: from the store, else those in memory."""
        try:
            await self._write_events()
            return await self._store.events(limit, model, node)
        except StoreUnavailable:
            return self.recent(limit, model, node)

    async def _write_nodes(self) -> None:
        for node, address in list(self._nodes.items()):
            await self._store.remember_node(node, address)
            if self._nodes.get(node) == address:
                del self._nodes[node]

    async def _write_events(self) -> None:
        """A slice at a time, each taken out only once it is stored; by one writer at a time."""
        async with self._writing:
            while self._events:
                rows = [row for row, _ in zip(self._events, range(EVENTS_A_WRITE), strict=False)]
                await self._store.add_events(rows)
                for row in rows:
                    if self._events and self._events[0] is row:  # else it was dropped meanwhile
                        self._events.popleft()

    def _drop_oldest(self) -> None:
        while len(self._events) > PENDING_MAX:
            self._events.popleft()
            self.dropped_events += 1

    def _note(self, trouble: str | None) -> None:
        if trouble != self.trouble:
            if trouble is None:
                _LOG.info("the store answers again")
            else:
                _LOG.error("the store does not answer: %s; what runs goes on", trouble)
        self.trouble = trouble
