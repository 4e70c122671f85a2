"""Takes the lease and renews it; tells the fleet when this server begins or ceases to lead (H1, H2).

Laws: only the store's word that another holds the lease ends leadership; a store that cannot be reached
keeps the claim; renewals come three times a lease.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from llmgw.core import happenings as h
from llmgw.ports import ControlStore, Lease, LeaseOwner, StoreUnavailable

_LOG = logging.getLogger("llmgw.control.lease")

Tell = Callable[[h.Event], Awaitable[None]]


class Leadership:
    """This server's claim to lead."""

    def __init__(self, store: ControlStore, owner: LeaseOwner, lease_s: float, tell: Tell) -> None:
        self._store = store
        self._owner = owner
        self._lease_s = lease_s
        self._tell = tell
        self._term: int | None = None  # under which we lead
        # A beat that saw a term being raised would take it for somebody else's.
        self._one_at_a_time = asyncio.Lock()

    @property
    def renew_every_s(self) -> float:
        """How often `beat` is to be called."""
        return self._lease_s / 3

    async def beat(self) -> None:
        """Take or renew."""
        async with self._one_at_a_time:
            try:
                await self._heed(await self._store.take(self._owner, self._lease_s))
            except StoreUnavailable as error:
                _LOG.warning("the lease could not be renewed: %s; what was decided stands", error)

    async def _heed(self, lease: Lease) -> None:
        if lease.held and lease.term != self._term:
            # New to us, or somebody led in between while the store was out of our reach.
            roster = {row.node_id: row.mark for row in await self._store.roster()}
            cluster_id = await self._store.cluster_id()
            self._term = lease.term
            await self._tell(h.LeaseTaken(cluster_id, lease.term, roster))
        elif not lease.held and self._term is not None:
            self._term = None
            holder = f"pid {lease.holder.pid}, boot {lease.holder.boot_id}"
            await self._tell(h.LeaseLost(lease.holder.address or holder))

    async def raise_above(self, term: int) -> None:
        """Make our term higher than one an agent has seen, if the lease is still ours."""
        async with self._one_at_a_time:
            if self._term is None or self._term > term:
                return
            try:
                lease = await self._store.raise_term(self._owner, term)
            except StoreUnavailable as error:
                _LOG.warning("the term could not be raised above %d: %s", term, error)
                return
            if lease.held:
                self._term = lease.term
                await self._tell(h.TermRaised(lease.term))

    async def release(self) -> None:
        """Give the lease up, so that the next server need not wait for it to expire."""
        try:
            await self._store.release(self._owner)
        except StoreUnavailable as error:
            _LOG.warning("the lease could not be released, it expires by itself: %s", error)
