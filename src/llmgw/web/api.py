"""The table of the admin API: every operation with what it asks of the control plane.

Law: an operation reads or asks the control plane, it decides nothing itself.
"""

from typing import Annotated, Literal

import msgspec

from llmgw.core.inventory import Mark, OperatorMark
from llmgw.web.answers import text_answer
from llmgw.web.logs import LogAnswer
from llmgw.web.operations import TEXT, Call, Operation
from llmgw.wire.admin_v1 import (
    EventRow,
    Explanation,
    ModelRow,
    NodeRow,
    NodeStateChange,
    ReplicaRow,
    RouterRow,
    Status,
)

EVENTS_MAX = 1000  # one screenful is 50; beyond this the store is asked for too much at once
LOG_LINES_MAX = 10_000  # what an agent keeps in memory per shard is far less


class EventsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which events, newest first."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=EVENTS_MAX)] = 100
    model: str | None = None
    node: str | None = None


class LogsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which lines of a replica's log. `follow` keeps the answer open for those to come."""

    rank: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 0
    lines: Annotated[int, msgspec.Meta(ge=0, le=LOG_LINES_MAX)] = 100
    follow: Literal["0", "1", "false", "true"] = "false"


async def _status(call: Call) -> Status:
    return call.admin.status()


async def _nodes(call: Call) -> tuple[NodeRow, ...]:
    return call.admin.nodes()


async def _replicas(call: Call) -> tuple[ReplicaRow, ...]:
    return call.admin.replicas()


async def _models(call: Call) -> tuple[ModelRow, ...]:
    return call.admin.models()


async def _routers(call: Call) -> tuple[RouterRow, ...]:
    return call.admin.routers()


async def _explain(call: Call) -> Explanation:
    return await call.admin.explain(call.path["name"])


async def _events(call: Call) -> tuple[EventRow, ...]:
    query = call.query_as(EventsQuery)
    return await call.admin.events(query.limit, query.model, query.node)


async def _set_node_state(call: Call) -> NodeRow:
    wanted = call.body_as(NodeStateChange)
    mark = OperatorMark(Mark(wanted.state), wanted.reason, call.actor, call.now)
    return await call.admin.set_mark(call.path["id"], mark)


async def _logs(call: Call) -> LogAnswer:
    query = call.query_as(LogsQuery)
    follow = query.follow in {"1", "true"}
    return LogAnswer(await call.admin.logs(call.path["id"], query.rank, query.lines, follow))


async def _alive(call: Call) -> object:
    return text_answer("ok\n")


V1 = "/api/v1"

OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", f"{V1}/status", "status", "The fleet in one screen", _status, Status),
    Operation("GET", f"{V1}/nodes", "nodes", "Every node", _nodes, tuple[NodeRow, ...]),
    Operation(
        "PUT",
        f"{V1}/nodes/{{id}}/state",
        "set_node_state",
        "Make a node ready, cordoned or draining",
        _set_node_state,
        NodeRow,
        body=NodeStateChange,
        refusals=(404, 503),
    ),
    Operation("GET", f"{V1}/replicas", "replicas", "Every replica", _replicas, tuple[ReplicaRow, ...]),
    Operation(
        "GET",
        f"{V1}/replicas/{{id}}/logs",
        "logs",
        "Log lines of a replica's engine",
        _logs,
        media=TEXT,
        query=LogsQuery,
        refusals=(404, 503),
    ),
    Operation("GET", f"{V1}/models", "models", "Every model", _models, tuple[ModelRow, ...]),
    Operation(
        "GET",
        f"{V1}/models/{{name}}/explain",
        "explain",
        "Why a model is where it is, or nowhere",
        _explain,
        Explanation,
        refusals=(404,),
    ),
    Operation("GET", f"{V1}/routers", "routers", "Connected routers", _routers, tuple[RouterRow, ...]),
    Operation(
        "GET",
        f"{V1}/events",
        "events",
        "Decisions with their reasons, newest first",
        _events,
        tuple[EventRow, ...],
        query=EventsQuery,
        refusals=(503,),
    ),
    Operation("GET", "/healthz", "alive", "Whether this process answers", _alive, media=TEXT, keyless=True),
)
