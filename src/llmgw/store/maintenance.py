"""Looks after a database: whether it is whole, and copies of it while it is in use.

Laws: a copy appears under its name only when it is complete, readable by its owner alone, and never
replaces a file; nothing here writes to the database; PostgreSQL is copied by its own tool.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from sqlalchemy import Connection, ForeignKey, Select, func, inspect, select, text

from llmgw.ports import StoreUnavailable
from llmgw.store import migrations
from llmgw.store.address import PostgresServer
from llmgw.store.tables import METADATA

PROBLEMS_SHOWN = 20
CHECK_S = 3600.0  # reading a large file takes as long as it takes


def problems(connection: Connection) -> tuple[str, ...]:
    """What is wrong with the database, one line each; none when it is whole and at this version's layout."""
    revision = migrations.revision_of(connection)
    found: list[str] = []
    if connection.dialect.name == "sqlite":
        found += _sqlite_problems(connection)
    elif revision == migrations.HEAD:  # else its layout is not ours to judge
        found += _postgres_problems(connection)
    if revision != migrations.HEAD:
        found.append(
            f"is at revision {revision or 'none'}, this llmgw needs {migrations.HEAD}: llmgw db upgrade"
        )
    return tuple(found[:PROBLEMS_SHOWN])


def _sqlite_problems(connection: Connection) -> Iterator[str]:
    for (line,) in connection.execute(text(f"PRAGMA integrity_check({PROBLEMS_SHOWN})")):
        if line != "ok":
            yield str(line)
    for table, row, parent, _ in connection.execute(text("PRAGMA foreign_key_check")):
        yield f"{table} row {row} names a row of {parent} that is not there"


# ---------------------------------------------------------------- PostgreSQL


def _postgres_problems(connection: Connection) -> Iterator[str]:
    missing = list(_missing(connection))
    yield from missing
    if missing:
        return
    for (index,) in connection.execute(_BROKEN_INDEXES):
        yield f"index {index} was not completed; run: REINDEX INDEX {index}"
    for table in METADATA.sorted_tables:
        for key in sorted(table.foreign_keys, key=lambda key: key.parent.name):
            orphans, parent = connection.scalar(_orphans(key)), key.column.table.name
            if orphans:
                yield f"{orphans} rows of {table.name} name a row of {parent} that is not there"


_BROKEN_INDEXES = text(
    "SELECT indexrelid::regclass::text FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid"
    " WHERE relnamespace = current_schema()::regnamespace AND NOT (indisvalid AND indisready)"
)


def _missing(connection: Connection) -> Iterator[str]:
    """Tables, columns, indexes and foreign keys that this version's layout has and the database has not."""
    looker = inspect(connection)
    there = set(looker.get_table_names())
    for table in METADATA.sorted_tables:
        if table.name not in there:
            yield f"table {table.name} is missing"
            continue
        columns = {column["name"] for column in looker.get_columns(table.name)}
        yield from (
            f"column {table.name}.{c.name} is missing" for c in table.columns if c.name not in columns
        )
        indexes = {index["name"] for index in looker.get_indexes(table.name)}
        yield from (f"index {name} is missing" for i in table.indexes if (name := i.name) not in indexes)
        keys = {tuple(key["constrained_columns"]) for key in looker.get_foreign_keys(table.name)}
        for key in table.foreign_keys:
            if (key.parent.name,) not in keys:
                yield f"the foreign key of {table.name}.{key.parent.name} is missing"


def _orphans(key: ForeignKey) -> Select[int]:
    parents = key.column.table.alias()
    known = select(1).where(parents.c[key.column.name] == key.parent).exists()
    return select(func.count()).select_from(key.parent.table).where(key.parent.is_not(None), ~known)


def dump_command(server: PostgresServer, target: Path) -> tuple[str, ...]:
    """What copies a database of a PostgreSQL server to a file; it finds the password itself, or asks."""
    return ("pg_dump", "--format=custom", f"--file={target}", server.tool_address)


# ---------------------------------------------------------------- a file


def backup(source: Path, target: Path) -> None:
    """Copy the database as it is now, to a name that is free; servers go on meanwhile.

    Raises `StoreUnavailable`, and `OSError` (`FileExistsError`: the name is taken).
    """
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    os.close(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        _copy(source, part)
        os.link(part, target)  # refuses when there is one
    finally:
        part.unlink()


def _copy(source: Path, part: Path) -> None:
    try:
        with closing(sqlite3.connect(source, timeout=30.0)) as here, closing(sqlite3.connect(part)) as there:
            here.backup(there)
            # One file, without the write-ahead log beside it.
            there.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.Error as error:
        raise StoreUnavailable(f"{source}: {error}") from error
    with part.open("rb") as copied:
        os.fsync(copied.fileno())
