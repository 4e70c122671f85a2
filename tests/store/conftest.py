"""Gives store tests every database they must hold on, with a clock the test moves.

Law: a test that takes `world` runs on each of `WORLDS`; a further database is one more entry there.
"""

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from llmgw.ports import LeaseOwner
from llmgw.store.database import Database, open_database
from llmgw.store.inline import InlineDatabase, inline_engine
from llmgw.store.store import SqlStore, migrate

START = 1_000_000.0


class World:
    """A migrated database, and time passing for it."""

    def __init__(self, database: Database, advance: Callable[[float], Awaitable[None]]) -> None:
        self.database = database
        self.advance = advance
        self.dead: set[str] = set()  # owners whose process is gone

    def store(self) -> SqlStore:
        """One server's view."""
        return SqlStore(self.database, self._is_dead)

    def _is_dead(self, holder: LeaseOwner) -> bool:
        return holder.owner in self.dead


class MovedClock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.at = START

    def now(self) -> float:
        return self.at

    async def advance(self, seconds: float) -> None:
        self.at += seconds


@asynccontextmanager
async def _sqlite_file(folder: Path) -> AsyncIterator[World]:
    clock = MovedClock()
    database = open_database(f"sqlite:///{folder / 'store.db'}", now=clock.now)
    await migrate(database, random.Random(7))
    yield World(database, clock.advance)
    await database.aclose()


@asynccontextmanager
async def _inline(folder: Path) -> AsyncIterator[World]:
    clock = MovedClock()
    engine = inline_engine(clock.now)
    database = InlineDatabase(engine)
    await migrate(database, random.Random(7))
    yield World(database, clock.advance)
    engine.dispose()


WORLDS: Mapping[str, Callable[[Path], AbstractAsyncContextManager[World]]] = {
    "sqlite": _sqlite_file,
    "inline": _inline,
}


@pytest.fixture(params=WORLDS)
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    async with WORLDS[request.param](tmp_path) as made:
        yield made
