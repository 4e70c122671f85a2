"""Runs queries on a database: plain functions over a `Connection`, in one transaction each.

Laws: a query is a synchronous function and knows neither driver nor loop; a write holds the write lock
from its first statement, on every database, so that what it read is still so when it writes; a caller is
released within its bound, whatever driver and database do (what they still have to clean up, they clean
up without it); what cannot be reached is `StoreUnavailable` with the database's own words; the database's
clock is `db_now()`, on every connection (H1).
"""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

import msgspec
from sqlalchemy import Connection, Double, exc, select
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import GenericFunction

from llmgw.aio.tasks import Tasks
from llmgw.ports import StoreUnavailable

T = TypeVar("T")
Work = Callable[[Connection], T]

_LOG = logging.getLogger("llmgw.store")

# A caller waits this long for a transaction, queueing included. Half a default lease, so that a holder whose
# renewal got stuck learns it with time left to try again.
TRANSACTION_S = 5.0
# How long the database itself waits for another's lock; below the above, so that its own words are heard.
LOCK_S = 3.0
POOL_S = 120.0  # longer than any transaction's own bound, which counts the wait for a connection too
READERS = 4  # connections for reads; a long report must not keep others from reading
WRITERS = 1  # writers of one process queue in order instead of racing for the database's lock
LOCK_OPTION = "llmgw_lock_s"  # execution option of a write: how long it may wait for a lock
CLOSE_S = 1.0  # for work in progress to end, and to say goodbye; a database that does not answer is left


class Bounds(msgspec.Struct, frozen=True):
    """How long a transaction may take, in seconds, unless a write names its own bound."""

    read_s: float = TRANSACTION_S
    write_s: float = TRANSACTION_S
    lock_s: float = LOCK_S

    def lock_of(self, within_s: float) -> float:
        """How long a transaction of this bound waits for a lock: in proportion."""
        return within_s * self.lock_s / self.write_s


class db_now(GenericFunction[float]):
    """The database's clock: seconds since the epoch, as a double (H1)."""

    type = Double()
    inherit_cache = True


@compiles(db_now, "postgresql")
def _db_now_postgresql(element: db_now, compiler: SQLCompiler, **kw: object) -> str:
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

    async def write(self, work: Work[T], *, within_s: float | None = None) -> T:
        """Read and write. Raises `StoreUnavailable`; then it may or may not have been committed."""
        ...

    async def aclose(self) -> None: ...


class Begun(msgspec.Struct, frozen=True):
    """A transaction that has just begun."""

    connection: Connection
    write: bool
    within_s: float


class Driver(msgspec.Struct, frozen=True):
    """What is particular to one kind of database."""

    name: str  # how messages call the database; without a password
    readers: AsyncEngine
    writer: AsyncEngine
    begin: Callable[[Begun], None]  # called first in every transaction
    errors: tuple[type[Exception], ...]  # what the driver raises past SQLAlchemy
    close: Callable[[], Coroutine[object, object, None]]  # every connection


class EngineDatabase:
    """A `Database` on SQLAlchemy's asyncio engines."""

    def __init__(self, driver: Driver, bounds: Bounds) -> None:
        self._driver = driver
        self._bounds = bounds
        self._units = Tasks(on_failure=_left_behind)

    @property
    def name(self) -> str:
        """How messages call the database; without a password."""
        return self._driver.name

    async def run(self, work: Work[T]) -> T:
        """Read, from one consistent state."""
        return await self._within(self._bounds.read_s, self._read(work))

    async def write(self, work: Work[T], *, within_s: float | None = None) -> T:
        """Read and write."""
        bound_s = self._bounds.write_s if within_s is None else within_s
        return await self._within(bound_s, self._write(work, bound_s))

    async def _read(self, work: Work[T]) -> T:
        def whole(connection: Connection) -> T:
            self._driver.begin(Begun(connection, False, self._bounds.read_s))
            return work(connection)

        async with self._driver.readers.connect() as connection:
            return await connection.run_sync(whole)

    async def _write(self, work: Work[T], within_s: float) -> T:
        def whole(connection: Connection) -> T:
            self._driver.begin(Begun(connection, True, within_s))
            return work(connection)

        options = {LOCK_OPTION: self._bounds.lock_of(within_s)}
        async with self._driver.writer.execution_options(**options).begin() as connection:
            return await connection.run_sync(whole)

    async def _within(self, bound_s: float, unit: Coroutine[object, object, T]) -> T:
        """Wait for a unit of work, at most so long; then it is on its own."""
        with translated(self._driver.name, self._driver.errors):
            task = self._units.start(unit, name="unit of work")
            try:
                await asyncio.wait([task], timeout=bound_s)
            finally:
                # Rolling back and closing may hang as well: nobody waits for that.
                task.cancel()
            if task.cancelled():
                raise StoreUnavailable(f"{self._driver.name}: is being closed")
            if task.done():
                return task.result()
        raise StoreUnavailable(f"{self._driver.name}: no answer within {bound_s:g} s")

    async def aclose(self) -> None:
        """Close every connection, within a bound."""
        self._units.cancel()
        async with Tasks(on_failure=_left_behind) as tasks:
            for step in (self._units.settled, self._driver.close):
                await asyncio.wait([tasks.start(step(), name="closing the database")], timeout=CLOSE_S)


def _left_behind(what: str, failure: BaseException) -> None:
    """Failures are raised to the caller; those after it was released interest nobody else."""
    _LOG.debug("%s: %s", what, failure)


# ---------------------------------------------------------------- faults told from bugs

# What a query did wrong, by the first two letters of SQL's codes: data, integrity, syntax and names.
_QUERYS_FAULT = frozenset({"22", "23", "42"})
_DEPLOYMENTS_FAULT = frozenset({"42501", "42P01"})  # not allowed; a table is not there


@contextmanager
def translated(name: str, errors: tuple[type[Exception], ...]) -> Iterator[None]:
    """Turn what a driver raises when the database cannot be used into `StoreUnavailable`.

    What a query did wrong (a constraint, a bad statement) passes through: that is for its caller, or a bug.
    """
    try:
        yield
    except exc.TimeoutError:
        raise StoreUnavailable(f"{name}: every connection is busy") from None
    except exc.DBAPIError as error:
        if is_querys_fault(error):
            raise
        # What the driver said, without SQLAlchemy's wrapping.
        raise StoreUnavailable(f"{name}: {words(_cause(error) or error.orig or error)}") from error
    except errors as error:
        raise StoreUnavailable(f"{name}: {words(error)}") from error


def is_querys_fault(error: exc.DBAPIError) -> bool:
    """Whether a statement was wrong, rather than the database out of order."""
    state = getattr(error.orig, "sqlstate", None)
    if isinstance(state, str):
        return state[:2] in _QUERYS_FAULT and state not in _DEPLOYMENTS_FAULT
    if isinstance(_cause(error), ValueError | TypeError):
        return True  # a value the driver could not encode
    return isinstance(error, exc.IntegrityError | exc.ProgrammingError | exc.DataError)


def _cause(error: exc.DBAPIError) -> BaseException | None:
    return None if error.orig is None else error.orig.__cause__


def words(error: BaseException) -> str:
    """What a driver says, in one line."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ConnectionError) and error.errno:
        return os.strerror(error.errno)  # asyncio's own names calls of its own
    said = (error.strerror if isinstance(error, OSError) and error.strerror else str(error)).splitlines()
    return said[0] if said else type(error).__name__
