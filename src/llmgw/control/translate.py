"""Turns what the agent and watch streams carry into the fleet's values, and the fleet's into those.

Laws: the only place where the control plane touches the wire's shapes; nothing is decided here; a word
this version does not know becomes "unknown", never an error.
"""

from collections.abc import Mapping

import msgspec

from llmgw.core import happenings as h
from llmgw.core.catalog import Catalog, Model
from llmgw.core.fleet_state import Endpoint, FleetState, ModelNote, endpoints, model_notes
from llmgw.core.reason import Explained, Failure
from llmgw.core.replica import (
    Fetched,
    Replica,
    ReportedShard,
    Shard,
    ShardId,
    ShardPhase,
)
from llmgw.wire import agent_v1, watch_v1

SIMULATED_OWNER = "llmgw-sim"
OWNER = "llmgw"


def shard_id(key: agent_v1.ShardKey) -> ShardId:
    """The incarnation a message speaks of."""
    return ShardId(key.replica, key.rank, key.generation)


def shard_key(id: ShardId) -> agent_v1.ShardKey:
    """The same, for a message."""
    return agent_v1.ShardKey(id.replica, id.rank, id.generation)


def reported_shard(report: agent_v1.ShardReport) -> ReportedShard:
    """A shard as its agent describes it."""
    return ReportedShard(
        id=shard_id(report.key),
        phase=_phase(report.phase),
        model=report.model,
        profile=report.profile,
        fingerprint=report.fingerprint,
        engine=report.engine,
        shard_count=report.shard_count,
        fabric=report.fabric,
        address=report.address,
        port=report.port,
        claim=report.claim,
        engine_key=report.engine_key,
        pid=report.pid,
        start_time=report.start_time,
        running_s=report.running_s,
        failure=_failure(report),
    )


def _phase(word: str) -> ShardPhase:
    try:
        return ShardPhase(word)
    except ValueError:
        return ShardPhase.UNKNOWN


def _failure(report: agent_v1.ShardReport) -> Explained | None:
    if report.failure is None:
        return None
    try:
        code = Failure(report.failure)
    except ValueError:
        code = Failure.UNKNOWN
    return Explained(code, report.reason or report.failure, report.log_tail or ())


def agent_event(session: h.Session, message: agent_v1.Up) -> h.Event | None:
    """What an agent's message tells the fleet; `None` for one that is not for the fleet."""
    match message:
        case agent_v1.Register():
            return h.AgentRegistered(
                session=session,
                instance_id=message.instance_id,
                node=message.node,
                shards=tuple(reported_shard(shard) for shard in message.shards),
                complete=message.complete,
                cluster_id=message.cluster_id,
                highest_term=message.highest_term,
            )
        case agent_v1.Heartbeat():
            return h.AgentHeard(
                session=session,
                memory_total_bytes=message.memory_total_bytes,
                memory_available_bytes=message.memory_available_bytes,
                gpus=message.gpus,
                filesystems=message.filesystems,
                ports_in_use=message.ports_in_use,
            )
        case agent_v1.NodeChanged():
            return h.NodeRedescribed(session, message.node)
        case agent_v1.ShardStatus():
            return h.ShardReported(session, reported_shard(message.shard))
        case agent_v1.Progress():
            fetched = Fetched(message.bytes_done, message.bytes_total, message.what)
            return h.FetchProgressed(session, shard_id(message.key), fetched)
        case agent_v1.CommandRefused():
            return h.CommandRefused(session, message.reason, message.highest_term)
        case agent_v1.LogLines():
            return None


def start_message(term: int, replica: Replica, shard: Shard) -> agent_v1.StartShard:
    """The command that has an agent run a shard. The replica has a recipe and the shard a port."""
    assert replica.recipe is not None, "only what was placed here is started"
    assert shard.address is not None and shard.port is not None, "placed where a node reported its address"
    model, profile = replica.recipe.model, replica.recipe.profile
    spec = agent_v1.ShardSpec(
        key=shard_key(replica.shard_id(shard)),
        model=replica.model,
        profile=replica.profile,
        fingerprint=replica.fingerprint,
        engine=profile.engine,
        source=model.source,
        shard_count=replica.shard_count,
        address=shard.address,
        port=shard.port,
        claim=shard.claim,
        engine_key=replica.engine_key,
        install=profile.install,
        context_length=model.context_length,
        gpus_per_node=profile.gpus_per_node,
        tensor_parallel=profile.tensor_parallel,
        pipeline_parallel=profile.pipeline_parallel,
        launch_mode=profile.launch_mode,
        fabric=replica.fabric,
        args=profile.args,
        env=profile.env,
        startup_timeout_s=profile.startup_timeout_s,
        fetch_timeout_s=profile.fetch_timeout_s,
        stall_timeout_s=profile.stall_timeout_s,
    )
    return agent_v1.StartShard(term, spec)


# ---------------------------------------------------------------- what routers serve


def model_entries(state: FleetState, created: int) -> tuple[watch_v1.ModelEntry, ...]:
    """Every model as clients see it."""
    notes = model_notes(state.catalog, state.replicas, state.refusals, state.retries)
    return tuple(_model_entry(model, notes[model.name], created) for model in state.catalog.models.values())


def _model_entry(model: Model, note: ModelNote, created: int) -> watch_v1.ModelEntry:
    return watch_v1.ModelEntry(
        name=model.name,
        mode=model.mode.value,
        created=created,
        owned_by=SIMULATED_OWNER if model.simulated else OWNER,
        description=model.description,
        context_length=model.context_length,
        capabilities=model.capabilities,
        aliases=model.aliases,
        starting=note.starting,
        reason=note.reason,
        timeouts=model.timeouts,
        fallbacks=tuple(watch_v1.FallbackEntry(one.model, one.on) for one in model.fallbacks)
        or msgspec.UNSET,
    )


def _fallbacks(model: Model) -> tuple[watch_v1.FallbackEntry, ...] | msgspec.UnsetType:
    found = tuple(watch_v1.FallbackEntry(one.model, one.on) for one in model.fallbacks)
    return found or msgspec.UNSET


def alias_entries(catalog: Catalog) -> tuple[watch_v1.AliasEntry, ...]:
    """Every alias with what it draws from."""
    return tuple(watch_v1.AliasEntry(name, targets) for name, targets in catalog.aliases.items())


def endpoint_entries(state: FleetState) -> tuple[watch_v1.EndpointEntry, ...]:
    """Where routers may send."""
    return tuple(_endpoint_entry(one) for one in endpoints(state.replicas).values())


def _endpoint_entry(endpoint: Endpoint) -> watch_v1.EndpointEntry:
    return watch_v1.EndpointEntry(
        id=endpoint.replica,
        model=endpoint.model,
        host=endpoint.host,
        port=endpoint.port,
        engine=endpoint.engine,
        engine_key=endpoint.engine_key,
        node=endpoint.node,
    )


def endpoint_use(use: Mapping[str, watch_v1.EndpointUse]) -> dict[str, h.EndpointUse]:
    """A router's use, for the fleet."""
    return {id: h.EndpointUse(one.in_flight, one.idle_s, one.unreachable) for id, one in use.items()}
