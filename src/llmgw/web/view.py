"""Decides what the status page shows and in which order.

Laws: pure; what needs a person comes first; what is unknown stays unknown; a large fleet is cut, and
the cut says how much is left out.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from llmgw.wire.admin_v1 import EventRow, ModelRow, NodeRow, ReplicaRow, Status

ROWS_SHOWN = 100  # a page of more takes the browser longer to draw than the next refresh

GOOD = frozenset({"ready"})
BAD = frozenset({"failed", "lost", "unreachable", "orphaned"})
BUSY = frozenset(
    {"loading", "starting", "fetching", "assigned", "waiting", "stopping", "draining", "cordoned"}
)


class Bar(msgspec.Struct, frozen=True):
    """A part of a whole, drawn as a bar of 100 units: what is used, and what is broken at its end."""

    used: float
    broken: float
    label: str


class NodeView(msgspec.Struct, frozen=True):
    """A node with its bars; `shown` is its state, or its mark when it has one and is heard."""

    row: NodeRow
    shown: str
    gpus: tuple[Bar, ...] | None
    memory: Bar | None
    disk: Bar | None


class EventView(msgspec.Struct, frozen=True):
    """An event with its age in seconds and its time in words."""

    row: EventRow
    age_s: float
    at: str


class StatusView(msgspec.Struct, frozen=True):
    """All the status page shows."""

    status: Status
    headline: str
    models: tuple[ModelRow, ...]
    replicas: tuple[ReplicaRow, ...]
    replicas_left: int
    nodes: tuple[NodeView, ...]
    nodes_left: int
    events: tuple[EventView, ...]


def tone(state: str) -> str:
    """The colour of a state: good, busy, bad or plain."""
    if state in GOOD:
        return "good"
    if state in BAD:
        return "bad"
    return "busy" if state in BUSY else "plain"


def status_view(
    status: Status,
    nodes: Sequence[NodeRow],
    replicas: Sequence[ReplicaRow],
    events: Sequence[EventRow],
    now: float,
) -> StatusView:
    """The page's content at `now`."""
    seen_nodes = sorted(map(_node, nodes), key=lambda n: (_urgency(n.shown, bool(n.row.reasons)), n.row.id))
    seen_replicas = sorted(replicas, key=lambda r: (_urgency(r.state, bool(r.reason)), r.model, r.id))
    return StatusView(
        status=status,
        headline=_headline(status),
        models=tuple(sorted(status.models, key=lambda m: (_urgency(m.state, bool(m.reason)), m.name))),
        replicas=tuple(seen_replicas[:ROWS_SHOWN]),
        replicas_left=max(0, len(seen_replicas) - ROWS_SHOWN),
        nodes=tuple(seen_nodes[:ROWS_SHOWN]),
        nodes_left=max(0, len(seen_nodes) - ROWS_SHOWN),
        events=tuple(EventView(e, max(0.0, now - e.at), _time(e.at)) for e in events),
    )


def _headline(status: Status) -> str:
    on = [model for model in status.models if model.state != "off"]
    ready = sum(1 for model in on if model.ready)
    nodes = sum(status.nodes.values())
    heard = status.nodes.get("ready", 0)
    return f"{ready} of {_count(len(on), 'model')} ready · {heard} of {_count(nodes, 'node')} heard"


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _urgency(state: str, explained: bool) -> int:
    order = {"bad": 0, "busy": 1, "plain": 3, "good": 4}[tone(state)]
    return min(order, 2) if explained else order


def _node(row: NodeRow) -> NodeView:
    return NodeView(
        row=row,
        shown=row.mark if row.state == "ready" and row.mark != "ready" else row.state,
        gpus=_gpu_bars(row),
        memory=_bar(row.memory_claimed_bytes, row.memory_total_bytes),
        disk=_bar(_minus(row.disk_total_bytes, row.disk_free_bytes), row.disk_total_bytes),
    )


def _minus(total: int | None, free: int | None) -> int | None:
    return None if total is None or free is None else total - free


def _bar(used: int | None, total: int | None) -> Bar | None:
    if used is None or not total:
        return None
    share = min(100.0, 100 * used / total)
    return Bar(share, 0.0, f"{share:.0f} % used")


def _gpu_bars(row: NodeRow) -> tuple[Bar, ...] | None:
    """One bar a class of cards: used from the left, unhealthy at the right."""
    if row.gpus is None:
        return None
    classes = sorted({gpu.gpu_class or "unknown" for gpu in row.gpus})
    bars = []
    for name in classes:
        cards = [gpu for gpu in row.gpus if (gpu.gpu_class or "unknown") == name]
        used = sum(card.use == "used" for card in cards)
        broken = sum(card.use == "unhealthy" for card in cards)
        label = f"{name}: {used} of {len(cards)} used" + (f", {broken} unhealthy" if broken else "")
        bars.append(Bar(100 * used / len(cards), 100 * broken / len(cards), label))
    return tuple(bars)


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
