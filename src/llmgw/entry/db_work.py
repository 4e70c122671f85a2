"""Runs `llmgw db`: brings the database to this version's layout, checks it, copies it while in use.

Laws: only `upgrade` changes the database; a check that finds something ends with exit code 1 and says what.
"""

import argparse
import random
from pathlib import Path

from llmgw.entry import store_cli
from llmgw.entry.process import CannotRun
from llmgw.entry.store_cli import DONE, FAILED
from llmgw.store import maintenance, migrations
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
            store_cli.store_path(url)
            return store_cli.with_database(url, _check, read_within_s=maintenance.CHECK_S)
        case _:
            return _backup(store_cli.store_path(url), Path(arguments.path))


async def _upgrade(database: Database) -> int:
    before = await database.run(migrations.revision_of)
    await migrate(database, random.SystemRandom())
    if before == migrations.HEAD:
        print(f"at revision {migrations.HEAD} already")
    else:
        print(f"upgraded from {before or 'an empty database'} to revision {migrations.HEAD}")
    return DONE


async def _check(database: Database) -> int:
    problems = await database.run(maintenance.problems)
    print("\n".join(problems) if problems else f"whole, at revision {migrations.HEAD}")
    return FAILED if problems else DONE


def _backup(source: Path, target: Path) -> int:
    try:
        maintenance.backup(source, target)
    except FileExistsError:
        raise CannotRun(f"{target} exists; a backup never replaces a file") from None
    except OSError as error:
        raise CannotRun(f"cannot write {target}: {error.strerror or error}") from None
    print(f"copied {source} to {target}")
    return DONE
