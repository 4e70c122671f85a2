"""The first layout: cluster, lease, revisions, roster, accounts, keys, usage, events, audit."""

import sqlalchemy as sa
from alembic import context, op

revision = "0001"
down_revision = None

LIVE = sa.text("deleted_at IS NULL")


def upgrade() -> None:
    """Make every table, and name the cluster."""
    _cluster()
    _nodes()
    _accounts()
    _keys()
    _usage()
    _records()


def _cluster() -> None:
    one_row = "id = 1"
    cluster = op.create_table(
        "cluster",
        sa.Column("id", sa.Integer(), autoincrement=False),
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.CheckConstraint(one_row, name="ck_cluster_one_row"),
        sa.PrimaryKeyConstraint("id", name="pk_cluster"),
    )
    op.create_table(
        "lease",
        sa.Column("id", sa.Integer(), autoincrement=False),
        sa.Column("term", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("boot_id", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("start_time", sa.BigInteger(), nullable=False),
        sa.Column("address", sa.Text()),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.CheckConstraint(one_row, name="ck_lease_one_row"),
        sa.PrimaryKeyConstraint("id", name="pk_lease"),
    )
    op.create_table(
        "revision",
        sa.Column("topic", sa.Text()),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("topic", name="pk_revision"),
    )
    op.execute(
        cluster.insert().values(
            id=1, cluster_id=context.config.attributes["cluster_id"], created_at=_db_now()
        )
    )


def _db_now() -> sa.ColumnElement[float]:
    if op.get_bind().dialect.name == "postgresql":
        return sa.literal_column("CAST(extract(epoch from clock_timestamp()) AS double precision)")
    return sa.literal_column("db_now()")


def _nodes() -> None:
    op.create_table(
        "nodes",
        sa.Column("node_id", sa.Text()),
        sa.Column("address", sa.Text()),
        sa.Column("known_since", sa.Double(), nullable=False),
        sa.Column("mark", sa.Text(), nullable=False),
        sa.Column("mark_reason", sa.Text(), nullable=False),
        sa.Column("mark_actor", sa.Text(), nullable=False),
        sa.Column("mark_at", sa.Double()),
        sa.PrimaryKeyConstraint("node_id", name="pk_nodes"),
    )


def _accounts() -> None:
    _group("orgs")
    _group("teams", "org")
    _group("projects", "team")
    _group("users", "org")


def _group(name: str, parent: str | None = None) -> None:
    above: list[sa.Column[str] | sa.ForeignKeyConstraint] = []
    if parent is not None:
        column = f"{parent}_id"
        above = [
            sa.Column(column, sa.Text(), nullable=False),
            sa.ForeignKeyConstraint([column], [f"{parent}s.id"], name=f"fk_{name}_{column}"),
        ]
    op.create_table(
        name,
        sa.Column("id", sa.Text()),
        *above,
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        sa.Column("deleted_at", sa.Double()),
        sa.PrimaryKeyConstraint("id", name=f"pk_{name}"),
    )
    unique = ["name"] if parent is None else [f"{parent}_id", "name"]
    op.create_index(f"uq_{name}_live", name, unique, unique=True, sqlite_where=LIVE, postgresql_where=LIVE)


def _keys() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Text()),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text()),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("models", sa.JSON()),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double()),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        sa.Column("deleted_at", sa.Double()),
        sa.Column("last_used_at", sa.Double()),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_api_keys_project_id"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="fk_api_keys_user_id"),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
    )
    op.create_index("ix_api_keys_project_id", "api_keys", ["project_id"])
    op.create_index("ix_api_keys_user_id", "api_keys", ["user_id"])
    op.create_table(
        "key_secrets",
        sa.Column("public_id", sa.Text()),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("secret_sha256", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double()),
        sa.ForeignKeyConstraint(["key_id"], ["api_keys.id"], name="fk_key_secrets_key_id"),
        sa.PrimaryKeyConstraint("public_id", name="pk_key_secrets"),
    )
    op.create_index("ix_key_secrets_key_id", "key_secrets", ["key_id"])


def _usage() -> None:
    op.create_table(
        "usage",
        sa.Column("request_id", sa.Text()),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("team_id", sa.Text(), nullable=False),
        sa.Column("org_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text()),
        sa.Column("model_asked", sa.Text(), nullable=False),
        sa.Column("model_answered", sa.Text()),
        sa.Column("replica", sa.Text()),
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.Column("stream", sa.Boolean(), nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger()),
        sa.Column("completion_tokens", sa.BigInteger()),
        sa.Column("cached_tokens", sa.BigInteger()),
        sa.Column("estimated", sa.Boolean(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text()),
        sa.Column("latency_s", sa.Double()),
        sa.Column("first_byte_s", sa.Double()),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("cost_micro", sa.BigInteger()),
        sa.PrimaryKeyConstraint("request_id", name="pk_usage"),
    )
    op.create_index("ix_usage_at", "usage", ["at"])


def _records() -> None:
    row_id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "events",
        sa.Column("id", row_id),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("model", sa.Text()),
        sa.Column("replica", sa.Text()),
        sa.Column("node", sa.Text()),
        sa.PrimaryKeyConstraint("id", name="pk_events"),
    )
    op.create_index("ix_events_model_id", "events", ["model", "id"])
    op.create_index("ix_events_node_id", "events", ["node", "id"])
    op.create_table(
        "audit",
        sa.Column("id", row_id),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
    )
    op.create_index("ix_audit_at", "audit", ["at"])
