"""Brings a database to the layout of this version, once, whoever comes first.

Laws: runs in one transaction that holds the write lock, so that two processes cannot both migrate; only
forward; a database made by a newer version is left alone.
"""

import random
from pathlib import Path

from sqlalchemy import Connection, text

HEAD = "0001"  # the newest of versions/; a test compares, so that asking needs no Alembic
FOLDER = Path(__file__).parent


class NewerDatabase(Exception):
    """The database was made by a newer llmgw; the text says so and what to do."""


def revision_of(connection: Connection) -> str | None:
    """The revision the database is at; `None` when it has no tables of ours yet."""
    if not connection.dialect.has_table(connection, "alembic_version"):
        return None
    revision: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return revision


def is_older(revision: str) -> bool:
    """Whether this version knows the revision, and has a newer one."""
    return revision != HEAD and any((FOLDER / "versions").glob(f"{revision}_*.py"))


def upgrade(connection: Connection, draw: random.Random) -> str | None:
    """Bring the database to `HEAD`; `draw` names a new cluster. Returns the revision it was at before.

    Within a transaction that may write. Raises `NewerDatabase`.
    """
    before = revision_of(connection)
    if before == HEAD:
        return before
    if before is not None and not is_older(before):
        raise NewerDatabase(
            f"the database is at revision {before}, this llmgw knows up to {HEAD}: "
            "it was made by a newer version; start that one, or restore a backup"
        )
    _run(connection, f"{draw.getrandbits(128):032x}")
    return before


def _run(connection: Connection, cluster_id: str) -> None:
    from alembic import command  # half a second of imports, needed once per layout
    from alembic.config import Config

    config = Config()
    # Percent signs would be read as interpolation.
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    config.attributes["cluster_id"] = cluster_id
    command.upgrade(config, "head")
