"""Runs `llmgw db`: brings the database to this version's layout, checks it, copies it while in use.

Laws: only `upgrade` changes the database; a check that finds something ends with exit code 1 and says what.
"""

import argparse
import random
import shlex
from pathlib import Path

from llmgw.entry import store_cli
from llmgw.entry.process import CannotRun
from llmgw.entry.store_cli import DONE, FAILED
from llmgw.store import maintenance, migrations
from llmgw.store.address import SqliteFile, StoreAddress
from llmgw.store.database import Database
from llmgw.store.store import migrate


def run(arguments: argparse.Namespace) -> int:
    """Do what was asked; 0 done, 1 refused or failed."""
    return store_cli.guarded(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    url = store_cli.store_url(arguments.config, arguments.data)
    match arguments.verb:
        case "upgrade":
            return store_cli.with_database(url, _upgrade)
        case "check":
            whole = _WHOLE_FILE if isinstance(store_cli.existing(url), SqliteFile) else _WHOLE_ROWS
            return store_cli.with_database(
                url, lambda database: _check(database, whole), read_within_s=maintenance.CHECK_S
            )
        case _:
            return _backup(store_cli.existing(url), Path(arguments.path))


async def _upgrade(database: Database) -> int:
    before = await database.run(migrations.revision_of)
    await migrate(database, random.SystemRandom())
    if before == migrations.HEAD:
        print(f"at revision {migrations.HEAD} already")
    else:
        print(f"upgraded from {before or 'an empty database'} to revision {migrations.HEAD}")
    return DONE


_WHOLE_FILE = "whole"
_WHOLE_ROWS = "tables, indexes and rows are whole (its files: see PostgreSQL's pg_amcheck)"


async def _check(database: Database, whole: str) -> int:
    problems = await database.run(maintenance.problems)
    print("\n".join(problems) if problems else f"{whole}, at revision {migrations.HEAD}")
    return FAILED if problems else DONE


def _backup(source: StoreAddress, target: Path) -> int:
    if not isinstance(source, SqliteFile):
        raise CannotRun(
            f"{source.name} is copied by PostgreSQL's own tool, while servers go on; "
            f"run: {shlex.join(maintenance.dump_command(source, target))}"
        )
    try:
        maintenance.backup(source.path, target)
    except FileExistsError:
        raise CannotRun(f"{target} exists; a backup never replaces a file") from None
    except OSError as error:
        raise CannotRun(f"cannot write {target}: {error.strerror or error}") from None
    print(f"copied {source.path} to {target}")
    return DONE
