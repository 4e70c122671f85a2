"""Keeps which nodes were ever seen, and what the operator said of them (I2, R10).

Laws: a mark changes only when the operator changes it, never when a node reports; forgetting a node
forgets its mark; a node seen again unchanged writes nothing.
"""

import sqlalchemy as sa
from sqlalchemy import Connection, select

from llmgw.core.inventory import Mark, OperatorMark
from llmgw.ports import RosterRow
from llmgw.store.database import db_now
from llmgw.store.statements import ROSTER_TOPIC, bump, insert
from llmgw.store.tables import NODES


def roster(connection: Connection) -> tuple[RosterRow, ...]:
    """Every node, by id."""
    # Sorted here: how a database orders text depends on where and how it was made.
    rows = sorted(connection.execute(select(NODES)), key=lambda row: str(row.node_id))
    return tuple(
        RosterRow(
            row.node_id,
            OperatorMark(Mark(row.mark), row.mark_reason, row.mark_actor, row.mark_at),
            row.address,
        )
        for row in rows
    )


def remember(connection: Connection, node_id: str, address: str | None) -> None:
    """Enter a node, or its new address."""
    known = connection.execute(select(NODES.c.address).where(NODES.c.node_id == node_id)).one_or_none()
    if known is not None and known.address == address:
        return
    statement = insert(connection, NODES).values(
        node_id=node_id,
        address=address,
        known_since=db_now(),
        mark=Mark.READY.value,
        mark_reason="",
        mark_actor="",
    )
    connection.execute(statement.on_conflict_do_update(index_elements=["node_id"], set_={"address": address}))
    bump(connection, ROSTER_TOPIC)


def set_mark(connection: Connection, node_id: str, mark: OperatorMark) -> None:
    """Write the operator's mark, also on a node that is not in the roster yet."""
    values = {
        "mark": mark.mark.value,
        "mark_reason": mark.reason,
        "mark_actor": mark.actor,
        "mark_at": mark.at,
    }
    statement = insert(connection, NODES).values(node_id=node_id, known_since=db_now(), **values)
    connection.execute(statement.on_conflict_do_update(index_elements=["node_id"], set_=values))
    bump(connection, ROSTER_TOPIC)


def forget(connection: Connection, node_id: str) -> None:
    """Drop a node and its mark."""
    connection.execute(sa.delete(NODES).where(NODES.c.node_id == node_id))
    bump(connection, ROSTER_TOPIC)
