"""Decides what must change so that the fleet moves towards the catalog: one pass over one moment.

Laws: pure, and the order of what it is given does not matter; a serving replica is stopped only because
its model or profile is gone or there are more than wanted, drained first (R6); what failed is stopped
whole before its claims are free (R3); nothing is placed while settling (R10); an unsatisfiable want
never touches what runs.
"""

import random
from collections.abc import Sequence, Set

import msgspec

from llmgw.core.catalog import Model, Profile
from llmgw.core.fleet_state import (
    FleetState,
    acknowledged,
    idle_s,
    in_flight,
    placement_view,
    wanted,
)
from llmgw.core.inventory import Presence, presence
from llmgw.core.placement import Placement, PlacementPass, PlacementRequest, Unplaceable
from llmgw.core.reason import Explained, Failure
from llmgw.core.replica import Course, Replica, ReplicaPhase, breakage, phase_of, startup_overdue
from llmgw.core.units import format_duration

DYING_WITHIN_S = 60.0  # beyond the grace, KILL and the port: what lives on hangs in the kernel

# ---------------------------------------------------------------- decisions


class Lose(msgspec.Struct, frozen=True):
    """Nobody hears the nodes of this replica any more; it is kept, since it may come back."""

    replica: str
    why: str


class Fail(msgspec.Struct, frozen=True):
    """This replica broke: stop what is left of it, retry its model after a backoff."""

    replica: str
    failure: Explained


class Withdraw(msgspec.Struct, frozen=True):
    """Take this replica from the routers; what is in flight finishes."""

    replica: str
    why: str


class FinishDrain(msgspec.Struct, frozen=True):
    """Nothing is in flight any more, or the grace is over: stop it. `cut` requests are cut, if known."""

    replica: str
    why: str


class Remove(msgspec.Struct, frozen=True):
    """No process of this replica is left; its claims are released."""

    replica: str


class Place(msgspec.Struct, frozen=True):
    """Start a replica here."""

    model: Model
    profile: Profile
    placement: Placement


class Decline(msgspec.Struct, frozen=True):
    """A wanted replica fits nowhere, with the reason; `None`: nothing keeps the model any more."""

    model: str
    refusal: Unplaceable | None


Decision = Lose | Fail | Withdraw | FinishDrain | Remove | Place | Decline


class Plan(msgspec.Struct, frozen=True):
    """Everything to do now, in the order to do it; `frozen` says why lost nodes are not given up."""

    decisions: tuple[Decision, ...] = ()
    frozen: str | None = None


def reconcile(state: FleetState, now: float, draw: random.Random) -> Plan:
    """What brings the fleet nearer to the catalog. Empty for a server that does not lead."""
    if state.term is None:
        return Plan()
    frozen = expiry_frozen(state, now)
    lost = frozenset() if frozen else lost_nodes(state, now)
    replicas = sorted(state.replicas.values(), key=lambda one: one.id)
    decisions: list[Decision] = []
    kept: list[Replica] = []
    for replica in replicas:
        decision = _judge(state, replica, lost, now)
        if decision is not None:
            decisions.append(decision)
        elif replica.course is Course.KEEP:
            kept.append(replica)
    decisions += _surplus(state, kept, now)
    # A model that fails in this pass gets its backoff by that decision, which `state` does not hold yet.
    failing = {state.replicas[one.replica].model for one in decisions if isinstance(one, Fail)}
    failing |= {replica.model for replica in replicas if _still_dying(replica, lost, now)}
    decisions += _missing(state, kept, failing, now, draw)
    return Plan(tuple(decisions), frozen)


# ---------------------------------------------------------------- silence


def lost_nodes(state: FleetState, now: float) -> frozenset[str]:
    """Nodes of the roster nobody hears any more (I5)."""
    limits = state.settings.presence
    return frozenset(id for id, node in state.nodes.items() if presence(node, now, limits) is Presence.LOST)


def expiry_frozen(state: FleetState, now: float) -> str | None:
    """Why no node is given up: so many fell silent at once that the fault is probably ours.

    Silent nodes count while replicas are still kept on them; nodes given up one by one do not add up.
    """
    lost = lost_nodes(state, now)
    kept = {
        shard.node
        for replica in state.replicas.values()
        if replica.course is Course.KEEP
        for shard in replica.shards
    }
    silent, heard = len(lost & kept), len(state.nodes.keys() - lost)
    settings = state.settings
    if silent < settings.freeze_min_nodes or silent <= settings.freeze_fraction * (silent + heard):
        return None
    return (
        f"{silent} of {silent + heard} nodes fell silent, more than freeze_fraction "
        f"{settings.freeze_fraction:g}: this server's own network is suspected, nothing on them is given up"
    )


# ---------------------------------------------------------------- one replica


def _judge(state: FleetState, replica: Replica, lost: frozenset[str], now: float) -> Decision | None:
    match replica.course:
        case Course.KEEP:
            return _judge_kept(state, replica, lost, now)
        case Course.LOST:
            return _judge_lost(state, replica)
        case Course.DRAIN:
            why = _drained(state, replica, now)
            return None if why is None else FinishDrain(replica.id, why)
        case Course.STOP | Course.FAIL:
            return Remove(replica.id) if replica.over else None


def _judge_kept(state: FleetState, replica: Replica, lost: frozenset[str], now: float) -> Decision | None:
    ready = phase_of(replica) is ReplicaPhase.READY
    failure = None if ready else breakage(replica)
    if failure is not None:
        return Fail(replica.id, failure)
    silent = {shard.node for shard in replica.shards} & lost if lost else None
    if silent:
        return _give_up(replica, silent)
    if not ready and startup_overdue(replica, now):
        limit = format_duration(replica.startup_timeout_s)
        waited = ", ".join(f"rank {shard.rank} {shard.phase.value}" for shard in replica.shards)
        text = f"not ready within startup_timeout {limit} ({waited}); raise it if the model loads slower"
        return Fail(replica.id, Explained(Failure.START_TIMEOUT, text))
    gone = _why_unwanted(state, replica)
    return None if gone is None else Withdraw(replica.id, gone)


def _give_up(replica: Replica, silent: Set[str]) -> Decision:
    text = f"nothing heard from {', '.join(sorted(silent))}"
    if len(silent) == len({shard.node for shard in replica.shards}):
        return Lose(replica.id, text)
    return Fail(replica.id, Explained(Failure.LOST_WITH_NODE, text))


def _judge_lost(state: FleetState, replica: Replica) -> Decision | None:
    if all(shard.ended for shard in replica.shards):
        return Remove(replica.id)  # its node is back without it
    gone = _why_unwanted(state, replica)
    return None if gone is None else Withdraw(replica.id, gone)


def _why_unwanted(state: FleetState, replica: Replica) -> str | None:
    model = state.catalog.models.get(replica.model)
    if model is None:
        return f"{replica.model or 'its model'} is not in the catalog"
    for profile in model.profiles:
        if profile.name == replica.profile:
            return None
    return f"{replica.model} has no profile {replica.profile} any more"


def _still_dying(replica: Replica, lost: Set[str], now: float) -> bool:
    """Whether a failed replica still has processes: loading the next beside it could lack memory again."""
    if replica.course is not Course.FAIL or replica.ending is None:
        return False
    left = any(not shard.ended and shard.node not in lost for shard in replica.shards)
    return left and now - replica.ending.since < DYING_WITHIN_S


def _drained(state: FleetState, replica: Replica, now: float) -> str | None:
    assert replica.ending is not None, "a drain has a reason"
    waited = now - replica.ending.since
    if replica.withdrawn_by is None:
        return "it was not serving"
    told = acknowledged(state, replica.withdrawn_by) or waited >= state.settings.withdrawal_ack_s
    flying = in_flight(state, replica)
    if told and flying == 0:
        return "nothing in flight"
    if not state.routers and waited >= state.settings.presence.unreachable_after_s:
        return "no router is connected"
    if waited >= state.settings.drain_grace_s:
        cut = "an unknown number of" if flying is None else str(flying)
        return f"drain_grace {format_duration(state.settings.drain_grace_s)} is over, {cut} requests cut"
    return None


# ---------------------------------------------------------------- counts


def _surplus(state: FleetState, kept: Sequence[Replica], now: float) -> list[Decision]:
    """Over count: never ready first, then stale, then the longest unused, newest first on a tie (R19)."""
    decisions: list[Decision] = []
    for name, replicas in _by_model(kept).items():
        model = state.catalog.models[name]
        extra = len(replicas) - wanted(model, len(replicas))
        if extra <= 0:
            continue
        fingerprints = {profile.name: profile.fingerprint for profile in model.profiles}
        ranked = sorted(replicas, key=lambda one: _keep_worth(state, one, fingerprints))
        text = f"{len(replicas)} running, {wanted(model, len(replicas))} wanted"
        decisions += [Withdraw(replica.id, text) for replica in ranked[:extra]]
    return decisions


def _keep_worth(
    state: FleetState, replica: Replica, fingerprints: dict[str, str]
) -> tuple[bool, bool, bool, float, float, str]:
    ready = phase_of(replica) is ReplicaPhase.READY
    stale = bool(replica.fingerprint) and fingerprints.get(replica.profile) != replica.fingerprint
    idle = idle_s(state, replica.id) or 0.0
    # Ascending order is the order of stopping; an unknown idle time is no reason to stop.
    return (ready, replica.ready_at is not None, not stale, -idle, -replica.created_at, replica.id)


def _missing(
    state: FleetState, kept: Sequence[Replica], failing: Set[str], now: float, draw: random.Random
) -> list[Decision]:
    if state.settling_left_s > 0:
        return []
    looked: PlacementPass | None = None
    counts = {name: len(replicas) for name, replicas in _by_model(kept).items()}
    decisions: list[Decision] = []
    for model in sorted(state.catalog.models.values(), key=lambda one: (-one.priority, one.name)):
        missing = wanted(model, counts.get(model.name, 0)) - counts.get(model.name, 0)
        if missing <= 0:
            decisions += _cleared(state, model)
            continue
        retry = state.retries.get(model.name)
        if model.name in failing or (retry is not None and now < retry.not_before):
            continue
        looked = looked or PlacementPass(placement_view(state, now))
        decisions += _place_some(model, missing, looked, draw)
    return decisions


def _cleared(state: FleetState, model: Model) -> list[Decision]:
    return [Decline(model.name, None)] if model.name in state.refusals else []


def _place_some(model: Model, missing: int, looked: PlacementPass, draw: random.Random) -> list[Decision]:
    profiles = {profile.name: profile for profile in model.profiles}
    decisions: list[Decision] = []
    for _ in range(missing):
        outcome = looked.place(PlacementRequest(new_replica_id(model, draw), model))
        match outcome:
            case Placement():
                decisions.append(Place(model, profiles[outcome.profile], outcome))
            case Unplaceable():
                decisions.append(Decline(model.name, outcome))
                break
    return decisions


def new_replica_id(model: Model, draw: random.Random) -> str:
    """`<model>-<8 random hex>`, never reused (R1); the model by its slug, as ids are used in paths."""
    return f"{model.slug}-{draw.getrandbits(32):08x}"


def _by_model(replicas: Sequence[Replica]) -> dict[str, list[Replica]]:
    found: dict[str, list[Replica]] = {}
    for replica in replicas:
        found.setdefault(replica.model, []).append(replica)
    return found
