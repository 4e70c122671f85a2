"""The values the control plane's decisions look at: what is known of the fleet at one moment.

Laws: immutable; built by the fleet's owner, read by everybody (admin pages, placement, reconciliation);
what can be computed from these is computed when asked and kept nowhere.
"""

from collections import Counter
from collections.abc import Mapping

import msgspec

from llmgw.core import defaults
from llmgw.core.catalog import Catalog, Mode, Model
from llmgw.core.claims import PortRange
from llmgw.core.happenings import EndpointUse, Session
from llmgw.core.inventory import Node, Presence, PresenceLimits, presence
from llmgw.core.placement import FleetView, Held
from llmgw.core.replica import Course, Replica, ReplicaPhase, phase_of
from llmgw.core.retry import Retry


class FleetSettings(msgspec.Struct, frozen=True):
    """How the control plane decides; durations in seconds."""

    presence: PresenceLimits
    settling_s: float
    drain_grace_s: float
    withdrawal_ack_s: float
    ports: PortRange
    foreign_memory_bytes: int
    freeze_fraction: float = defaults.FREEZE_FRACTION
    freeze_min_nodes: int = defaults.FREEZE_MIN_NODES


class RouterState(msgspec.Struct, frozen=True):
    """A connected router: the revision it has in force, and the use it reported since then."""

    applied: int = -1
    use: Mapping[str, EndpointUse] = {}
    use_revision: int = -1  # what was in force when `use` was reported


class Endpoint(msgspec.Struct, frozen=True):
    """Where a ready replica is reached."""

    replica: str
    model: str
    host: str
    port: int
    engine: str
    engine_key: str
    node: str


class AgentLink(msgspec.Struct, frozen=True):
    """The live stream of a node."""

    session: Session
    instance_id: str


class Refusal(msgspec.Struct, frozen=True):
    """Why a wanted replica is not placed, and since when that is the reason."""

    line: str
    since: float


class FleetState(msgspec.Struct, frozen=True):
    """The fleet at one moment. Mappings are never changed in place."""

    settings: FleetSettings
    catalog: Catalog
    nodes: Mapping[str, Node]
    links: Mapping[str, AgentLink]  # by node id, those connected
    replicas: Mapping[str, Replica]
    retries: Mapping[str, Retry]  # by model
    failed: Mapping[str, Replica]  # by model: the last that failed, until the model is tried again
    refusals: Mapping[str, Refusal]  # by model
    routers: Mapping[str, RouterState]
    revision: int
    term: int | None  # None: this server does not lead
    cluster_id: str
    settling_left_s: float


def presences(state: FleetState, now: float) -> dict[str, Presence]:
    """How each node counts at `now`."""
    limits = state.settings.presence
    return {id: presence(node, now, limits) for id, node in state.nodes.items()}


def wanted(model: Model, existing: int) -> int:
    """How many replicas a model should have (C3); on-demand ones are kept, none is started."""
    match model.mode:
        case Mode.ALWAYS:
            return model.min_replicas
        case Mode.ON_DEMAND:
            return min(existing, model.max_replicas)
        case Mode.OFF:
            return 0


def failures(state: FleetState) -> list[Replica]:
    """The last failed replica of each model that has fewer than wanted; it holds nothing any more."""
    kept = Counter(one.model for one in state.replicas.values() if one.course is Course.KEEP)
    return [
        replica
        for name, replica in state.failed.items()
        if kept[name] < wanted(state.catalog.models[name], kept[name])
    ]


def held_by_node(replicas: Mapping[str, Replica]) -> dict[str, list[Held]]:
    """Every claim not yet released: a shard holds until its process is gone and its port free (I4)."""
    held: dict[str, list[Held]] = {}
    for replica in replicas.values():
        for shard in replica.shards:
            if not shard.ended:
                held.setdefault(shard.node, []).append(Held(replica.id, replica.model, shard.claim))
    return held


def placement_view(state: FleetState, now: float) -> FleetView:
    """What placement looks at."""
    return FleetView(
        nodes=state.nodes,
        presence=presences(state, now),
        held=held_by_node(state.replicas),
        ports=state.settings.ports,
        foreign_memory_bytes=state.settings.foreign_memory_bytes,
    )


def endpoints(replicas: Mapping[str, Replica]) -> dict[str, Endpoint]:
    """Where routers may send: replicas that are whole, ready and kept."""
    found = {}
    for replica in replicas.values():
        leader = replica.leader
        if replica.course is not Course.KEEP or leader is None or phase_of(replica) is not ReplicaPhase.READY:
            continue
        if leader.address is None or leader.port is None:
            continue
        found[replica.id] = Endpoint(
            replica=replica.id,
            model=replica.model,
            host=leader.address,
            port=leader.port,
            engine=replica.engine,
            engine_key=replica.engine_key,
            node=leader.node,
        )
    return found


def unheard(nodes: Mapping[str, Node], limits: PresenceLimits, now: float) -> frozenset[str]:
    """Nodes of the roster that did not report since this server leads, and are not lost yet.

    Nobody here can know what runs on them: routers keep what they had there (fleet as source of truth).
    """
    return frozenset(
        id
        for id, node in nodes.items()
        if node.last_heard is None and presence(node, now, limits) is not Presence.LOST
    )


class ModelNote(msgspec.Struct, frozen=True):
    """What routers say of a model that has no endpoint: whether one is on its way, and why there is none."""

    starting: bool = False
    reason: str | None = None


def model_notes(
    catalog: Catalog,
    replicas: Mapping[str, Replica],
    refusals: Mapping[str, Refusal],
    retries: Mapping[str, Retry],
) -> dict[str, ModelNote]:
    """A note a model; a model that is served needs no reason."""
    served, starting, notes = set(), set(), {}
    for one in replicas.values():
        phase = phase_of(one)
        if phase is ReplicaPhase.READY:
            served.add(one.model)
        elif phase is ReplicaPhase.STARTING:
            starting.add(one.model)
    for name in catalog.models:
        reason = None
        if name in refusals:
            reason = refusals[name].line
        elif name in retries:
            reason = f"the last replica failed: {retries[name].last.text}"
        notes[name] = ModelNote(name in starting, None if name in served else reason)
    return notes


def acknowledged(state: FleetState, revision: int) -> bool:
    """Whether every connected router has `revision` in force (R16a)."""
    return all(router.applied >= revision for router in state.routers.values())


def in_flight(state: FleetState, replica: Replica) -> int | None:
    """Requests on a replica over all routers; `None` while any of them has not said.

    For a replica being withdrawn only use reported after the withdrawal counts.
    """
    since = replica.withdrawn_by if replica.withdrawn_by is not None else -1
    if not state.routers:
        return None
    total = 0
    for router in state.routers.values():
        if router.use_revision < since:
            return None
        use = router.use.get(replica.id)
        total += use.in_flight if use is not None else 0
    return total


def idle_s(state: FleetState, replica: str) -> float | None:
    """Seconds since the last use any router knows of; `None` when none does."""
    ages = [
        use.idle_s
        for router in state.routers.values()
        if (use := router.use.get(replica)) is not None and use.idle_s is not None
    ]
    return min(ages) if ages else None
