"""Judges how a database comes to its layout: by every process that may come first, and only forward."""

import asyncio
import random
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from llmgw.aio.tasks import Tasks
from llmgw.store import migrations
from llmgw.store.database import Bounds
from llmgw.store.inline import InlineDatabase, inline_engine
from llmgw.store.opening import open_database
from llmgw.store.store import SqlStore, ensure_default_project, migrate
from llmgw.store.tables import METADATA
from tests.conftest import ran_on
from tests.store.conftest import World

MIGRATE = """
import asyncio, random, sys
from llmgw.store.opening import open_database
from llmgw.store.store import SqlStore, migrate

async def main():
    database = open_database(sys.argv[1])
    sys.stdin.read()  # start together
    await migrate(database, random.SystemRandom())
    print(await SqlStore(database, lambda holder: False).cluster_id())
    await database.aclose()

asyncio.run(main())
"""

MIGRATE_HALF = """
import asyncio, random, sys
from llmgw.store import migrations
from llmgw.store.opening import open_database
from llmgw.store.store import MIGRATION_S

def half(connection):
    migrations.upgrade(connection, random.Random(1))
    print("half", flush=True)
    sys.stdin.read()

async def main():
    database = open_database(sys.argv[1])
    await database.write(half, within_s=MIGRATION_S)
    await database.aclose()

asyncio.run(main())
"""


def _differences(connection: Connection) -> list[object]:
    context = MigrationContext.configure(connection, opts={"compare_type": True})
    return list(compare_metadata(context, METADATA))


async def test_the_migrations_lead_to_exactly_the_declared_tables(world: World) -> None:
    assert await world.database.run(_differences) == []


async def test_the_comparison_would_see_a_missing_column(world: World) -> None:
    await world.database.write(lambda c: c.execute(sa.text("ALTER TABLE usage DROP COLUMN cost_micro")))
    assert await world.database.run(_differences) != []


def test_the_declared_head_is_the_newest_migration() -> None:
    config = Config()
    config.set_main_option("script_location", str(migrations.FOLDER))
    config.set_main_option("path_separator", "os")
    assert ScriptDirectory.from_config(config).get_heads() == [migrations.HEAD]


async def test_migrating_again_changes_nothing(world: World) -> None:
    before = await world.store().cluster_id()
    await migrate(world.database, random.Random(8))
    await world.database.write(lambda c: migrations.upgrade(c, random.Random(9)))
    assert await world.store().cluster_id() == before


async def test_a_failed_migration_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = inline_engine(lambda: 0.0)
    database = InlineDatabase(engine)

    def upgrade_and_fail(connection: Connection) -> None:
        migrations.upgrade(connection, random.Random(1))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await database.write(upgrade_and_fail)
    assert await database.run(lambda c: sa.inspect(c).get_table_names()) == []
    engine.dispose()


async def test_a_database_of_a_newer_version_is_left_alone(world: World) -> None:
    await world.database.write(
        lambda c: c.execute(sa.text("UPDATE alembic_version SET version_num = '0999'"))
    )
    with pytest.raises(migrations.NewerDatabase, match=f"0999.*{migrations.HEAD}"):
        await migrate(world.database, random.Random(1))


async def test_the_cluster_is_named_by_the_chance_that_is_given(tmp_path: Path) -> None:
    names = []
    for seed in (1, 1, 2):
        engine = inline_engine(lambda: 0.0)
        await migrate(InlineDatabase(engine), random.Random(seed))
        names.append(await SqlStore(InlineDatabase(engine), lambda holder: False).cluster_id())
        engine.dispose()
    assert names[0] == names[1] != names[2]


@pytest.fixture(params=["sqlite", "postgresql"])
def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a store with nothing in it."""
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    ran_on(request, request.param)
    return f"sqlite:///{tmp_path / 'store.db'}"


async def test_processes_that_start_together_on_a_new_store_agree_on_one_cluster(new_store: str) -> None:
    pipe = asyncio.subprocess.PIPE
    argv = (sys.executable, "-c", MIGRATE, new_store)
    processes = [
        await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe, stderr=pipe) for _ in range(3)
    ]
    ended = await asyncio.gather(*(process.communicate(b"") for process in processes))
    assert [error for _, error in ended] == [b""] * 3
    assert len({said for said, _ in ended}) == 1


async def test_a_migration_killed_in_the_middle_is_run_again_from_the_start(new_store: str) -> None:
    pipe = asyncio.subprocess.PIPE
    argv = (sys.executable, "-c", MIGRATE_HALF, new_store)
    process = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"half\n"
    process.kill()
    await process.wait()
    database = open_database(new_store)
    await migrate(database, random.Random(1))
    assert await database.run(_differences) == []
    assert len(await SqlStore(database, lambda holder: False).cluster_id()) == 32
    await database.aclose()


async def test_a_migration_another_is_running_is_waited_for(new_store: str) -> None:
    """Longer than for any other lock: a new layout may have to touch every row."""
    pipe = asyncio.subprocess.PIPE
    argv = (sys.executable, "-c", MIGRATE_HALF, new_store)
    first = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe)
    assert first.stdout is not None
    assert await first.stdout.readline() == b"half\n"
    database = open_database(new_store, bounds=Bounds(lock_s=0.2))
    async with Tasks() as tasks:
        second = tasks.start(migrate(database, random.Random(1)), name="second")
        await asyncio.wait([second], timeout=1.0)
        assert not second.done()
        await first.communicate(b"")
        await second
    assert await database.run(_differences) == []
    await database.aclose()


async def test_the_default_project_is_made_once(world: World) -> None:
    await ensure_default_project(world.database, random.Random(1))
    before = await world.store().key_revision()
    await ensure_default_project(world.database, random.Random(2))
    assert await world.store().key_revision() == before


async def test_a_percent_sign_in_the_path_is_no_trouble(tmp_path: Path) -> None:
    folder = tmp_path / "100% data?#"
    folder.mkdir()
    database = open_database(f"sqlite:///{str(folder).replace('%', '%25').replace('?', '%3F')}/store.db")
    await migrate(database, random.Random(1))
    await database.aclose()
    assert (folder / "store.db").exists()
