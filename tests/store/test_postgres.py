"""Judges the store on a real PostgreSQL where it differs from a file: reach, bounds, protection, recovery.

What holds on every database is judged by the tests that take `world`.
"""

import asyncio
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy import Connection, select

from llmgw.ports import StoreUnavailable
from llmgw.store.database import Bounds, Database, EngineDatabase, database_time
from llmgw.store.opening import open_database
from llmgw.store.store import migrate
from llmgw.store.tables import REVISION
from tests.support.postgres import OWNER, PASSWORD, PostgresCluster

QUICK = Bounds(read_s=0.5, write_s=0.5, lock_s=0.3)


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[EngineDatabase]:
    """A database with one table of ours."""
    opened = open_database(postgres_url)
    await opened.write(REVISION.create)
    yield opened
    await opened.aclose()


def put(connection: Connection) -> None:
    connection.execute(sa.insert(REVISION).values(topic="t", value=1))


def count(connection: Connection) -> int | None:
    return connection.scalar(select(sa.func.count()).select_from(REVISION))


def value(connection: Connection) -> int:
    return int(connection.scalars(select(REVISION.c.value)).one())


async def refused(url: str, said: str) -> None:
    """Nothing works at this address, for the reason given, and in one line without the password."""
    database = open_database(url)
    with pytest.raises(StoreUnavailable, match=said) as error:
        await database.run(database_time)
    await database.aclose()
    assert "\n" not in str(error.value)
    assert PASSWORD not in str(error.value)


async def took(work: Awaitable[object]) -> tuple[float, str]:
    """How long something took that had to fail, and how it did."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(StoreUnavailable) as error:
        await work
    return loop.time() - began, str(error.value)


async def comes_true(what: str, look: Callable[[], bool]) -> None:
    """Wait for something that tells nobody when it changes."""
    try:
        async with asyncio.timeout(20.0):
            while not look():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"{what} did not come true") from None


# ---------------------------------------------------------------- reach


async def test_the_clock_is_the_servers_own_and_moves_within_a_transaction(database: Database) -> None:
    def twice(connection: Connection) -> tuple[float, float]:
        return database_time(connection), database_time(connection)

    first, second = await database.write(twice)
    assert abs(first - time.time()) < 5.0
    assert first < second


async def test_a_wrong_password_is_said_in_one_line(postgres: PostgresCluster, postgres_url: str) -> None:
    name = postgres_url.rpartition("/")[2]
    await refused(
        postgres.url(name, password="wrong"), 'cannot connect: password authentication failed for .*"'
    )


async def test_a_database_that_is_not_there_is_said_in_one_line(
    postgres: PostgresCluster, postgres_url: str
) -> None:
    await refused(postgres.url("nowhere"), 'cannot connect: database "nowhere" does not exist')


async def test_a_server_that_is_not_there_is_said_in_one_line() -> None:
    await refused(
        "postgresql://a@127.0.0.1:1/llmgw", r"127\.0\.0\.1:1/llmgw: cannot connect: Connection refused"
    )
    await refused(
        "postgresql://a@nowhere.invalid/llmgw", "cannot connect: .*not known|cannot connect: .*name"
    )


async def test_a_role_that_may_not_make_tables_is_said_in_one_line(
    postgres: PostgresCluster, postgres_url: str
) -> None:
    name = postgres_url.rpartition("/")[2]
    postgres.sql(f"ALTER DATABASE {name} OWNER TO postgres", f"GRANT CONNECT ON DATABASE {name} TO {OWNER}")
    database = open_database(postgres_url)
    with pytest.raises(StoreUnavailable, match="permission denied for schema public"):
        await migrate(database, random.Random(1))
    await database.aclose()


async def test_the_servers_unix_socket_is_an_address_too(
    postgres: PostgresCluster, postgres_url: str
) -> None:
    who, name = postgres_url.rpartition("@")[0], postgres_url.rpartition("/")[2]
    database = open_database(f"{who}@:{postgres.port}/{name}?host={postgres.folder}")
    address = await database.run(lambda c: c.scalar(sa.text("SELECT inet_client_addr()")))
    await database.aclose()
    assert address is None


async def test_without_a_password_the_users_password_file_is_used(
    postgres: PostgresCluster, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres.sql("DROP ROLE IF EXISTS ann", "CREATE ROLE ann LOGIN PASSWORD 'plain'")
    _write_private(tmp_path / "pgpass", "*:*:*:ann:plain\n")
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "pgpass"))
    database = open_database(f"postgresql://ann@{postgres_url.rpartition('@')[2]}")
    assert await database.run(database_time) > 0
    await database.aclose()


def _write_private(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o600)


async def test_one_server_process_keeps_at_most_five_connections(
    postgres: PostgresCluster, database: Database, postgres_url: str
) -> None:
    pause = sa.text("SELECT pg_sleep(0.05)")
    reads = [database.run(lambda c: c.execute(pause)) for _ in range(20)]
    writes = [database.write(lambda c: c.execute(pause)) for _ in range(5)]
    await asyncio.gather(*reads, *writes)
    name = postgres_url.rpartition("/")[2]
    said = postgres.sql(
        f"SELECT count(*), min(application_name) FROM pg_stat_activity WHERE datname = '{name}'"
    )
    assert said == "5|llmgw"


def test_a_file_does_not_load_the_driver_of_a_server(tmp_path: Path) -> None:
    code = (
        "import sys; from llmgw.store.opening import open_database; open_database(sys.argv[1]);"
        " print('asyncpg' in sys.modules, 'aiosqlite' in sys.modules)"
    )
    argv = [sys.executable, "-c", code, f"sqlite:///{tmp_path / 'store.db'}"]
    said = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=30).stdout
    assert said == "False True\n"


# ---------------------------------------------------------------- transactions


async def test_a_read_cannot_write(database: Database) -> None:
    with pytest.raises(StoreUnavailable, match="read-only transaction"):
        await database.run(put)


async def test_what_one_process_read_before_it_writes_another_does_not_change(
    database: Database, postgres_url: str
) -> None:
    """Read, then write what follows from it: from two processes at once none is lost, without retries."""

    def raise_it(connection: Connection) -> None:
        connection.execute(sa.update(REVISION).values(value=value(connection) + 1))

    await database.write(put)
    other = open_database(postgres_url)
    await asyncio.gather(*(one.write(raise_it) for one in (database, other) for _ in range(20)))
    assert await other.run(value) == 41
    await other.aclose()


async def test_a_value_no_column_takes_is_a_bug_not_an_outage(database: Database) -> None:
    for wrong in ({"topic": "a\0b", "value": 1}, {"topic": "t", "value": 2**80}):
        with pytest.raises(sa.exc.DBAPIError):
            await database.write(lambda c, v=wrong: c.execute(sa.insert(REVISION), v))  # type: ignore[misc]
    with pytest.raises(sa.exc.ProgrammingError):
        await database.run(lambda c: c.execute(sa.text("SELEKT")))


async def test_a_table_that_is_not_there_is_an_outage_as_on_sqlite(database: Database) -> None:
    with pytest.raises(StoreUnavailable, match='relation "nodes" does not exist'):
        await database.run(lambda c: c.execute(sa.text("SELECT * FROM nodes")))


# ---------------------------------------------------------------- bounds

HOLD = """
import asyncio, sys
from llmgw.store.database import Bounds
from llmgw.store.opening import open_database

def hold(connection):
    print("holding", flush=True)
    sys.stdin.read()

async def main():
    await open_database(sys.argv[1], bounds=Bounds(write_s=float(sys.argv[2]))).write(hold)

asyncio.run(main())
"""


def holder(url: str, bound_s: float) -> "subprocess.Popen[str]":
    """Another process that stands still in the middle of a write."""
    pipe = subprocess.PIPE
    argv = [sys.executable, "-c", HOLD, url, str(bound_s)]
    process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "holding\n"
    return process


async def test_a_lock_another_holds_is_waited_for_within_a_bound_and_readers_never_wait(
    postgres_url: str,
) -> None:
    database = open_database(postgres_url, bounds=Bounds(write_s=2.0, lock_s=0.3))
    await database.write(REVISION.create)
    with holder(postgres_url, 30.0) as process:
        seconds, said = await took(database.write(put))
        assert "canceling statement due to lock timeout" in said
        assert 0.2 < seconds < 2.0
        assert await database.run(count) == 0
        process.kill()
    await database.write(put)
    await database.aclose()


async def test_a_process_that_stands_still_in_a_write_is_cut_off(
    database: Database, postgres_url: str
) -> None:
    with holder(postgres_url, 1.0) as process:
        await database.write(put)  # waits for it, longer than it may stand still
        process.kill()
    assert await database.run(count) == 1


async def test_a_statement_nobody_waits_for_any_more_ends_on_the_server(
    postgres: PostgresCluster, postgres_url: str
) -> None:
    database = open_database(postgres_url, bounds=QUICK)
    assert (
        "no answer within 0.5 s"
        in (await took(database.write(lambda c: c.execute(sa.text("SELECT pg_sleep(60)")))))[1]
    )
    running = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%pg_sleep(60)'"
    await comes_true("the statement ended", lambda: postgres.sql(running) == "0")
    assert await database.write(database_time) > 0
    await database.aclose()


# ---------------------------------------------------------------- a server that stalls, dies, returns


async def test_a_server_that_stalls_is_unavailable_within_the_bound_and_recovers_by_itself(
    own_postgres: PostgresCluster,
) -> None:
    name = own_postgres.database()
    database = open_database(own_postgres.url(name), bounds=QUICK)
    await database.write(REVISION.create)
    with own_postgres.frozen():
        for attempt in (database.write(put), database.run(count), database.write(put), database.run(count)):
            seconds, said = await took(attempt)
            assert seconds < 0.8
            assert "no answer" in said
    await database.write(put)
    assert await database.run(count) == 1, "what was given up did not happen later"
    loop_tasks = len(asyncio.all_tasks())
    ours = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}'"
    await comes_true("given up connections are gone", lambda: int(own_postgres.sql(ours)) <= 2)
    assert loop_tasks == 1, "nothing is left over from the stall"
    await database.aclose()


async def test_a_caller_that_leaves_during_a_stall_is_not_held(own_postgres: PostgresCluster) -> None:
    database = open_database(own_postgres.url(own_postgres.database()))
    await database.run(database_time)
    loop = asyncio.get_running_loop()
    with own_postgres.frozen():
        began = loop.time()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await database.run(database_time)
        assert loop.time() - began < 0.5
        began = loop.time()
        await database.aclose()
        assert loop.time() - began < 4.0


async def test_a_server_that_was_killed_and_started_again_is_used_again(
    own_postgres: PostgresCluster,
) -> None:
    database = open_database(own_postgres.url(own_postgres.database()))
    await database.write(REVISION.create)
    own_postgres.kill()
    for attempt in (database.write(put), database.run(count)):
        assert "cannot connect: Connection refused" in (await took(attempt))[1]
    own_postgres.start()
    await database.write(put)
    assert await database.run(count) == 1
    await database.aclose()


async def test_a_connection_that_broke_while_idle_costs_no_failure(own_postgres: PostgresCluster) -> None:
    database = open_database(own_postgres.url(own_postgres.database()))
    await database.write(REVISION.create)
    await database.run(count)
    own_postgres.stop()
    own_postgres.start()
    assert await database.run(count) == 0
    await database.write(put)
    await database.aclose()


async def test_a_server_that_dies_in_the_middle_of_a_write_undoes_it(own_postgres: PostgresCluster) -> None:
    database = open_database(own_postgres.url(own_postgres.database()))
    await database.write(REVISION.create)

    def put_and_lose(connection: Connection) -> None:
        put(connection)
        own_postgres.kill()

    assert "connection was closed" in (await took(database.write(put_and_lose)))[1]
    own_postgres.start()
    assert await database.run(count) == 0
    await database.aclose()
