"""Runs the same queries on SQLite in the caller's own thread: for simulations and tests, not for servers.

Laws: no thread, no real clock, no chance; a unit of work is never interleaved with another; a fault is
what the given hooks raise or wait for, before the transaction or after its commit.
"""

from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Protocol, TypeVar

from sqlalchemy import Engine, create_engine
from sqlalchemy.pool import StaticPool

from llmgw.store.database import Work, translated
from llmgw.store.sqlite import ERRORS, WRITE, prepare_sqlite

T = TypeVar("T")


class Kind(Enum):
    """What a unit of work may do."""

    READ = "read"
    WRITE = "write"


class Hooks(Protocol):
    """What happens around each unit of work; raising `StoreUnavailable` fails it, waiting stalls it."""

    async def before(self, kind: Kind) -> None:
        """Called with nothing done yet."""
        ...

    async def after(self, kind: Kind) -> None:
        """Called after the commit: raising here is an answer lost on its way back."""
        ...


class NoFaults:
    """Hooks that do nothing."""

    async def before(self, kind: Kind) -> None:
        """Let it begin."""

    async def after(self, kind: Kind) -> None:
        """Let the answer through."""


def inline_engine(now: Callable[[], float], path: Path | None = None) -> Engine:
    """One SQLite database, in memory unless a file is named; `now` is its clock.

    Several `InlineDatabase`s over one engine are several clients of one database.
    """
    engine = create_engine(f"sqlite:///{path or ':memory:'}", poolclass=StaticPool)
    prepare_sqlite(engine, now)
    return engine


class InlineDatabase:
    """A `Database` without a driver's thread. `aclose` leaves the engine open: it belongs to its maker."""

    def __init__(self, engine: Engine, hooks: Hooks | None = None) -> None:
        self._reader = engine
        self._writer = engine.execution_options(**WRITE)
        self._hooks = hooks or NoFaults()

    async def run(self, work: Work[T]) -> T:
        """Read, from one consistent state; writing here is an error, as it would be under load elsewhere."""
        await self._hooks.before(Kind.READ)
        with translated("inline database", ERRORS), self._reader.connect() as connection:
            connection.exec_driver_sql("PRAGMA query_only = ON")
            try:
                result = work(connection)
            finally:
                connection.exec_driver_sql("PRAGMA query_only = OFF")
        await self._hooks.after(Kind.READ)
        return result

    async def write(self, work: Work[T], *, within_s: float | None = None) -> T:
        """Read and write. Takes no time, so that the bound never passes; hooks bring their own."""
        await self._hooks.before(Kind.WRITE)
        with translated("inline database", ERRORS), self._writer.begin() as connection:
            result = work(connection)
        await self._hooks.after(Kind.WRITE)
        return result

    async def aclose(self) -> None:
        """Nothing to close."""
