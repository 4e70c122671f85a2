"""Decides what a node's report of what it runs means for what we believe (R9).

Laws: a known shard is confirmed and never told to stop by a report; an unknown one whose model may
still exist is adopted, with its claims and fingerprint as the agent carries them; one that failed while
nobody listened is adopted as that; one that contradicts what we know (another node, another incarnation)
is stopped; a shard we believe in and a *complete* report does not contain is gone.
"""

from collections.abc import Mapping, Sequence

import msgspec

from llmgw.core import defaults
from llmgw.core.catalog import Catalog, Model
from llmgw.core.claims import Claim
from llmgw.core.replica import (
    ENDED,
    Course,
    CourseEvent,
    Ending,
    Replica,
    ReportedShard,
    Shard,
    ShardEvent,
    ShardId,
    ShardPhase,
    hear_shard,
    step_course,
    step_shard,
)


class Adopted(msgspec.Struct, frozen=True):
    """What a report leads to: replicas as they are now believed, and shards to stop or to forget."""

    replicas: tuple[Replica, ...]
    adopted: tuple[str, ...]  # replicas met for the first time
    unrecognised: tuple[ShardId, ...]  # to be stopped
    forgettable: tuple[ShardId, ...]  # ended, and nothing to learn from


def hear_report(
    node: str,
    shards: Sequence[ReportedShard],
    complete: bool,
    believed: Mapping[str, Replica],
    catalog: Catalog,
    now: float,
) -> Adopted:
    """What the fleet believes of this node's shards after its agent reported them."""
    changed: dict[str, Replica] = {}
    adopted: list[str] = []
    unrecognised: list[ShardId] = []
    forgettable: list[ShardId] = []
    for report in shards:
        replica = changed.get(report.id.replica) or believed.get(report.id.replica)
        if replica is not None and _is_ours(replica, node, report):
            changed[replica.id] = hear_known(replica, report, now)
        elif report.phase in ENDED and not _is_news(replica, report, catalog):
            forgettable.append(report.id)
        elif replica is None or _completes(replica, report):
            changed[report.id.replica] = _join(replica, node, report, catalog, now)
            adopted += [report.id.replica] if replica is None else []
        else:
            unrecognised.append(report.id)
    if complete:
        _note_absent(node, shards, believed, changed, now)
    return Adopted(tuple(changed.values()), tuple(adopted), tuple(unrecognised), tuple(forgettable))


def hear_known(replica: Replica, report: ReportedShard, now: float) -> Replica:
    """A shard we know spoke; a lost replica is kept again once nothing of it is unknown any more."""
    return _found_again(hear_shard(replica, report, now), now)


def _found_again(replica: Replica, now: float) -> Replica:
    unknown = any(shard.phase is ShardPhase.UNKNOWN for shard in replica.shards)
    ended = all(shard.ended for shard in replica.shards)  # nothing came back
    if replica.course is not Course.LOST or unknown or ended:
        return replica
    return step_course(replica, CourseEvent.HEARD_AGAIN, now)


def _is_ours(replica: Replica, node: str, report: ReportedShard) -> bool:
    shard = replica.shard(report.id.rank)
    return shard is not None and shard.node == node and shard.generation == report.id.generation


def _is_news(replica: Replica | None, report: ReportedShard, catalog: Catalog) -> bool:
    """A failure while no server listened: its model pauses and its reason is told like any other's."""
    return replica is None and report.phase is ShardPhase.FAILED and report.model in catalog.models


def _completes(replica: Replica, report: ReportedShard) -> bool:
    """One more rank of a replica that is being put together from reports."""
    return replica.adopted and not replica.whole and replica.shard(report.id.rank) is None


def _join(replica: Replica | None, node: str, report: ReportedShard, catalog: Catalog, now: float) -> Replica:
    shard = Shard(
        rank=report.id.rank,
        node=node,
        claim=report.claim or Claim(ports=() if report.port is None else (report.port,)),
        phase=ShardPhase.UNKNOWN,
        generation=report.id.generation,
    )
    if replica is None:
        replica = _rebuilt(report, shard, catalog.models.get(report.model), now)
    else:
        replica = msgspec.structs.replace(replica, shards=(*replica.shards, shard))
    joined = hear_shard(replica, report, now)
    if joined.course in (Course.STOP, Course.FAIL):
        # The rest of it was told to stop before this part was met.
        return step_shard(joined, shard.rank, ShardEvent.STOP_DECIDED, now)
    if joined.course is Course.KEEP and report.phase is ShardPhase.STOPPING and report.failure is None:
        # Somebody decided that before us; it is no failure of its model.
        return _stopped(joined, now)
    return joined


def _stopped(replica: Replica, now: float) -> Replica:
    ending = Ending("it was being stopped when this server met it", now)
    withdrawn = step_course(replica, CourseEvent.WITHDRAWN, now, ending)
    return step_course(withdrawn, CourseEvent.DRAINED, now)


def _rebuilt(report: ReportedShard, shard: Shard, model: Model | None, now: float) -> Replica:
    profile = None
    if model is not None:
        profile = next((one for one in model.profiles if one.name == report.profile), None)
    return Replica(
        id=report.id.replica,
        model=report.model,
        profile=report.profile,
        fingerprint=report.fingerprint,
        engine=report.engine or (profile.engine if profile is not None else ""),
        engine_key=report.engine_key or "",
        shard_count=report.shard_count or 1,
        shards=(shard,),
        created_at=now,
        startup_timeout_s=defaults.STARTUP_TIMEOUT_S if profile is None else profile.startup_timeout_s,
        fabric=report.fabric,
        adopted=True,
        serving_s=report.running_s,
    )


def _note_absent(
    node: str,
    shards: Sequence[ReportedShard],
    believed: Mapping[str, Replica],
    changed: dict[str, Replica],
    now: float,
) -> None:
    reported = {report.id for report in shards}
    for id, known in believed.items():
        replica = changed.get(id, known)
        for shard in known.shards:
            if shard.node != node or known.shard_id(shard) in reported:
                continue
            if shard.phase is ShardPhase.ASSIGNED and known.recipe is not None:
                # The command was lost with its stream; it is sent again, and starting twice changes nothing.
                continue
            replica = _found_again(step_shard(replica, shard.rank, ShardEvent.ABSENT, now), now)
        if replica is not known:
            changed[id] = replica
