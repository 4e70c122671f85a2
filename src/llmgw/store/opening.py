"""Opens the database at a `store:` address.

Law: what only one kind of database needs is loaded only for that kind.
"""

import time
from collections.abc import Callable

from llmgw.store.address import SqliteFile, parse_store_url
from llmgw.store.database import Bounds, EngineDatabase


def open_database(
    url: str, *, now: Callable[[], float] = time.time, bounds: Bounds | None = None
) -> EngineDatabase:
    """The production database at an address; `now` is the clock of one that is a file, made when missing.

    Connects only when used. Raises `BadStoreUrl`, and `StoreUnavailable` when a file cannot be made.
    """
    address = parse_store_url(url)
    if isinstance(address, SqliteFile):
        from llmgw.store.sqlite import open_sqlite

        return open_sqlite(address, now, bounds or Bounds())
    from llmgw.store.postgres import open_postgres

    return open_postgres(address, bounds or Bounds())
