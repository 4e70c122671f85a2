"""Keeps what happened: a usage row per request, the last events, who changed what (K6, K8, R17).

Laws: a request is stored once, however often its row is sent; what comes from clients and engines is cut
to what a column takes, so that no row can block the others in its batch; no transaction is long (the
lease is renewed on the same database); events are bounded.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, select

from llmgw.store.database import database_time, db_now
from llmgw.store.statements import insert
from llmgw.store.tables import API_KEYS, AUDIT, EVENTS, USAGE
from llmgw.wire.admin_v1 import EventRow
from llmgw.wire.watch_v1 import UsageRow

BATCH_ROWS = 500  # a transaction of this many takes tens of milliseconds
EVENTS_KEPT = 20_000  # weeks of a busy cluster, a few megabytes
LAST_USED_STEP_S = 60.0  # coarse: a busy key is not written every flush (K2)
NAME_CHARS = 256  # of names that clients choose
TEXT_CHARS = 4_000  # of sentences
MOST = 2**63 - 1  # what a column holds


# ---------------------------------------------------------------- usage


def batches(rows: Sequence[UsageRow]) -> Iterable[Sequence[UsageRow]]:
    """The rows in pieces for one transaction each, in the order every writer uses.

    Two servers that store overlapping batches at once then wait for each other instead of deadlocking.
    """
    ordered = sorted(rows, key=lambda row: row.request_id)
    return (ordered[start : start + BATCH_ROWS] for start in range(0, len(ordered), BATCH_ROWS))


def add_usage(connection: Connection, rows: Sequence[UsageRow]) -> None:
    """Store the rows that are not there yet, and that their keys were used."""
    if not rows:
        return
    statement = insert(connection, USAGE).on_conflict_do_nothing(index_elements=["request_id"])
    connection.execute(statement, [usage_values(row) for row in rows])
    now = database_time(connection)
    connection.execute(
        sa.update(API_KEYS)
        .where(API_KEYS.c.id.in_({row.key_id for row in rows}))
        .where(sa.or_(API_KEYS.c.last_used_at.is_(None), API_KEYS.c.last_used_at < now - LAST_USED_STEP_S))
        .values(last_used_at=now)
    )


def usage_values(row: UsageRow) -> dict[str, Any]:
    """A usage row as its columns."""
    return {
        "request_id": _cut(row.request_id),
        "at": row.at,
        "key_id": _cut(row.key_id),
        "project_id": _cut(row.project),
        "team_id": _cut(row.team),
        "org_id": _cut(row.org),
        "user_id": _cut_or_none(row.user),
        "model_asked": _cut(row.model_asked),
        "model_answered": _cut_or_none(row.model_answered),
        "replica": _cut_or_none(row.replica),
        "endpoint": _cut(row.endpoint),
        "stream": row.stream,
        "prompt_tokens": _count(row.prompt_tokens),
        "completion_tokens": _count(row.completion_tokens),
        "cached_tokens": _count(row.cached_tokens),
        "estimated": row.estimated,
        "status": row.status,
        "error": _cut_or_none(row.error),
        "latency_s": row.latency_s,
        "first_byte_s": row.first_byte_s,
        "attempts": row.attempts,
        "cost_micro": None,
    }


def _count(value: int | None) -> int | None:
    """A count an engine reported; nonsense is unknown, not zero."""
    return value if value is not None and 0 <= value <= MOST else None


def _cut(text: str, chars: int = NAME_CHARS) -> str:
    """Text a column takes: PostgreSQL refuses NUL, UTF-8 refuses lone surrogates."""
    return text[:chars].replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _cut_or_none(text: str | None) -> str | None:
    return None if text is None else _cut(text)


# ---------------------------------------------------------------- events


def add_events(connection: Connection, events: Sequence[EventRow]) -> None:
    """Store events in their order, and drop the oldest beyond what is kept."""
    if not events:
        return
    values = [
        {
            "at": event.at,
            "kind": _cut(event.kind),
            "text": _cut(event.text, TEXT_CHARS),
            "model": _cut_or_none(event.model),
            "replica": _cut_or_none(event.replica),
            "node": _cut_or_none(event.node),
        }
        for event in events
    ]
    connection.execute(sa.insert(EVENTS), values)
    newest = select(sa.func.max(EVENTS.c.id)).scalar_subquery()
    connection.execute(sa.delete(EVENTS).where(EVENTS.c.id <= newest - EVENTS_KEPT))


def events(connection: Connection, limit: int, model: str | None, node: str | None) -> tuple[EventRow, ...]:
    """The last `limit` events, newest first, of one model or node when named."""
    query = select(EVENTS).order_by(EVENTS.c.id.desc()).limit(limit)
    if model is not None:
        query = query.where(EVENTS.c.model == model)
    if node is not None:
        query = query.where(EVENTS.c.node == node)
    rows = connection.execute(query).all()
    return tuple(EventRow(r.at, r.kind, r.text, r.model, r.replica, r.node) for r in rows)


# ---------------------------------------------------------------- audit


def audit(connection: Connection, actor: tuple[str, str], action: str, target: str, detail: str = "") -> None:
    """Write who (`actor`: name, and where from) did what to what; in the transaction that does it."""
    connection.execute(
        sa.insert(AUDIT).values(
            at=db_now(),
            actor=_cut(actor[0]),
            source=_cut(actor[1]),
            action=_cut(action),
            target=_cut(target),
            detail=_cut(detail, TEXT_CHARS),
        )
    )
