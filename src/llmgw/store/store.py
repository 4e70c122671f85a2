"""Offers the store to the control plane: each port's method is one query in one transaction.

Laws: nothing is decided here; nothing is kept here, so that two stores on one database are two servers.
"""

import random
from collections.abc import Sequence
from functools import partial

from llmgw.core.inventory import OperatorMark
from llmgw.ports import Lease, LeaseOwner, RosterRow
from llmgw.store import api_keys, groups, lease, ledger, migrations, roster
from llmgw.store.database import Database
from llmgw.store.lease import HolderDead
from llmgw.wire.admin_v1 import EventRow
from llmgw.wire.watch_v1 import KeyEntry, UsageRow

MIGRATION_S = 600.0  # a new layout may have to touch every usage row


async def migrate(database: Database, draw: random.Random) -> None:
    """Bring the database to this version's layout; safe when others do the same at the same time.

    `draw` names a new cluster. Raises `StoreUnavailable` and `migrations.NewerDatabase`.
    """
    if await database.run(migrations.revision_of) != migrations.HEAD:
        await database.write(lambda connection: migrations.upgrade(connection, draw), within_s=MIGRATION_S)


async def ensure_default_project(database: Database, draw: random.Random) -> None:
    """Make the project used where none is named, unless it is there."""
    await database.write(lambda connection: groups.ensure_default_project(connection, draw))


class SqlStore:
    """`ports.ControlStore` on a `Database`. Every method raises `StoreUnavailable`."""

    def __init__(self, database: Database, holder_dead: HolderDead) -> None:
        self._database = database
        self._holder_dead = holder_dead

    async def cluster_id(self) -> str:
        """See `ports.LeaseStore`."""
        return await self._database.run(lease.cluster_id)

    async def take(self, owner: LeaseOwner, duration_s: float) -> Lease:
        """See `ports.LeaseStore`."""
        dead = self._holder_dead
        return await self._database.write(lambda c: lease.take(c, owner, duration_s, dead))

    async def raise_term(self, owner: LeaseOwner, above: int) -> Lease:
        """See `ports.LeaseStore`."""
        return await self._database.write(lambda c: lease.raise_term(c, owner, above))

    async def release(self, owner: LeaseOwner) -> None:
        """See `ports.LeaseStore`."""
        await self._database.write(lambda c: lease.release(c, owner))

    async def roster(self) -> tuple[RosterRow, ...]:
        """See `ports.RosterStore`."""
        return await self._database.run(roster.roster)

    async def remember_node(self, node_id: str, address: str | None) -> None:
        """See `ports.RosterStore`."""
        await self._database.write(lambda c: roster.remember(c, node_id, address))

    async def set_mark(self, node_id: str, mark: OperatorMark) -> None:
        """See `ports.RosterStore`."""
        await self._database.write(lambda c: roster.set_mark(c, node_id, mark))

    async def forget_node(self, node_id: str) -> None:
        """See `ports.RosterStore`."""
        await self._database.write(lambda c: roster.forget(c, node_id))

    async def key_revision(self) -> int:
        """See `ports.KeyStore`."""
        return await self._database.run(api_keys.key_revision)

    async def keys(self) -> tuple[KeyEntry, ...]:
        """See `ports.KeyStore`."""
        return await self._database.run(api_keys.key_entries)

    async def add_usage(self, rows: Sequence[UsageRow]) -> None:
        """See `ports.LedgerStore`. In several transactions; sent again after a failure, none is doubled."""
        for batch in ledger.batches(rows):
            await self._database.write(partial(ledger.add_usage, rows=batch))

    async def add_events(self, events: Sequence[EventRow]) -> None:
        """See `ports.LedgerStore`."""
        await self._database.write(lambda c: ledger.add_events(c, events))

    async def events(self, limit: int, model: str | None, node: str | None) -> tuple[EventRow, ...]:
        """See `ports.LedgerStore`: the last `limit`, newest first."""
        return await self._database.run(lambda c: ledger.events(c, limit, model, node))
