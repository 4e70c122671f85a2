"""Keeps the account tree: organisations, their teams and users, and the teams' projects (K1).

Laws: a path names at most one group that is not deleted; every change is counted in the revision that
routers follow and written to the audit log, in the same transaction; a refusal is an `AccountRefused`
that says what to do.
"""

import random
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Connection, FromClause, Table, select

from llmgw.core.accounts import Group, Level, make_id, parse_path
from llmgw.store.database import db_now
from llmgw.store.ledger import audit
from llmgw.store.statements import KEYS_TOPIC, bump
from llmgw.store.tables import ORGS, PROJECTS, TEAMS, USERS

DEFAULT_PROJECT = "default/default/default"

Actor = tuple[str, str]
"""Who makes a change, and from where."""

FIRST_START: Actor = ("llmgw", "first start")

_TABLES: Mapping[Level, Table] = {
    Level.ORG: ORGS,
    Level.TEAM: TEAMS,
    Level.PROJECT: PROJECTS,
    Level.USER: USERS,
}
_PARENTS: Mapping[Level, Level] = {Level.TEAM: Level.ORG, Level.PROJECT: Level.TEAM, Level.USER: Level.ORG}


class AccountRefused(Exception):
    """A change that cannot be made; the text is one line with what to do."""


def create_group(connection: Connection, level: Level, path: str, draw: random.Random, actor: Actor) -> Group:
    """Make an organisation, team, project or user. Raises `AccountRefused` and `BadName`."""
    names = parse_path(level, path)
    parent_id = None
    if level in _PARENTS:
        parent_id = require_group(connection, _PARENTS[level], "/".join(names[:-1])).id
    if find_group(connection, level, path) is not None:
        raise AccountRefused(f"{level.value} {path} exists already")
    parent = {} if parent_id is None else {f"{_PARENTS[level].value}_id": parent_id}
    table = _TABLES[level]
    group_id = make_id(level, draw)
    connection.execute(
        sa.insert(table).values(id=group_id, name=names[-1], created_at=db_now(), disabled=False, **parent)
    )
    bump(connection, KEYS_TOPIC)
    audit(connection, actor, f"{level.value} create", path)
    return require_group(connection, level, path)


def list_groups(connection: Connection, level: Level) -> tuple[Group, ...]:
    """Every group of a level that is not deleted, nor below one that is; by path."""
    return _groups(connection, level, sa.true())


def find_group(connection: Connection, level: Level, path: str) -> Group | None:
    """The group at a path. Raises `BadName` when the path cannot be one."""
    names = parse_path(level, path)
    tables = [_TABLES[above] for above in _line(level)]
    at = sa.and_(*(table.c.name == name for table, name in zip(tables, names, strict=True)))
    found = _groups(connection, level, at)
    return found[0] if found else None


def require_group(connection: Connection, level: Level, path: str) -> Group:
    """The group at a path. Raises `AccountRefused` when there is none, and `BadName`."""
    group = find_group(connection, level, path)
    if group is None:
        word = level.value
        raise AccountRefused(f"there is no {word} {path}; make it with: llmgw keys {word} create {path}")
    return group


def ensure_default_project(connection: Connection, draw: random.Random) -> Group:
    """The project used where none is named, made with all above it when it is missing."""
    names = parse_path(Level.PROJECT, DEFAULT_PROJECT)
    for depth, level in enumerate(_line(Level.PROJECT), start=1):
        path = "/".join(names[:depth])
        if find_group(connection, level, path) is None:
            create_group(connection, level, path, draw, FIRST_START)
    return require_group(connection, Level.PROJECT, DEFAULT_PROJECT)


def path_of(level: Level) -> ColumnElement[str]:
    """The path of a group, in a query that joins the tables up to its organisation."""
    names = [_TABLES[above].c.name for above in _line(level)]
    path: ColumnElement[str] = names[0]
    for name in names[1:]:
        path = path + "/" + name
    return path


def line_of(level: Level) -> FromClause:
    """A group's table joined with all above it."""
    tables = [_TABLES[above] for above in _line(level)]
    joined: FromClause = tables[0]
    for table in tables[1:]:
        joined = joined.join(table)
    return joined


def live(level: Level) -> ColumnElement[bool]:
    """Whether a group and all above it are not deleted."""
    return sa.and_(*(_TABLES[above].c.deleted_at.is_(None) for above in _line(level)))


def disabled(level: Level) -> ColumnElement[bool]:
    """Whether a group or one above it is disabled."""
    return sa.or_(*(_TABLES[above].c.disabled for above in _line(level)))


def _line(level: Level) -> tuple[Level, ...]:
    """The levels from the organisation down to this one."""
    parent = _PARENTS.get(level)
    return (level,) if parent is None else (*_line(parent), level)


def _groups(connection: Connection, level: Level, where: ColumnElement[bool]) -> tuple[Group, ...]:
    table = _TABLES[level]
    path = path_of(level).label("path")
    query = (
        select(table.c.id, path, table.c.created_at, disabled(level).label("off"))
        .select_from(line_of(level))
        .where(live(level), where)
    )
    # Sorted here: how a database orders text depends on where and how it was made.
    found = (_group(level, row) for row in connection.execute(query))
    return tuple(sorted(found, key=lambda group: group.path))


def _group(level: Level, row: Any) -> Group:
    return Group(row.id, level, row.path, row.created_at, bool(row.off))
