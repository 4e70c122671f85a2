"""Opens the database and runs queries on it: plain functions over a `Connection`, in one transaction each.

Laws: a query is a synchronous function and knows neither driver nor loop; a write holds the write lock
from its first statement (on SQLite a read that turns into a write fails at once, whatever the timeout);
everything is bounded in time; what cannot be reached is `StoreUnavailable` with the database's own words;
the database's clock is `db_now()`, on every connection (H1).
"""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
from sqlalchemy import URL, Connection, Double, Engine, event, exc, make_url, select
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import GenericFunction

from llmgw.ports import StoreUnavailable
from llmgw.store.files import make_private_file

T = TypeVar("T")
Work = Callable[[Connection], T]

# A caller waits this long for a transaction, queueing included. Half a default lease, so that a holder whose
# renewal got stuck learns it with time left to try again.
TRANSACTION_S = 5.0
# How long SQLite itself waits for another process's write; below the above, so that its own words are heard.
BUSY_S = 3.0
WRITE: Mapping[str, bool] = {"llmgw_write": True}  # execution option: hold the write lock from the start
POOL_S = 120.0  # longer than any transaction's own bound, which counts the wait for a connection too
READERS = 4  # connections for reads; a long report must not keep others from reading


class BadStoreUrl(Exception):
    """A store address that cannot be used; the text says what is accepted."""


class db_now(GenericFunction[float]):
    """The database's clock: seconds since the epoch, as a double (H1)."""

    type = Double()
    inherit_cache = True


@compiles(db_now, "postgresql")
def _db_now_postgresql(element: db_now, compiler: SQLCompiler, **kw: Any) -> str:
    # Not now(): that stands still within a transaction, and a lease waited for would look younger than it is.
    return "CAST(extract(epoch from clock_timestamp()) AS double precision)"


def database_time(connection: Connection) -> float:
    """The time by the database's clock."""
    return connection.scalars(select(db_now())).one()


class Database(Protocol):
    """Runs units of work, each in one transaction: committed when it returns, undone when it raises."""

    async def run(self, work: Work[T]) -> T:
        """Read, from one consistent state. Raises `StoreUnavailable`."""
        ...

    async def write(self, work: Work[T], *, within_s: float = TRANSACTION_S) -> T:
        """Read and write. Raises `StoreUnavailable`; then it may or may not have been committed."""
        ...

    async def aclose(self) -> None: ...


class SqliteFile(msgspec.Struct, frozen=True):
    """A store that is a file on this machine."""

    path: Path


def parse_store_url(url: str) -> SqliteFile:
    """What a `store:` address names. Raises `BadStoreUrl`."""
    accepted = "write sqlite:////absolute/path/llmgw.db"
    try:
        parsed = make_url(url)
    except exc.ArgumentError:
        raise BadStoreUrl(f"{url!r} is not a store address; {accepted}") from None
    if parsed.get_backend_name() == "postgresql":
        raise BadStoreUrl(f"store: PostgreSQL is not available in this version; {accepted}")
    if parsed.drivername != "sqlite":
        raise BadStoreUrl(f"store: {parsed.drivername!r} is no database llmgw knows; {accepted}")
    if not parsed.database or parsed.database == ":memory:" or parsed.query or parsed.host:
        raise BadStoreUrl(f"store: {url!r} names no file; {accepted}")
    path = Path(parsed.database)
    if not path.is_absolute():
        # Else the folder a command is started in would decide which database it works on.
        raise BadStoreUrl(f"store: {url!r} is not an absolute path; {accepted}")
    return SqliteFile(path)


def open_database(
    url: str,
    *,
    now: Callable[[], float] = time.time,
    busy_s: float = BUSY_S,
    read_within_s: float = TRANSACTION_S,
) -> "EngineDatabase":
    """The production database at a `store:` address; the file is made (0600) when there is none.

    Connects only when used. Raises `BadStoreUrl`, and `StoreUnavailable` when the file cannot be made.
    """
    path = parse_store_url(url).path
    make_private_file(path)

    def engine(size: int) -> AsyncEngine:
        made = create_async_engine(
            URL.create("sqlite+aiosqlite", database=str(path)),
            pool_size=size, max_overflow=0,
            pool_timeout=POOL_S, connect_args={"timeout": busy_s},
        )  # fmt: skip
        prepare_sqlite(made.sync_engine, now)
        return made

    # One connection writes: writers of this process queue in order instead of racing for SQLite's lock.
    return EngineDatabase(str(path), readers=engine(READERS), writer=engine(1), read_within_s=read_within_s)


class EngineDatabase:
    """A `Database` on SQLAlchemy's asyncio engines."""

    def __init__(self, name: str, *, readers: AsyncEngine, writer: AsyncEngine, read_within_s: float) -> None:
        self._name = name
        self._readers = readers
        self._writer = writer.execution_options(**WRITE)
        self._read_within_s = read_within_s

    async def run(self, work: Work[T]) -> T:
        """Read, from one consistent state."""
        with translated(self._name):
            async with bounded(self._name, self._read_within_s), self._readers.connect() as connection:
                return await connection.run_sync(work)

    async def write(self, work: Work[T], *, within_s: float = TRANSACTION_S) -> T:
        """Read and write."""
        with translated(self._name):
            async with bounded(self._name, within_s), self._writer.begin() as connection:
                return await connection.run_sync(work)

    async def aclose(self) -> None:
        """Close every connection."""
        await self._readers.dispose()
        await self._writer.dispose()


# ---------------------------------------------------------------- what every SQLite connection gets


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
        write = connection.get_execution_options().get("llmgw_write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    event.listen(engine, "connect", connected)
    event.listen(engine, "begin", began)


@contextmanager
def translated(name: str) -> Iterator[None]:
    """Turn what a driver raises when the database cannot be used into `StoreUnavailable`.

    What a query did wrong (a constraint, a bad statement) passes through: that is for its caller, or a bug.
    """
    try:
        yield
    except (exc.IntegrityError, exc.ProgrammingError, exc.DataError):
        raise
    except exc.TimeoutError:
        raise StoreUnavailable(f"{name}: every connection is busy") from None
    except exc.DBAPIError as error:
        raise StoreUnavailable(f"{name}: {error.orig}") from error
    except sqlite3.DatabaseError as error:  # while connecting
        raise StoreUnavailable(f"{name}: {error}") from error


@asynccontextmanager
async def bounded(name: str, bound_s: float) -> AsyncIterator[None]:
    """Give up after `bound_s` seconds of the loop's clock with `StoreUnavailable`."""
    try:
        async with asyncio.timeout(bound_s):
            yield
    except TimeoutError:
        raise StoreUnavailable(f"{name}: no answer within {bound_s:g} s") from None
