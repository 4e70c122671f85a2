"""Opens the store that is a SQLite file on this machine, through a driver with threads of its own.

Laws: a write takes the file's lock at once (a read that turns into a write fails at once, whatever the
timeout); readers do not wait for the writer; `db_now()` is this machine's clock, or the one it is given.
"""

import sqlite3
from collections.abc import Callable, Mapping

from sqlalchemy import URL, Connection, Engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from llmgw.store.address import SqliteFile
from llmgw.store.database import (
    LOCK_OPTION,
    POOL_S,
    READERS,
    WRITERS,
    Begun,
    Bounds,
    Driver,
    EngineDatabase,
)
from llmgw.store.files import make_private_file

WRITE: Mapping[str, bool] = {"llmgw_write": True}  # execution option: hold the write lock from the start
ERRORS = (sqlite3.DatabaseError,)  # raised past SQLAlchemy while connecting


def open_sqlite(file: SqliteFile, now: Callable[[], float], bounds: Bounds) -> EngineDatabase:
    """The database in a file, which is made (0600) when there is none. Raises `StoreUnavailable`."""
    make_private_file(file.path)

    def engine(size: int) -> AsyncEngine:
        made = create_async_engine(
            URL.create("sqlite+aiosqlite", database=str(file.path)),
            pool_size=size, max_overflow=0,
            pool_timeout=POOL_S, connect_args={"timeout": bounds.lock_s},
        )  # fmt: skip
        prepare_sqlite(made.sync_engine, now)
        return made

    readers, writer = engine(READERS), engine(WRITERS).execution_options(**WRITE)

    async def close() -> None:
        await readers.dispose()
        await writer.dispose()

    driver = Driver(file.name, readers, writer, begin=_begun_already, errors=ERRORS, close=close)
    return EngineDatabase(driver, bounds)


def _begun_already(begun: Begun) -> None:
    """`prepare_sqlite` has seen to it."""


def prepare_sqlite(engine: Engine, now: Callable[[], float]) -> None:
    """Give every connection of an engine its clock and settings, and begin transactions as said above."""

    def connected(connection: DBAPIConnection, record: object) -> None:
        # The driver's own transactions begin deferred and late; ours are begun by `began`.
        connection.isolation_level = None
        connection.create_function("db_now", 0, now)
        cursor = connection.cursor()
        try:
            cursor.execute("PRAGMA journal_mode = WAL")  # readers do not wait for the writer
            cursor.execute("PRAGMA foreign_keys = ON")
        finally:
            cursor.close()

    def began(connection: Connection) -> None:
        options = connection.get_execution_options()
        if LOCK_OPTION in options:
            connection.exec_driver_sql(f"PRAGMA busy_timeout = {options[LOCK_OPTION] * 1000:.0f}")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get("llmgw_write", False) else "BEGIN")

    event.listen(engine, "connect", connected)
    event.listen(engine, "begin", began)
