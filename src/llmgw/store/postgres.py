"""Opens the store that is a PostgreSQL database: its connections, its bounds, its write lock.

Laws: a write holds one advisory lock of the database from its first statement, as on SQLite it holds the
file's, so that queries mean the same on both; reads see one state and cannot write; the server too is told
how long a statement, a lock or an idle transaction may take, so that a client that stalls holds nobody up;
a connection that broke is replaced by the next transaction.
"""

import asyncio
import weakref
from typing import Any

import asyncpg
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from llmgw.aio.tasks import outcome
from llmgw.ports import StoreUnavailable
from llmgw.store.address import PostgresServer
from llmgw.store.database import (
    CLOSE_S,
    POOL_S,
    READERS,
    WRITERS,
    Begun,
    Bounds,
    Driver,
    EngineDatabase,
    words,
)

# The same number in every process of every version: it makes writers of one database take turns.
WRITE_LOCK = int.from_bytes(b"llmgw", "big")
ERRORS: tuple[type[Exception], ...] = (
    OSError,
    TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)
# Of a transaction's bound, for connecting: below it, so that what hinders it is heard.
CONNECT_SHARE = 0.8
GOODBYE_S = 0.8 * CLOSE_S

# For this transaction only: a pooler between us and the server may give the next one to somebody else.
_BOUNDS = text(
    "SELECT set_config('statement_timeout', :statement, true), set_config('lock_timeout', :lock, true),"
    " set_config('idle_in_transaction_session_timeout', :statement, true)"
)
_LOCK = text("SELECT pg_advisory_xact_lock(:key)")


def open_postgres(server: PostgresServer, bounds: Bounds) -> EngineDatabase:
    """The database on a server. Connects only when used."""
    connector = _Connector(server, CONNECT_SHARE * min(bounds.read_s, bounds.write_s))

    def engine(size: int, isolation: str) -> AsyncEngine:
        return create_async_engine(
            "postgresql+asyncpg://",
            async_creator=connector.connect,
            pool_size=size,
            max_overflow=0,
            pool_timeout=POOL_S,
            pool_pre_ping=True,  # a connection that broke while idle costs nobody a failure
            isolation_level=isolation,
        )

    def begin(begun: Begun) -> None:
        values = {
            "statement": f"{begun.within_s * 1000:.0f}",
            "lock": f"{bounds.lock_of(begun.within_s) * 1000:.0f}",
        }
        begun.connection.execute(_BOUNDS, values)
        if begun.write:
            begun.connection.execute(_LOCK, {"key": WRITE_LOCK})

    readers = engine(READERS, "REPEATABLE READ").execution_options(postgresql_readonly=True)
    writer = engine(WRITERS, "READ COMMITTED")

    async def close() -> None:
        # The pools would say goodbye one by one, without a bound, and log what a frozen server does to that.
        await readers.dispose(close=False)
        await writer.dispose(close=False)
        await connector.close()

    driver = Driver(server.name, readers, writer, begin=begin, errors=ERRORS, close=close)
    return EngineDatabase(driver, bounds)


class _Connector:
    """Makes connections, and closes all of them."""

    def __init__(self, server: PostgresServer, within_s: float) -> None:
        self._server = server
        self._within_s = within_s
        self._made: weakref.WeakSet[Any] = weakref.WeakSet()  # asyncpg says nothing of its types

    async def connect(self) -> Any:
        """A new connection. Raises `StoreUnavailable` with what hinders it."""
        server = self._server
        try:
            made = await asyncpg.connect(
                host=server.host,
                port=server.port,
                user=server.user,
                password=server.password,
                database=server.database,
                ssl=server.tls.setting(),
                timeout=self._within_s,
                server_settings={"application_name": "llmgw"},
            )
        except ERRORS as error:
            raise StoreUnavailable(f"{server.name}: cannot connect: {words(error)}") from error
        self._made.add(made)
        return made

    async def close(self) -> None:
        """Say goodbye; what gets no answer is dropped."""
        left = [connection for connection in self._made if not connection.is_closed()]
        await asyncio.gather(*(outcome(connection.close(timeout=GOODBYE_S)) for connection in left))
        for connection in left:
            if not connection.is_closed():
                connection.terminate()
