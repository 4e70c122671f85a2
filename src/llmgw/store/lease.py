"""Takes, renews and gives up the lease: the row that says which server leads, and in which term (H1, H2).

Laws: one statement both judges and takes, by the database's clock, so that two servers cannot both win;
the term grows with each new holder and never falls, also through a release; a holder that is late but
unchallenged keeps its term.
"""

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Row, select

from llmgw.ports import Lease, LeaseOwner
from llmgw.store.database import db_now
from llmgw.store.statements import insert
from llmgw.store.tables import CLUSTER, LEASE

HolderDead = Callable[[LeaseOwner], bool]
"""Whether a holder on this machine is certainly gone: its process ended, or the machine was booted since.
False whenever that cannot be known (another pid namespace, no /proc)."""

_LeaseRow = Row[*tuple[Any, ...]]
_RELEASED = ""
_ONLY_ROW = 1
_COLUMNS = (
    LEASE.c.term,
    LEASE.c.owner,
    LEASE.c.boot_id,
    LEASE.c.pid,
    LEASE.c.start_time,
    LEASE.c.address,
    (LEASE.c.expires_at - db_now()).label("expires_in_s"),
)


def cluster_id(connection: Connection) -> str:
    """The cluster's id, written with the first layout."""
    found: str = connection.scalars(select(CLUSTER.c.cluster_id)).one()
    return found


def take(connection: Connection, owner: LeaseOwner, duration_s: float, holder_dead: HolderDead) -> Lease:
    """Take the lease when it is free or expired, renew it when it is ours; else say who holds it.

    On SQLite, which one machine uses, a holder whose process is dead does not have to be waited for.
    """
    assert owner.owner != _RELEASED, "an owner has a name of its own"
    taken = _take(connection, owner, duration_s, over=_RELEASED)
    if taken is not None:
        return _lease(taken, owner)
    held = current(connection, owner)
    if connection.dialect.name != "sqlite" or not holder_dead(held.holder):
        return held
    # Guarded by the holder that was looked at: another server may have been quicker.
    taken = _take(connection, owner, duration_s, over=held.holder.owner)
    return current(connection, owner) if taken is None else _lease(taken, owner)


def _take(connection: Connection, owner: LeaseOwner, duration_s: float, over: str) -> _LeaseRow | None:
    values: dict[str, Any] = {
        "owner": owner.owner,
        "boot_id": owner.boot_id,
        "pid": owner.pid,
        "start_time": owner.start_time,
        "address": owner.address,
        "expires_at": db_now() + duration_s,
    }
    ours = LEASE.c.owner == owner.owner
    statement = (
        insert(connection, LEASE)
        .values(id=_ONLY_ROW, term=1, **values)
        .on_conflict_do_update(
            index_elements=["id"],
            set_={**values, "term": sa.case((ours, LEASE.c.term), else_=LEASE.c.term + 1)},
            where=sa.or_(ours, LEASE.c.owner == over, LEASE.c.expires_at <= db_now()),
        )
        .returning(*_COLUMNS)
    )
    return connection.execute(statement).one_or_none()


def current(connection: Connection, asker: LeaseOwner) -> Lease:
    """The lease as it is, without trying to take it. An empty table is a released lease of term 0."""
    row = connection.execute(select(*_COLUMNS)).one_or_none()
    if row is None:
        return Lease(False, 0, LeaseOwner(_RELEASED, "", 0, 0), 0.0)
    return _lease(row, asker)


def raise_term(connection: Connection, owner: LeaseOwner, above: int) -> Lease:
    """Make the term `above + 1` while `owner` holds the lease, unless it is higher already."""
    connection.execute(
        sa.update(LEASE).where(LEASE.c.owner == owner.owner, LEASE.c.term <= above).values(term=above + 1)
    )
    return current(connection, owner)


def release(connection: Connection, owner: LeaseOwner) -> None:
    """Give the lease up, if it is ours; the next holder gets a new term at once."""
    connection.execute(
        sa.update(LEASE)
        .where(LEASE.c.owner == owner.owner)
        .values(owner=_RELEASED, boot_id="", pid=0, start_time=0, address=None, expires_at=0.0)
    )


def _lease(row: _LeaseRow, asker: LeaseOwner) -> Lease:
    holder = LeaseOwner(row.owner, row.boot_id, row.pid, row.start_time, row.address)
    return Lease(row.owner == asker.owner, row.term, holder, row.expires_in_s)
