"""Decides how everything kept is laid out in the database; migrations lead to exactly this.

Laws: times are seconds by the database's clock as doubles, money is integer micro-units; what belongs to
people is deleted by marking (K6), so that names are unique only among what is not deleted; unknown is
NULL, never zero.
"""

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    text,
)

METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# SQLite numbers rows by itself only in a column of exactly this type.
ROW_ID = BigInteger().with_variant(Integer, "sqlite")
STRINGS = JSON(none_as_null=True)
_LIVE = text("deleted_at IS NULL")

CLUSTER = Table(
    "cluster",
    METADATA,
    Column("id", Integer, CheckConstraint("id = 1", name="one_row"), primary_key=True, autoincrement=False),
    Column("cluster_id", Text, nullable=False),
    Column("created_at", Double, nullable=False),
)

LEASE = Table(
    "lease",
    METADATA,
    Column("id", Integer, CheckConstraint("id = 1", name="one_row"), primary_key=True, autoincrement=False),
    Column("term", BigInteger, nullable=False),
    Column("owner", Text, nullable=False),  # "" when released
    Column("boot_id", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("start_time", BigInteger, nullable=False),
    Column("address", Text),
    Column("expires_at", Double, nullable=False),
)

# One row a topic, raised in the same transaction as any change to it: who follows a topic reads one number.
REVISION = Table(
    "revision",
    METADATA,
    Column("topic", Text, primary_key=True),
    Column("value", BigInteger, nullable=False),
)

NODES = Table(
    "nodes",
    METADATA,
    Column("node_id", Text, primary_key=True),
    Column("address", Text),
    Column("known_since", Double, nullable=False),
    Column("mark", Text, nullable=False),
    Column("mark_reason", Text, nullable=False),
    Column("mark_actor", Text, nullable=False),
    Column("mark_at", Double),
)


def _group(name: str, parent: str | None = None) -> Table:
    """A level of the account tree: named once within its parent, as long as it is not deleted."""
    unique = ["name"] if parent is None else [f"{parent}_id", "name"]
    parents: list[Column[str]] = []
    if parent is not None:
        parents.append(Column(f"{parent}_id", ForeignKey(f"{parent}s.id"), nullable=False))
    return Table(
        name,
        METADATA,
        Column("id", Text, primary_key=True),
        *parents,
        Column("name", Text, nullable=False),
        Column("created_at", Double, nullable=False),
        Column("disabled", Boolean, nullable=False),
        Column("deleted_at", Double),
        Index(f"uq_{name}_live", *unique, unique=True, sqlite_where=_LIVE, postgresql_where=_LIVE),
    )


ORGS = _group("orgs")
TEAMS = _group("teams", "org")
PROJECTS = _group("projects", "team")
USERS = _group("users", "org")

API_KEYS = Table(
    "api_keys",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("project_id", ForeignKey("projects.id"), nullable=False, index=True),
    Column("user_id", ForeignKey("users.id"), index=True),
    Column("name", Text, nullable=False),
    Column("models", STRINGS),  # names or globs; NULL allows all
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double),
    Column("disabled", Boolean, nullable=False),
    Column("deleted_at", Double),
    Column("last_used_at", Double),
)

# A key has two secrets while a rotation overlaps (K2); each is found by its public id.
KEY_SECRETS = Table(
    "key_secrets",
    METADATA,
    Column("public_id", Text, primary_key=True),
    Column("key_id", ForeignKey("api_keys.id"), nullable=False, index=True),
    Column("secret_sha256", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double),
)

# Ids of the account tree as they were then, without foreign keys: usage outlives everything.
USAGE = Table(
    "usage",
    METADATA,
    Column("request_id", Text, primary_key=True),
    Column("at", Double, nullable=False, index=True),
    Column("key_id", Text, nullable=False),
    Column("project_id", Text, nullable=False),
    Column("team_id", Text, nullable=False),
    Column("org_id", Text, nullable=False),
    Column("user_id", Text),
    Column("model_asked", Text, nullable=False),
    Column("model_answered", Text),
    Column("replica", Text),
    Column("endpoint", Text, nullable=False),
    Column("stream", Boolean, nullable=False),
    Column("prompt_tokens", BigInteger),
    Column("completion_tokens", BigInteger),
    Column("cached_tokens", BigInteger),
    Column("estimated", Boolean, nullable=False),
    Column("status", Integer, nullable=False),
    Column("error", Text),
    Column("latency_s", Double),
    Column("first_byte_s", Double),
    Column("attempts", Integer, nullable=False),
    Column("cost_micro", BigInteger),
)

EVENTS = Table(
    "events",
    METADATA,
    Column("id", ROW_ID, primary_key=True),
    Column("at", Double, nullable=False),
    Column("kind", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("model", Text),
    Column("replica", Text),
    Column("node", Text),
    Index("ix_events_model_id", "model", "id"),
    Index("ix_events_node_id", "node", "id"),
)

AUDIT = Table(
    "audit",
    METADATA,
    Column("id", ROW_ID, primary_key=True),
    Column("at", Double, nullable=False, index=True),
    Column("actor", Text, nullable=False),
    Column("source", Text, nullable=False),  # where the change came from: an address, or a shell
    Column("action", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("detail", Text, nullable=False),
)
