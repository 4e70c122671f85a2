"""Turns the fleet's state into the rows people read: nodes, replicas, models, explanations.

Laws: pure; unknown is `None`; a reason is a whole sentence part with both numbers where it was decided.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from llmgw.core.catalog import Model
from llmgw.core.claims import Claim, cards_on
from llmgw.core.fleet_state import (
    FleetState,
    failures,
    held_by_node,
    idle_s,
    in_flight,
    presences,
    wanted,
)
from llmgw.core.inventory import Mark, Node, Presence
from llmgw.core.placement import ProfileExplanation
from llmgw.core.replica import Course, Replica, ReplicaPhase, Shard, phase_of
from llmgw.core.units import format_bytes, format_duration
from llmgw.wire import admin_v1 as wire

# ---------------------------------------------------------------- replicas


def replica_rows(state: FleetState, now: float) -> tuple[wire.ReplicaRow, ...]:
    """Every replica, by model and id; with the last failed one of each model until it is tried again."""
    every = [*state.replicas.values(), *failures(state)]
    ordered = sorted(every, key=lambda one: (one.model, one.id))
    return tuple(_replica_row(state, replica, now) for replica in ordered)


def _replica_row(state: FleetState, replica: Replica, now: float) -> wire.ReplicaRow:
    leader = replica.leader
    url = None
    if leader is not None and leader.address is not None and leader.port is not None and not leader.ended:
        url = f"http://{leader.address}:{leader.port}"
    return wire.ReplicaRow(
        id=replica.id,
        model=replica.model,
        profile=replica.profile,
        state=phase_of(replica).value,
        reason=replica.ending.why if replica.ending is not None else None,
        url=url,
        stale=_stale(state, replica),
        shards=tuple(_shard_row(shard) for shard in replica.shards),
        age_s=now - replica.created_at + (replica.serving_s or 0.0),
        in_flight=in_flight(state, replica),
        idle_s=idle_s(state, replica.id),
        adopted=replica.adopted,
    )


def _stale(state: FleetState, replica: Replica) -> bool | None:
    """Whether the profile was edited since; unknown without a fingerprint or a profile (R14)."""
    model = state.catalog.models.get(replica.model)
    if model is None or not replica.fingerprint:
        return None
    profile = next((one for one in model.profiles if one.name == replica.profile), None)
    return None if profile is None else profile.fingerprint != replica.fingerprint


def _shard_row(shard: Shard) -> wire.ShardRow:
    progress = None
    if shard.fetched is not None:
        done = format_bytes(shard.fetched.done)
        total = shard.fetched.total
        progress = f"{done} so far" if total is None else f"{done} of {format_bytes(total)}"
    return wire.ShardRow(
        rank=shard.rank,
        node=shard.node,
        pid=None if shard.ended else shard.pid,
        phase=shard.phase.value,
        progress=progress,
        error=None if shard.failure is None else shard.failure.text,
        log_tail=() if shard.failure is None else shard.failure.log_tail,
    )


# ---------------------------------------------------------------- nodes


def node_rows(state: FleetState, now: float) -> tuple[wire.NodeRow, ...]:
    """Every node of the roster, by id."""
    how, held = presences(state, now), held_by_node(state.replicas)
    counts = Counter(node for replica in state.replicas.values() for node in _nodes_of(replica))
    found = []
    for id in sorted(state.nodes):
        claims = [one.claim for one in held.get(id, ())]
        claimed = sum(claim.memory_bytes or 0 for claim in claims)
        cards = _gpu_rows(state, id, claims)
        found.append(_node_row(state.nodes[id], how[id], now, (claimed, counts[id]), cards))
    return tuple(found)


def _nodes_of(replica: Replica) -> set[str]:
    return {shard.node for shard in replica.shards if not shard.ended}


def _node_row(
    node: Node,
    how: Presence,
    now: float,
    held: tuple[int, int],
    gpus: tuple[wire.GpuRow, ...] | None,
) -> wire.NodeRow:
    report = node.report
    heard = None if node.last_heard is None else now - node.last_heard
    free = total = None
    if report is not None and report.filesystems is not None:
        local = [one for one in report.filesystems if not one.shared]
        free = _sum(one.free_bytes for one in local)
        total = _sum(one.total_bytes for one in local)
    return wire.NodeRow(
        id=node.id,
        state=how.value,
        mark=node.mark.mark.value,
        address=None if report is None else report.address,
        agent_version=None if report is None else report.agent_version,
        memory_total_bytes=None if report is None else report.memory_total_bytes,
        memory_claimed_bytes=held[0],
        disk_free_bytes=free,
        disk_total_bytes=total,
        gpus=gpus,
        engines=None if report is None or report.engines is None else tuple(sorted(report.engines)),
        labels={} if report is None else report.labels,
        heard_s=heard,
        replicas=held[1],
        reasons=tuple(_node_reasons(node, how, heard, gpus)),
    )


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _node_reasons(
    node: Node, how: Presence, heard: float | None, gpus: Sequence[wire.GpuRow] | None
) -> list[str]:
    found = []
    if how is not Presence.READY:
        since = "not heard yet by this server" if heard is None else f"silent for {format_duration(heard)}"
        found.append(f"{how.value}: {since}; look at the agent on {node.id}")
    if node.mark.mark is not Mark.READY:
        why = f": {node.mark.reason}" if node.mark.reason else ""
        found.append(f"{node.mark.mark.value} by {node.mark.actor or 'an operator'}{why}")
    if node.report is not None and node.report.engines == {}:
        found.append("no engine is installed")
    found += [f"GPU {gpu.index}: {gpu.why}" for gpu in gpus or () if gpu.why]
    return found


def _gpu_rows(state: FleetState, id: str, claims: Sequence[Claim]) -> tuple[wire.GpuRow, ...] | None:
    report = state.nodes[id].report
    if report is None or report.gpus is None:
        return None
    reported = {gpu.index: gpu for gpu in report.gpus}
    return tuple(
        wire.GpuRow(
            card.index,
            card.gpu_class,
            card.use.value,
            reported[card.index].memory_total_bytes,
            reported[card.index].memory_used_bytes,
            card.why,
        )
        for card in cards_on(report, claims, state.settings.foreign_memory_bytes)
    )


def gpu_counts(nodes: Sequence[wire.NodeRow]) -> Mapping[str, Mapping[str, int]]:
    """Cards by class and use over ready nodes' reports."""
    found: dict[str, Counter[str]] = {}
    for node in nodes:
        for gpu in node.gpus or ():
            found.setdefault(gpu.gpu_class or "unknown", Counter())[gpu.use] += 1
    return found


# ---------------------------------------------------------------- models


def model_rows(state: FleetState, now: float) -> tuple[wire.ModelRow, ...]:
    """Every model of the catalog, by name."""
    by_model: dict[str, list[Replica]] = {}
    for replica in state.replicas.values():
        by_model.setdefault(replica.model, []).append(replica)
    return tuple(
        _model_row(state, state.catalog.models[name], by_model.get(name, []), now)
        for name in sorted(state.catalog.models)
    )


def _model_row(state: FleetState, model: Model, replicas: Sequence[Replica], now: float) -> wire.ModelRow:
    kept = [one for one in replicas if one.course is Course.KEEP]
    phases = Counter(phase_of(one) for one in kept)
    ready, starting = phases[ReplicaPhase.READY], phases[ReplicaPhase.STARTING]
    needed = wanted(model, len(kept))
    reason, retry_s = None, None
    retry, refusal = state.retries.get(model.name), state.refusals.get(model.name)
    if ready + starting < needed:
        if refusal is not None:
            reason = refusal.line
        elif retry is not None:
            reason = retry.last.text
        if retry is not None and retry.not_before > now:
            retry_s = retry.not_before - now
    return wire.ModelRow(
        name=model.name,
        mode=model.mode.value,
        state=_model_state(model, needed, ready, starting, retry_s is not None),
        origin="declared",
        wanted=needed,
        ready=ready,
        starting=starting,
        simulated=model.simulated,
        description=model.description,
        reason=reason,
        retry_s=retry_s,
        profiles=tuple(profile.name for profile in model.profiles),
        aliases=model.aliases,
    )


def _model_state(model: Model, needed: int, ready: int, starting: int, backing_off: bool) -> str:
    if ready:
        return "ready"
    if starting:
        return "loading"
    if needed == 0:
        return model.mode.value
    return "failed" if backing_off else "waiting"


# ---------------------------------------------------------------- explanations


def profile_explanation(explained: ProfileExplanation) -> wire.ProfileExplanation:
    """One profile over all nodes."""
    verdicts = []
    counts: Counter[str] = Counter()
    if explained.rejection is not None:
        counts[explained.rejection.code.value] += 1
        verdicts.append(
            wire.NodeVerdict("-", "rejected", explained.rejection.code.value, explained.rejection.line())
        )
    for one in explained.nodes:
        if one.rejection is None:
            verdicts.append(wire.NodeVerdict(one.node, "chosen" if one.chosen else "fits"))
        else:
            counts[one.rejection.code.value] += 1
            code, text = one.rejection.code.value, one.rejection.line()
            verdicts.append(wire.NodeVerdict(one.node, "rejected", code, text))
    fits = any(one.rejection is None for one in explained.nodes)
    return wire.ProfileExplanation(explained.profile, fits, tuple(verdicts), counts)
