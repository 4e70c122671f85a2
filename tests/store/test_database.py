"""Judges how queries are run: transactions, bounds, faults told from bugs, both ways to run them."""

import asyncio
import sqlite3
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy import Connection, select
from sqlalchemy.dialects import postgresql

from llmgw.ports import StoreUnavailable
from llmgw.store.database import Bounds, Database, EngineDatabase, db_now
from llmgw.store.inline import InlineDatabase, Kind, inline_engine
from llmgw.store.opening import open_database
from llmgw.store.tables import REVISION
from tests.store.conftest import START, World


def put(connection: Connection) -> None:
    connection.execute(sa.insert(REVISION).values(topic="t", value=1))


def count(connection: Connection) -> int | None:
    return connection.scalar(select(sa.func.count()).select_from(REVISION))


# ---------------------------------------------------------------- on every database


async def test_a_write_that_raises_is_undone(world: World) -> None:
    def put_and_fail(connection: Connection) -> None:
        put(connection)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await world.database.write(put_and_fail)
    assert await world.database.run(count) == 0


async def test_a_write_is_seen_by_the_next_read(world: World) -> None:
    await world.database.write(put)
    assert await world.database.run(count) == 1


async def test_a_broken_constraint_is_not_taken_for_an_outage(world: World) -> None:
    await world.database.write(put)
    with pytest.raises(sa.exc.IntegrityError):
        await world.database.write(put)


async def test_foreign_keys_are_held(world: World) -> None:
    orphan = sa.text(
        "INSERT INTO teams (id, org_id, name, created_at, disabled) VALUES ('t', 'none', 'n', 0, false)"
    )
    with pytest.raises(sa.exc.IntegrityError):
        await world.database.write(lambda c: c.execute(orphan))


async def test_the_databases_clock_is_the_given_one(world: World) -> None:
    now = select(db_now())
    assert await world.database.run(lambda c: c.scalar(now)) == START
    await world.advance(2.5)
    assert await world.database.write(lambda c: c.scalar(now)) == START + 2.5


async def test_writers_at_once_take_turns(world: World) -> None:
    def raise_it(connection: Connection) -> None:
        value = connection.scalar(select(REVISION.c.value)) or 0
        connection.execute(sa.update(REVISION).values(value=value + 1))

    await world.database.write(put)
    await asyncio.gather(*(world.database.write(raise_it) for _ in range(20)))
    assert await world.database.run(lambda c: c.scalar(select(REVISION.c.value))) == 21


def test_on_postgresql_the_clock_moves_within_a_transaction() -> None:
    said = str(select(db_now()).compile(dialect=postgresql.dialect()))  # type: ignore[no-untyped-call]
    assert "clock_timestamp()" in said


# ---------------------------------------------------------------- the file


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[EngineDatabase]:
    opened = open_database(f"sqlite:///{tmp_path / 'store.db'}", bounds=Bounds(lock_s=0.2))
    await opened.write(REVISION.create)
    yield opened
    await opened.aclose()


@contextmanager
def other_writer(path: Path) -> Iterator[None]:
    """Another process's write that does not end."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.close()


async def test_a_file_locked_by_another_is_unavailable_within_its_bound(
    database: EngineDatabase, tmp_path: Path
) -> None:
    loop = asyncio.get_running_loop()
    with other_writer(tmp_path / "store.db"):
        began = loop.time()
        with pytest.raises(StoreUnavailable, match=r"store\.db: database is locked"):
            await database.write(put)
        assert 0.15 < loop.time() - began < 5.0
        assert await database.run(count) == 0, "readers do not wait for a writer"
    await database.write(put)
    assert await database.run(count) == 1


async def test_a_write_that_waits_too_long_is_unavailable_and_leaves_no_lock(tmp_path: Path) -> None:
    database = open_database(f"sqlite:///{tmp_path / 'store.db'}", bounds=Bounds(lock_s=20.0))
    await database.write(REVISION.create)
    with (
        other_writer(tmp_path / "store.db"),
        pytest.raises(StoreUnavailable, match=r"no answer within 0\.1 s"),
    ):
        await database.write(put, within_s=0.1)
    await database.write(put)
    assert await database.run(count) == 1
    await database.aclose()


async def test_a_read_sees_one_state_while_another_writes(database: EngineDatabase) -> None:
    reading, written = asyncio.Event(), asyncio.Event()

    async def write() -> None:
        await reading.wait()
        await database.write(put)
        written.set()

    def read_twice(connection: Connection) -> tuple[int | None, int | None]:
        before = count(connection)
        reading.set()
        sa.util.await_(written.wait())
        return before, count(connection)

    (before, after), _ = await asyncio.gather(database.run(read_twice), write())
    assert (before, after) == (0, 0)
    assert await database.run(count) == 1


def test_a_new_file_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    open_database(f"sqlite:///{tmp_path / 'store.db'}")
    assert stat.S_IMODE((tmp_path / "store.db").stat().st_mode) == 0o600


def _modes(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


async def test_the_files_beside_it_are_private_too(database: EngineDatabase, tmp_path: Path) -> None:
    await database.write(put)
    assert _modes(tmp_path) == {"store.db": 0o600, "store.db-wal": 0o600, "store.db-shm": 0o600}


def test_a_file_that_cannot_be_made_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"none/store\.db: No such file or directory"):
        open_database(f"sqlite:///{tmp_path / 'none' / 'store.db'}")


async def test_a_file_that_is_no_database_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "store.db").write_text("not a database, and long enough to be read as one" * 20)
    database = open_database(f"sqlite:///{tmp_path / 'store.db'}")
    with pytest.raises(StoreUnavailable, match="file is not a database"):
        await database.run(count)
    await database.aclose()


# ---------------------------------------------------------------- inline


class Faults:
    """Hooks that note what happens, and fail where told."""

    def __init__(self, *, before: bool = False, after: bool = False) -> None:
        self.seen: list[tuple[str, Kind]] = []
        self._before, self._after = before, after

    async def before(self, kind: Kind) -> None:
        self.seen.append(("before", kind))
        if self._before:
            raise StoreUnavailable("away")

    async def after(self, kind: Kind) -> None:
        self.seen.append(("after", kind))
        if self._after:
            raise StoreUnavailable("answer lost")


@pytest.fixture
def engine() -> Iterator[sa.Engine]:
    made = inline_engine(lambda: START)
    with made.begin() as connection:
        REVISION.create(connection)
    yield made
    made.dispose()


async def test_hooks_are_asked_around_each_unit_of_work(engine: sa.Engine) -> None:
    faults = Faults()
    database: Database = InlineDatabase(engine, faults)
    await database.run(count)
    await database.write(put)
    expected = [("before", Kind.READ), ("after", Kind.READ), ("before", Kind.WRITE), ("after", Kind.WRITE)]
    assert faults.seen == expected


async def test_a_fault_before_leaves_nothing_and_a_fault_after_leaves_it_committed(engine: sa.Engine) -> None:
    with pytest.raises(StoreUnavailable, match="away"):
        await InlineDatabase(engine, Faults(before=True)).write(put)
    assert await InlineDatabase(engine).run(count) == 0
    with pytest.raises(StoreUnavailable, match="answer lost"):
        await InlineDatabase(engine, Faults(after=True)).write(put)
    assert await InlineDatabase(engine).run(count) == 1


async def test_a_read_that_writes_is_refused_inline(engine: sa.Engine) -> None:
    with pytest.raises(StoreUnavailable, match="readonly"):
        await InlineDatabase(engine).run(put)
    await InlineDatabase(engine).write(put)
