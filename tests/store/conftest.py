"""Gives store tests every database they must hold on, with a clock the test moves.

Law: a test that takes `world` runs on each of `WORLDS`, the whole of it on each; a further database is one
more entry there.
"""

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from llmgw.ports import LeaseOwner
from llmgw.store.database import Database
from llmgw.store.inline import InlineDatabase, inline_engine
from llmgw.store.opening import open_database
from llmgw.store.store import SqlStore, migrate
from tests.conftest import ran_on
from tests.support.postgres import OWNER, PostgresCluster

START = 1_000_000.0


class World:
    """A migrated database, and time passing for it."""

    def __init__(
        self, database: Database, advance: Callable[[float], Awaitable[None]], *, one_machine: bool = True
    ) -> None:
        self.database = database
        self.advance = advance
        self.one_machine = one_machine  # whether every server that uses it runs on the same machine
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
async def _sqlite_file(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    folder: Path = request.getfixturevalue("tmp_path")
    clock = MovedClock()
    database = open_database(f"sqlite:///{folder / 'store.db'}", now=clock.now)
    await migrate(database, random.Random(7))
    yield World(database, clock.advance)
    await database.aclose()


@asynccontextmanager
async def _inline(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    clock = MovedClock()
    engine = inline_engine(clock.now)
    database = InlineDatabase(engine)
    await migrate(database, random.Random(7))
    yield World(database, clock.advance)
    engine.dispose()


# A function of ours instead of the system's, found first because of the order of the search: what the
# queries say stays as it is.
MOVED_CLOCK = (
    "CREATE SCHEMA test",
    f"CREATE TABLE test.clock AS SELECT {START}::double precision AS at",
    "CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz VOLATILE LANGUAGE sql"
    " AS 'SELECT to_timestamp(at) FROM test.clock'",
    f"GRANT ALL ON SCHEMA test TO {OWNER}",
    f"GRANT ALL ON test.clock TO {OWNER}",
)
OURS_FIRST = "SET search_path = public, pg_catalog"
_ADVANCE = sa.text("UPDATE test.clock SET at = at + :seconds")


class Template:
    """A migrated database with a clock that tests move, made once and copied for each test."""

    def __init__(self, postgres: PostgresCluster) -> None:
        self._postgres = postgres
        self._name: str | None = None

    async def copy(self) -> str:
        """The name of a copy."""
        if self._name is None:
            self._name = await self._make()
        return self._postgres.database(self._name, OURS_FIRST)

    async def _make(self) -> str:
        name = self._postgres.database(settings=OURS_FIRST)
        self._postgres.sql(*MOVED_CLOCK, database=name)
        database = open_database(self._postgres.url(name))
        await migrate(database, random.Random(7))
        await database.aclose()
        return name


@pytest.fixture(scope="session")
def postgres_template(postgres: PostgresCluster) -> Template:
    return Template(postgres)


@asynccontextmanager
async def _postgresql(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    postgres: PostgresCluster = request.getfixturevalue("postgres")
    template: Template = request.getfixturevalue("postgres_template")
    name = await template.copy()
    database = open_database(postgres.url(name))

    async def advance(seconds: float) -> None:
        await database.write(lambda c: c.execute(_ADVANCE, {"seconds": seconds}))

    yield World(database, advance, one_machine=False)
    await database.aclose()
    postgres.drop(name)


WORLDS: Mapping[str, Callable[[pytest.FixtureRequest], AbstractAsyncContextManager[World]]] = {
    "sqlite": _sqlite_file,
    "inline": _inline,
    "postgresql": _postgresql,
}


@pytest.fixture(params=WORLDS)
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    ran_on(request, request.param)
    async with WORLDS[request.param](request) as made:
        yield made
