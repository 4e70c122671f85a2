"""Looks after a database file: whether it is whole, and copies of it while it is in use.

Laws: a copy appears under its name only when it is complete, readable by its owner alone, and never
replaces a file; nothing here writes to the database.
"""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from sqlalchemy import Connection, text

from llmgw.ports import StoreUnavailable
from llmgw.store import migrations

PROBLEMS_SHOWN = 20
CHECK_S = 3600.0  # reading a large file takes as long as it takes


def problems(connection: Connection) -> tuple[str, ...]:
    """What is wrong with the database, one line each; none when it is whole and at this version's layout."""
    found: list[str] = []
    for (line,) in connection.execute(text(f"PRAGMA integrity_check({PROBLEMS_SHOWN})")):
        if line != "ok":
            found.append(str(line))
    for table, row, parent, _ in connection.execute(text("PRAGMA foreign_key_check")):
        found.append(f"{table} row {row} names a row of {parent} that is not there")
    revision = migrations.revision_of(connection)
    if revision != migrations.HEAD:
        found.append(
            f"is at revision {revision or 'none'}, this llmgw needs {migrations.HEAD}: llmgw db upgrade"
        )
    return tuple(found[:PROBLEMS_SHOWN])


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
