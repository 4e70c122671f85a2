"""Keeps API keys: makes, lists, disables and deletes them, and says what routers must know of them (K2).

Laws: a secret is stored only as its hash and returned only by the call that made it; what is above a key
counts for it (a disabled team disables its keys); every change is counted in the revision that routers
follow and written to the audit log, in the same transaction.
"""

import random
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection, select

from llmgw.core.accounts import ApiKey, FreshKey, Level, check_name, make_id, make_key
from llmgw.store.database import db_now
from llmgw.store.groups import (
    AccountRefused,
    Actor,
    disabled,
    ensure_default_project,
    line_of,
    live,
    path_of,
    require_group,
)
from llmgw.store.ledger import audit
from llmgw.store.statements import KEYS_TOPIC, bump, revision
from llmgw.store.tables import API_KEYS, KEY_SECRETS, ORGS, PROJECTS, TEAMS, USERS
from llmgw.wire.watch_v1 import KeyEntry


class KeyDraft(msgspec.Struct, frozen=True):
    """A key to be made. Without a project it belongs to the default one."""

    name: str
    project: str | None = None  # path
    user: str | None = None  # path
    expires_in_s: float | None = None
    models: tuple[str, ...] | None = None  # None allows all


def create_key(
    connection: Connection, draft: KeyDraft, draw: random.Random, actor: Actor
) -> tuple[ApiKey, FreshKey]:
    """Make a key. Raises `AccountRefused` and `BadName`."""
    check_name(Level.KEY, draft.name)
    if draft.project is None:
        project = ensure_default_project(connection, draw)
    else:
        project = require_group(connection, Level.PROJECT, draft.project)
    user = None if draft.user is None else require_group(connection, Level.USER, draft.user)
    if user is not None and user.path.split("/")[0] != project.path.split("/")[0]:
        raise AccountRefused(f"user {user.path} is not in the organisation of project {project.path}")
    expires_at = None if draft.expires_in_s is None else db_now() + draft.expires_in_s
    key_id, fresh = make_id(Level.KEY, draw), make_key(draw)
    connection.execute(
        sa.insert(API_KEYS).values(
            id=key_id,
            project_id=project.id,
            user_id=None if user is None else user.id,
            name=draft.name,
            models=None if draft.models is None else list(draft.models),
            created_at=db_now(),
            expires_at=expires_at,
            disabled=False,
        )
    )
    connection.execute(
        sa.insert(KEY_SECRETS).values(
            public_id=fresh.public_id,
            key_id=key_id,
            secret_sha256=fresh.secret_sha256,
            created_at=db_now(),
        )
    )
    bump(connection, KEYS_TOPIC)
    audit(connection, actor, "key create", key_id, f"{draft.name} in {project.path}")
    return _keys(connection, API_KEYS.c.id == key_id)[0], fresh


def list_keys(connection: Connection, project: str | None = None) -> tuple[ApiKey, ...]:
    """Every key that is not deleted, oldest first, of one project when named."""
    if project is None:
        return _keys(connection, sa.true())
    found = require_group(connection, Level.PROJECT, project)
    return _keys(connection, API_KEYS.c.project_id == found.id)


def find_key(connection: Connection, reference: str) -> ApiKey:
    """The key with this id or public id, or the only one with this name. Raises `AccountRefused`."""
    of_secret = select(KEY_SECRETS.c.key_id).where(KEY_SECRETS.c.public_id == reference)
    found = _keys(connection, sa.or_(API_KEYS.c.id == reference, API_KEYS.c.id.in_(of_secret)))
    found = found or _keys(connection, API_KEYS.c.name == reference)
    if not found:
        raise AccountRefused(f"there is no key {reference!r}; llmgw keys key list shows them")
    if len(found) > 1:
        ids = ", ".join(key.id for key in found)
        raise AccountRefused(f"{len(found)} keys are named {reference!r}; name one by its id: {ids}")
    return found[0]


def disable_key(connection: Connection, reference: str, actor: Actor) -> ApiKey:
    """Refuse a key's requests from now on; idempotent. Raises `AccountRefused`."""
    return _change(connection, reference, actor, "disable", {"disabled": True})


def delete_key(connection: Connection, reference: str, actor: Actor) -> ApiKey:
    """Forget a key for routers, keep it for its usage. Returns it as it was. Raises `AccountRefused`."""
    return _change(connection, reference, actor, "delete", {"deleted_at": db_now()})


def _change(
    connection: Connection, reference: str, actor: Actor, action: str, values: dict[str, Any]
) -> ApiKey:
    key = find_key(connection, reference)
    connection.execute(sa.update(API_KEYS).where(API_KEYS.c.id == key.id).values(**values))
    bump(connection, KEYS_TOPIC)
    audit(connection, actor, f"key {action}", key.id, f"{key.name} in {key.project}")
    changed = _keys(connection, API_KEYS.c.id == key.id)
    return changed[0] if changed else key


# A key may be without a user; a user that is deleted or disabled takes its keys along.
_FROM = (
    line_of(Level.PROJECT)
    .join(API_KEYS, API_KEYS.c.project_id == PROJECTS.c.id)
    .outerjoin(USERS, USERS.c.id == API_KEYS.c.user_id)
)
_LIVE = sa.and_(API_KEYS.c.deleted_at.is_(None), live(Level.PROJECT), USERS.c.deleted_at.is_(None))
_DISABLED = sa.or_(
    API_KEYS.c.disabled, disabled(Level.PROJECT), sa.func.coalesce(USERS.c.disabled, sa.false())
)


def _keys(connection: Connection, where: sa.ColumnElement[bool]) -> tuple[ApiKey, ...]:
    user_path = sa.case((USERS.c.id.is_not(None), ORGS.c.name + "/" + USERS.c.name))
    query = (
        select(
            API_KEYS,
            path_of(Level.PROJECT).label("project_path"),
            user_path.label("user_path"),
            _DISABLED.label("off"),
            KEY_SECRETS.c.public_id,
        )
        .select_from(_FROM.join(KEY_SECRETS, KEY_SECRETS.c.key_id == API_KEYS.c.id))
        .where(_LIVE, where)
        .order_by(API_KEYS.c.created_at, API_KEYS.c.id, KEY_SECRETS.c.created_at, KEY_SECRETS.c.public_id)
    )
    keys: dict[str, ApiKey] = {}
    for row in connection.execute(query):
        before = keys[row.id].public_ids if row.id in keys else ()
        keys[row.id] = ApiKey(
            id=row.id,
            name=row.name,
            project=row.project_path,
            user=row.user_path,
            public_ids=(*before, row.public_id),
            created_at=row.created_at,
            expires_at=row.expires_at,
            disabled=bool(row.off),
            models=_patterns(row.models),
            last_used_at=row.last_used_at,
        )
    return tuple(keys.values())


def key_entries(connection: Connection) -> tuple[KeyEntry, ...]:
    """Every secret that is not deleted, as routers must know it; by public id."""
    query = (
        select(
            KEY_SECRETS.c.public_id,
            KEY_SECRETS.c.secret_sha256,
            KEY_SECRETS.c.expires_at.label("secret_expires_at"),
            API_KEYS.c.id,
            API_KEYS.c.expires_at,
            API_KEYS.c.models,
            API_KEYS.c.user_id,
            PROJECTS.c.id.label("project_id"),
            TEAMS.c.id.label("team_id"),
            ORGS.c.id.label("org_id"),
            _DISABLED.label("off"),
        )
        .select_from(_FROM.join(KEY_SECRETS, KEY_SECRETS.c.key_id == API_KEYS.c.id))
        .where(_LIVE)
        .order_by(KEY_SECRETS.c.public_id)
    )
    return tuple(_entry(row) for row in connection.execute(query))


def _entry(row: Any) -> KeyEntry:
    ends = [at for at in (row.expires_at, row.secret_expires_at) if at is not None]
    return KeyEntry(
        public_id=row.public_id,
        secret_sha256=row.secret_sha256,
        key_id=row.id,
        project=row.project_id,
        team=row.team_id,
        org=row.org_id,
        user=row.user_id,
        expires_at=min(ends, default=None),
        disabled=bool(row.off),
        models=_patterns(row.models),
    )


def key_revision(connection: Connection) -> int:
    """Grows with every change to keys or to anything above them."""
    return revision(connection, KEYS_TOPIC)


def _patterns(stored: list[str] | None) -> tuple[str, ...] | None:
    return None if stored is None else tuple(stored)
