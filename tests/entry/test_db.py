"""Judges `llmgw db` through its command line, on a real file."""

import os
import shlex
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from llmgw.entry import db
from llmgw.store import migrations
from tests.conftest import ran_on
from tests.support.postgres import PASSWORD, PostgresCluster

Db = Callable[..., tuple[int, str, str]]


@pytest.fixture
def data(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    ran_on(request, "sqlite")
    (tmp_path / "server.yaml").write_text(f"store: sqlite:///{tmp_path / 'llmgw.db'}\n")
    return tmp_path


@pytest.fixture
def llmgw_db(data: Path, capsys: pytest.CaptureFixture[str]) -> Db:
    return command(data, capsys)


def command(data: Path, capsys: pytest.CaptureFixture[str]) -> Db:
    def run(*words: str) -> tuple[int, str, str]:
        code = db.main(["--data", str(data), *words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_upgrade_makes_the_layout_and_says_so_then_has_nothing_to_do(llmgw_db: Db) -> None:
    head = migrations.HEAD
    assert llmgw_db("upgrade") == (0, f"upgraded from an empty database to revision {head}\n", "")
    assert llmgw_db("upgrade") == (0, f"at revision {head} already\n", "")


def test_upgrade_of_a_newer_database_is_refused(llmgw_db: Db, data: Path) -> None:
    llmgw_db("upgrade")
    connection = sqlite3.connect(data / "llmgw.db")
    connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.commit()
    connection.close()
    code, _, err = llmgw_db("upgrade")
    assert (code, "9999" in err) == (1, True)
    code, out, _ = llmgw_db("check")
    assert (code, "9999" in out) == (1, True)


def test_check_of_a_sound_database_is_zero(llmgw_db: Db) -> None:
    llmgw_db("upgrade")
    assert llmgw_db("check") == (0, f"whole, at revision {migrations.HEAD}\n", "")


@pytest.mark.parametrize("words", [["check"], ["backup", "copy.db"]])
def test_what_is_not_there_is_neither_checked_nor_made(llmgw_db: Db, data: Path, words: list[str]) -> None:
    code, _, err = llmgw_db(*words)
    assert (code, "there is no database" in err) == (1, True)
    assert not (data / "llmgw.db").exists()


def test_backup_through_the_real_process(llmgw_db: Db, data: Path) -> None:
    llmgw_db("upgrade")
    argv = [sys.executable, "-m", "llmgw", "db", "--config", str(data / "server.yaml")]
    argv += ["backup", str(data / "copy.db")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")
    assert stat.S_IMODE((data / "copy.db").stat().st_mode) == 0o600
    assert llmgw_db("backup", str(data / "copy.db"))[0] == 1


def test_backup_into_a_folder_that_is_not_there_is_one_line(llmgw_db: Db, data: Path) -> None:
    llmgw_db("upgrade")
    target = data / "none" / "copy.db"
    code, _, err = llmgw_db("backup", str(target))
    assert (code, err) == (1, f"llmgw: cannot write {target}: No such file or directory\n")


# ---------------------------------------------------------------- on a PostgreSQL server


@pytest.fixture
def served(tmp_path: Path, postgres_url: str) -> Path:
    (tmp_path / "server.yaml").write_text(f"store: {postgres_url}\n")
    return tmp_path


def test_upgrade_and_check_on_a_server(served: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, head = command(served, capsys), migrations.HEAD
    code, out, _ = run("check")
    assert (code, out) == (1, f"is at revision none, this llmgw needs {head}: llmgw db upgrade\n")
    assert run("upgrade") == (0, f"upgraded from an empty database to revision {head}\n", "")
    assert run("upgrade") == (0, f"at revision {head} already\n", "")
    code, out, err = run("check")
    assert (code, err) == (0, "")
    assert out.startswith("tables, indexes and rows are whole")
    assert out.endswith(f"at revision {head}\n")


def test_a_server_is_copied_by_the_command_that_backup_prints(
    served: Path, capsys: pytest.CaptureFixture[str], postgres: PostgresCluster
) -> None:
    run = command(served, capsys)
    assert run("upgrade")[0] == 0
    target = served / "my copy.dump"
    code, out, err = run("backup", str(target))
    assert (code, out, err.count("\n"), PASSWORD in err) == (1, "", 1, False)
    tool, *arguments = shlex.split(err.partition("run: ")[2])
    assert tool == "pg_dump"
    environment = {**os.environ, "PGPASSWORD": PASSWORD}
    subprocess.run([postgres.bin / tool, *arguments], env=environment, check=True, timeout=30)
    again = postgres.database()
    restore = (str(postgres.bin / "pg_restore"), "--no-owner", f"--dbname={postgres.url(again)}", str(target))
    subprocess.run(restore, check=True, timeout=30)
    (served / "server.yaml").write_text(f"store: {postgres.url(again)}\n")
    assert run("check")[0] == 0
    postgres.drop(again)


def test_a_verb_is_needed() -> None:
    with pytest.raises(SystemExit) as ended:
        db.main([])
    assert ended.value.code == 2
