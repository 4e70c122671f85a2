"""Decides on which store the commands `keys` and `db` work, and how they end.

Laws: a store is found by its server's configuration alone, so that command and server never use different
ones; only the `store` key of that file is judged here; what a person must mend is one line and exit code 1.
"""

import asyncio
import os
import random
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from llmgw.entry.folders import default_data_folder
from llmgw.entry.process import CannotRun
from llmgw.entry.yaml_strict import YamlError, read_yaml
from llmgw.ports import StoreUnavailable
from llmgw.store import migrations
from llmgw.store.address import BadStoreUrl, SqliteFile, StoreAddress, parse_store_url
from llmgw.store.database import Bounds, Database
from llmgw.store.opening import open_database
from llmgw.store.store import ensure_default_project, migrate

CONFIG_NAME = "server.yaml"
DONE, FAILED = 0, 1


def store_url(config: str | None, data: str | None) -> str:
    """The address of the store these options name. Raises `CannotRun`."""
    if config is not None and data is not None:  # argparse sees only those on one side of the verb
        raise CannotRun("give --config or --data, not both")
    path = Path(config) if config is not None else Path(data or default_data_folder(os.environ)) / CONFIG_NAME
    try:
        document = read_yaml(path.read_bytes())
    except OSError as error:
        hint = "" if config or data else "; name it with --config FILE or --data DIR"
        raise CannotRun(f"{path}: cannot be read: {error.strerror or error}{hint}") from None
    except YamlError as error:
        raise CannotRun(f"{path}:{error.line}: {error.text}") from None
    url = document.data.get("store") if isinstance(document.data, dict) else None
    if not isinstance(url, str):
        raise CannotRun(f"{path}: names no store; the server that uses it needs one, and this command too")
    return url


def existing(url: str) -> StoreAddress:
    """The store that must be there already, as far as that can be seen from here. Raises `CannotRun`."""
    address = parse_store_url(url)
    if isinstance(address, SqliteFile) and not address.path.exists():
        raise CannotRun(f"there is no database {address.path}; the server makes it when it first starts")
    return address


async def prepare(database: Database, draw: random.Random) -> None:
    """Make the layout in a new database; refuse one that another version must see to. Raises `CannotRun`."""
    revision = await database.run(migrations.revision_of)
    if revision is None:
        await migrate(database, draw)
        await ensure_default_project(database, draw)
    elif migrations.is_older(revision):
        raise CannotRun(
            f"the database is at revision {revision}, this llmgw needs {migrations.HEAD}; "
            "restart the server with this version, or run: llmgw db upgrade"
        )
    else:
        await migrate(database, draw)


def with_database(
    url: str, work: Callable[[Database], Awaitable[int]], *, read_within_s: float = 30.0
) -> int:
    """Run `work` on the store and close it again."""

    async def run() -> int:
        database = open_database(url, bounds=Bounds(read_s=read_within_s))
        try:
            return await work(database)
        finally:
            await database.aclose()

    return asyncio.run(run())


def guarded(work: Callable[[], int]) -> int:
    """The exit code of `work`; what stops it is one line on stderr."""
    try:
        return work()
    except (CannotRun, BadStoreUrl, StoreUnavailable, migrations.NewerDatabase) as error:
        print(f"llmgw: {error}", file=sys.stderr)
        return FAILED
