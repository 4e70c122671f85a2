"""Judges checks of databases, and copies of a file in use."""

import random
import sqlite3
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from llmgw.ports import StoreUnavailable
from llmgw.store import maintenance
from llmgw.store.address import PostgresServer, parse_store_url
from llmgw.store.database import EngineDatabase
from llmgw.store.opening import open_database
from llmgw.store.store import migrate
from tests.store.conftest import World
from tests.support.postgres import PostgresCluster


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
async def database(file: Path) -> AsyncIterator[EngineDatabase]:
    opened = open_database(f"sqlite:///{file}")
    await migrate(opened, random.Random(1))
    yield opened
    await opened.aclose()


async def test_a_migrated_database_has_no_problems(world: World) -> None:
    assert await world.database.run(maintenance.problems) == ()


async def test_another_revision_is_a_problem(world: World) -> None:
    older = sa.text("UPDATE alembic_version SET version_num = '0000'")
    await world.database.write(lambda c: c.execute(older))
    (problem,) = await world.database.run(maintenance.problems)
    assert "at revision 0000" in problem


async def test_a_row_that_belongs_to_nothing_is_a_problem(database: EngineDatabase, file: Path) -> None:
    orphan = "INSERT INTO teams (id, org_id, name, created_at, disabled) VALUES ('t', 'none', 'n', 0, 0)"
    _behind_its_back(file, orphan)
    (problem,) = await database.run(maintenance.problems)
    assert "teams" in problem


def _behind_its_back(file: Path, statement: str) -> None:
    connection = sqlite3.connect(file)
    connection.execute(statement)
    connection.commit()
    connection.close()


async def test_a_damaged_file_is_a_problem(database: EngineDatabase, file: Path) -> None:
    _behind_its_back(file, "CREATE INDEX damaged ON cluster (cluster_id)")
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute(
        "UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM sqlite_schema WHERE name = 'ix_usage_at') "
        "WHERE name = 'damaged'"
    )
    connection.commit()
    connection.close()
    found = await database.run(maintenance.problems)
    assert found != ()


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("DROP TABLE audit", "table audit is missing"),
        ("ALTER TABLE usage DROP COLUMN cost_micro", "column usage.cost_micro is missing"),
        ("DROP INDEX ix_usage_at", "index ix_usage_at is missing"),
        ("ALTER TABLE teams DROP CONSTRAINT fk_teams_org_id", "the foreign key of teams.org_id is missing"),
        (
            "SET session_replication_role = replica;"  # as a restore of half a copy leaves it
            "INSERT INTO teams (id, org_id, name, created_at, disabled) VALUES ('t', 'none', 'n', 0, false)",
            "1 rows of teams name a row of orgs that is not there",
        ),
        (
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'ix_usage_at'::regclass",
            "index ix_usage_at was not completed; run: REINDEX INDEX ix_usage_at",
        ),
    ],
)
async def test_what_a_server_misses_is_named(
    postgres: PostgresCluster, postgres_url: str, statement: str, said: str
) -> None:
    opened = open_database(postgres_url)
    await migrate(opened, random.Random(1))
    postgres.sql(statement, database=postgres_url.rpartition("/")[2])
    assert await opened.run(maintenance.problems) == (said,)
    await opened.aclose()


def test_a_server_is_copied_with_its_own_tool_and_no_password_in_sight() -> None:
    server = parse_store_url("postgresql://ann:secret@db:6432/llmgw?sslmode=require")
    assert isinstance(server, PostgresServer)
    assert maintenance.dump_command(server, Path("/b/x.dump")) == (
        "pg_dump",
        "--format=custom",
        "--file=/b/x.dump",
        "postgresql://ann@db:6432/llmgw?sslmode=require",
    )


async def test_a_copy_holds_what_was_committed_and_is_private(
    database: EngineDatabase, file: Path, tmp_path: Path
) -> None:
    target = tmp_path / "copy.db"
    maintenance.backup(file, target)
    assert stat.S_IMODE(_mode(target)) == 0o600
    copied = open_database(f"sqlite:///{target}")
    assert await copied.run(maintenance.problems) == ()
    await copied.aclose()


def _mode(path: Path) -> int:
    return path.stat().st_mode


async def test_a_copy_is_made_while_another_writes(
    database: EngineDatabase, file: Path, tmp_path: Path
) -> None:
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("UPDATE cluster SET cluster_id = 'uncommitted'")
    maintenance.backup(file, tmp_path / "copy.db")
    connection.close()
    copy = sqlite3.connect(tmp_path / "copy.db")
    assert copy.execute("SELECT cluster_id FROM cluster").fetchone() != ("uncommitted",)
    copy.close()


async def test_a_copy_never_replaces_a_file_and_leaves_nothing_half(
    database: EngineDatabase, file: Path, tmp_path: Path
) -> None:
    target = tmp_path / "copies" / "copy.db"
    _write(target, "kept")
    with pytest.raises(FileExistsError):
        maintenance.backup(file, target)
    assert _texts(target.parent) == {"copy.db": "kept"}


def _write(path: Path, text: str) -> None:
    path.parent.mkdir()
    path.write_text(text)


def _texts(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in folder.iterdir()}


def test_a_copy_of_what_is_no_database_leaves_nothing(file: Path, tmp_path: Path) -> None:
    file.write_text("not a database, and long enough to be read as one" * 20)
    with pytest.raises(StoreUnavailable, match="not a database"):
        maintenance.backup(file, tmp_path / "copy.db")
    assert [path.name for path in tmp_path.iterdir()] == ["store.db"]
