"""Builds the few statements the two databases spell through different constructs, and counts revisions.

Law: what is built means the same on SQLite and PostgreSQL; no query elsewhere asks which one it runs on.
"""

from typing import Any

from sqlalchemy import Connection, Table, select
from sqlalchemy.dialects import postgresql, sqlite

from llmgw.store.tables import REVISION

KEYS_TOPIC = "keys"  # API keys and everything above them
ROSTER_TOPIC = "roster"  # nodes and their marks


def insert(connection: Connection, table: Table) -> sqlite.Insert | postgresql.Insert:
    """An INSERT that can say what to do on a conflict."""
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)


def bump(connection: Connection, topic: str) -> None:
    """Raise a topic's revision; in the transaction that changes what it is about."""
    statement = insert(connection, REVISION).values(topic=topic, value=1)
    raised: dict[str, Any] = {"value": REVISION.c.value + 1}
    connection.execute(statement.on_conflict_do_update(index_elements=["topic"], set_=raised))


def revision(connection: Connection, topic: str) -> int:
    """A topic's revision; 0 when nothing was ever changed."""
    return connection.scalar(select(REVISION.c.value).where(REVISION.c.topic == topic)) or 0
