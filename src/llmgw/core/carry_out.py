"""Carries a decision of a reconcile pass into the books, and says what is to be done about it.

Laws: a decision changes one replica or one model; a replica's course changes by its table alone; every
decision is recorded with its reason (R17); an agent that is away is told when it is back.
"""

import random
from collections.abc import Mapping
from typing import assert_never

from llmgw.core import happenings as h
from llmgw.core.fleet_books import Books, Effects
from llmgw.core.fleet_state import Refusal
from llmgw.core.inventory import Node
from llmgw.core.reconcile import Decision, Decline, Fail, FinishDrain, Lose, Place, Remove, Withdraw
from llmgw.core.replica import (
    Course,
    CourseEvent,
    Ending,
    Recipe,
    Replica,
    Shard,
    ShardEvent,
    ShardPhase,
    step_course,
    step_shard,
)
from llmgw.core.retry import after_failure
from llmgw.core.units import format_duration


def carry_out(books: Books, decision: Decision, now: float, draw: random.Random) -> Effects:
    """The books after the decision; what is to be done, in order."""
    match decision:
        case Lose():
            return _lose(books, decision, now)
        case Fail():
            return _fail(books, decision, now, draw)
        case Withdraw():
            return _withdraw(books, decision, now)
        case FinishDrain():
            return _finish_drain(books, decision, now)
        case Remove():
            return _remove(books, decision)
        case Place():
            return _place(books, decision, now, draw)
        case Decline():
            return _decline(books, decision, now)
        case _:
            assert_never(decision)


def _lose(books: Books, decision: Lose, now: float) -> Effects:
    replica = step_course(books.replicas[decision.replica], CourseEvent.NODES_LOST, now)
    for shard in replica.shards:
        replica = step_shard(replica, shard.rank, ShardEvent.NODE_LOST, now)
    books.replicas[replica.id] = replica
    # Only a whole report can say what became of it; a stream that fell silent is made to dial again.
    silent = books.close_links({shard.node for shard in replica.shards}, f"{decision.why}; dial again", now)
    return [*silent, _record("replica_lost", decision.why, replica)]


def _fail(books: Books, decision: Fail, now: float, draw: random.Random) -> Effects:
    replica, failure = books.replicas[decision.replica], decision.failure
    ready_s = 0.0 if replica.ready_at is None else now - replica.ready_at
    retry = after_failure(books.retries.get(replica.model), failure, ready_s, now, draw)
    books.retries[replica.model] = retry
    ending = Ending(failure.text, now, failure)
    effects = _end(books, step_course(replica, CourseEvent.BROKE, now, ending))
    again = format_duration(max(0.0, retry.not_before - now))
    text = f"{failure.text}; {replica.model} is tried again in {again}"
    return [*effects, _record("replica_failed", text, replica)]


def _withdraw(books: Books, decision: Withdraw, now: float) -> Effects:
    replica = books.replicas[decision.replica]
    ending = Ending(decision.why, now)
    effects = _end(books, step_course(replica, CourseEvent.WITHDRAWN, now, ending))
    return [*effects, _record("replica_draining", decision.why, replica)]


def _finish_drain(books: Books, decision: FinishDrain, now: float) -> Effects:
    replica = books.replicas[decision.replica]
    effects = _end(books, step_course(replica, CourseEvent.DRAINED, now))
    return [*effects, _record("replica_stopping", decision.why, replica)]


def _end(books: Books, replica: Replica) -> Effects:
    """Keep the replica as stepped; tell the agents of shards that were decided to stop."""
    books.replicas[replica.id] = replica
    effects = Effects()
    if replica.course in (Course.STOP, Course.FAIL):
        for shard in replica.shards:
            if not shard.ended:
                effects += books.stop_command(replica, shard)
    return effects


def _remove(books: Books, decision: Remove) -> Effects:
    replica = books.replicas.pop(decision.replica)
    if replica.course is Course.FAIL and replica.model in books.catalog.models:
        books.failed[replica.model] = replica  # it holds nothing, and is looked at while the model pauses
    effects = Effects()
    for shard in replica.shards:
        link = books.links.get(shard.node)
        if link is not None and books.term is not None:
            effects.append(h.ForgetShard(link.session, books.term, replica.shard_id(shard)))
    return [*effects, _record("replica_gone", "its processes are gone, its claims are free", replica)]


def _place(books: Books, decision: Place, now: float, draw: random.Random) -> Effects:
    replica = new_replica(decision, books.nodes, now, draw)
    books.replicas[replica.id] = replica
    books.refusals.pop(replica.model, None)
    books.failed.pop(replica.model, None)
    where = ", ".join(shard.node for shard in replica.shards)
    text = f"on {where} with profile {replica.profile}: {decision.placement.why}"
    effects: Effects = [_record("placed", text, replica)]
    for shard in replica.shards:
        effects += books.start_command(replica, shard)
    return effects


def new_replica(decision: Place, nodes: Mapping[str, Node], now: float, draw: random.Random) -> Replica:
    """The replica a placement describes, with a fresh engine key (A17a)."""
    model, profile, placement = decision.model, decision.profile, decision.placement
    shards = []
    for placed in placement.shards:
        report = nodes[placed.node].report
        shards.append(
            Shard(
                rank=placed.rank,
                node=placed.node,
                claim=placed.claim,
                phase=ShardPhase.ASSIGNED,
                address=None if report is None else report.address,
                port=placed.claim.ports[0] if placed.claim.ports else None,
            )
        )
    return Replica(
        id=placement.replica,
        model=model.name,
        profile=profile.name,
        fingerprint=profile.fingerprint,
        engine=profile.engine,
        engine_key=f"{draw.getrandbits(256):064x}",
        shard_count=len(shards),
        shards=tuple(shards),
        created_at=now,
        startup_timeout_s=profile.startup_timeout_s,
        recipe=Recipe(model, profile),
    )


def _decline(books: Books, decision: Decline, now: float) -> Effects:
    if decision.refusal is None:
        books.refusals.pop(decision.model, None)
        return []
    line, known = decision.refusal.line(), books.refusals.get(decision.model)
    if known is not None and known.line == line:
        return []
    books.refusals[decision.model] = Refusal(line, now)
    return [h.Record("not_placed", line, decision.model)]


def _record(kind: str, text: str, replica: Replica) -> h.Record:
    node = replica.leader.node if replica.leader is not None else None
    return h.Record(kind, text, replica.model, replica.id, node)
