"""Decides what the fleet can be told and what it can ask to be done: its events and its effects.

Laws: events are named in the past tense and effects in the imperative; both are values, so that a story
can be printed and replayed; the shell that performs effects decides nothing.
"""

from collections.abc import Mapping

import msgspec

from llmgw.core.catalog import Catalog
from llmgw.core.inventory import Filesystem, Gpu, NodeReport, OperatorMark
from llmgw.core.replica import Fetched, Replica, ReportedShard, Shard, ShardId

Session = int
"""One connection of an agent; a later one of the same node has a higher number."""


# ---------------------------------------------------------------- events


class CatalogChanged(msgspec.Struct, frozen=True):
    """Another catalog is current."""

    catalog: Catalog


class LeaseTaken(msgspec.Struct, frozen=True):
    """This server leads, from `term` on. `roster` are the nodes seen before, with the operator's marks."""

    cluster_id: str
    term: int
    roster: Mapping[str, OperatorMark]


class TermRaised(msgspec.Struct, frozen=True):
    """The lease is still ours, under a higher term (H2)."""

    term: int


class LeaseLost(msgspec.Struct, frozen=True):
    """The store says that another server leads."""

    holder: str


class AgentRegistered(msgspec.Struct, frozen=True):
    """The first message of an agent's stream."""

    session: Session
    instance_id: str
    node: NodeReport
    shards: tuple[ReportedShard, ...]
    complete: bool
    cluster_id: str | None
    highest_term: int | None


class AgentHeard(msgspec.Struct, frozen=True):
    """A heartbeat. `None` did not change or is unknown."""

    session: Session
    memory_total_bytes: int | None = None
    memory_available_bytes: int | None = None
    gpus: tuple[Gpu, ...] | None = None
    filesystems: tuple[Filesystem, ...] | None = None
    ports_in_use: tuple[int, ...] | None = None


class NodeRedescribed(msgspec.Struct, frozen=True):
    """Discovery on the node found something else than was registered."""

    session: Session
    node: NodeReport


class ShardReported(msgspec.Struct, frozen=True):
    """An agent spoke of one shard."""

    session: Session
    shard: ReportedShard


class FetchProgressed(msgspec.Struct, frozen=True):
    """Bytes of a fetch arrived on a node."""

    session: Session
    shard: ShardId
    fetched: Fetched


class AgentLeft(msgspec.Struct, frozen=True):
    """An agent's stream ended."""

    session: Session
    reason: str


class CommandRefused(msgspec.Struct, frozen=True):
    """An agent would not obey."""

    session: Session
    reason: str
    highest_term: int | None


class RouterJoined(msgspec.Struct, frozen=True):
    """A router connected; it has been given the current table."""

    router: str


class RouterApplied(msgspec.Struct, frozen=True):
    """A router has everything up to `revision` in force."""

    router: str
    revision: int


class RouterLeft(msgspec.Struct, frozen=True):
    """A router's stream ended."""

    router: str


class EndpointUse(msgspec.Struct, frozen=True):
    """Use of one endpoint by one router; ages in seconds, `None` unknown."""

    in_flight: int
    idle_s: float | None = None
    unreachable: str | None = None


class UseReported(msgspec.Struct, frozen=True):
    """A router's use of its endpoints, by replica id."""

    router: str
    endpoints: Mapping[str, EndpointUse]


class KeysChanged(msgspec.Struct, frozen=True):
    """API keys differ; routers must be told, and so the revision moves."""


class MarkSet(msgspec.Struct, frozen=True):
    """The operator marked a node."""

    node: str
    mark: OperatorMark


class Ticked(msgspec.Struct, frozen=True):
    """Time passed."""


News = (
    CatalogChanged
    | LeaseTaken
    | TermRaised
    | LeaseLost
    | AgentRegistered
    | NodeRedescribed
    | ShardReported
    | AgentLeft
    | CommandRefused
    | KeysChanged
    | MarkSet
)
"""What may change what routers serve, or what is to be done at once."""

Routine = AgentHeard | FetchProgressed | UseReported | RouterJoined | RouterApplied | RouterLeft | Ticked

Event = News | Routine


# ---------------------------------------------------------------- effects


class WelcomeAgent(msgspec.Struct, frozen=True):
    """Accept the stream."""

    session: Session
    cluster_id: str
    term: int


class RefuseAgent(msgspec.Struct, frozen=True):
    """Refuse the stream, or close it, saying why."""

    session: Session
    reason: str


class StartShard(msgspec.Struct, frozen=True):
    """Have the agent run a shard of a replica that has a recipe."""

    session: Session
    term: int
    replica: Replica
    shard: Shard


class StopShard(msgspec.Struct, frozen=True):
    """Have the agent stop a shard."""

    session: Session
    term: int
    shard: ShardId
    reason: str


class ForgetShard(msgspec.Struct, frozen=True):
    """The end of a shard is noted; its agent may drop the record."""

    session: Session
    term: int
    shard: ShardId


class Publish(msgspec.Struct, frozen=True):
    """What routers serve changed; the table is now at `revision`."""

    revision: int


class RememberNode(msgspec.Struct, frozen=True):
    """A node is part of the roster from now on."""

    node: str
    address: str | None


class RaiseTerm(msgspec.Struct, frozen=True):
    """An agent has seen a higher term: make ours higher, if the lease is still ours."""

    above: int


class Record(msgspec.Struct, frozen=True):
    """A decision with its reason (R17)."""

    kind: str
    text: str
    model: str | None = None
    replica: str | None = None
    node: str | None = None


Effect = (
    WelcomeAgent
    | RefuseAgent
    | StartShard
    | StopShard
    | ForgetShard
    | Publish
    | RememberNode
    | RaiseTerm
    | Record
)
