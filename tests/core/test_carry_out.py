"""What a decision changes in the books, and what is asked to be done about it."""

import random

from llmgw.core import happenings as h
from llmgw.core.carry_out import carry_out
from llmgw.core.fleet_books import Books, Effects
from llmgw.core.fleet_state import AgentLink
from llmgw.core.reconcile import (
    Decision,
    Decline,
    Fail,
    FinishDrain,
    Lose,
    Place,
    Remove,
    Withdraw,
    reconcile,
)
from llmgw.core.replica import Course, Replica, ReplicaPhase, ShardPhase, phase_of
from tests.core.makers import catalog, definition, node, report
from tests.core.obedient import SETTINGS
from tests.core.replicas import OOM, on, ready, replica

P = ShardPhase
NOW = 5.0


def books(*replicas: Replica) -> Books:
    made = Books(SETTINGS, catalog(definition("m", {"engine": "sim"}, scaling={"min": 1})))
    made.term = 3
    for session, name in enumerate(("n1", "n2"), 1):
        made.nodes[name] = node(report(name))
        made.bind(name, AgentLink(session, "instance"), NOW)
    made.replicas.update((one.id, one) for one in replicas)
    return made


def do(kept: Books, decision: Decision) -> Effects:
    return carry_out(kept, decision, NOW, random.Random(3))


def kinds(effects: Effects) -> list[str]:
    return [one.kind for one in effects if isinstance(one, h.Record)]


def test_a_failed_replica_is_stopped_whole_and_its_model_waits() -> None:
    broken = replica(P.READY, P.FAILED)
    kept = books(broken)
    effects = do(kept, Fail(broken.id, OOM))
    stops = [one for one in effects if isinstance(one, h.StopShard)]
    assert [one.shard.rank for one in stops] == [0], "what has ended is not told to stop"
    assert kept.retries["m"].not_before > NOW
    assert kept.replicas[broken.id].ending is not None
    assert kinds(effects) == ["replica_failed"]
    assert any(isinstance(one, h.Record) and OOM.text in one.text for one in effects)


def test_a_withdrawn_replica_keeps_running_until_it_is_drained() -> None:
    serving = ready()
    kept = books(serving)
    assert not any(
        isinstance(one, h.StopShard) for one in do(kept, Withdraw(serving.id, "2 running, 1 wanted"))
    )
    assert phase_of(kept.replicas[serving.id]) is ReplicaPhase.DRAINING
    stopped = do(kept, FinishDrain(serving.id, "nothing in flight"))
    assert h.StopShard(1, 3, serving.shard_id(serving.shards[0]), "2 running, 1 wanted") in stopped


def test_a_lost_replica_has_its_silent_streams_closed_so_that_they_report_anew() -> None:
    serving = ready()
    kept = books(serving)
    effects = do(kept, Lose(serving.id, "nothing heard from n1"))
    assert phase_of(kept.replicas[serving.id]) is ReplicaPhase.LOST
    assert any(isinstance(one, h.RefuseAgent) and one.session == 1 for one in effects)
    assert kept.connected == {"n2"}


def test_what_is_removed_is_forgotten_by_agents_that_are_there() -> None:
    over = on(replica(P.FAILED, P.GONE, nodes=("n1", "n9")), Course.FAIL)
    kept = books(over)
    effects = do(kept, Remove(over.id))
    assert kept.replicas == {}
    assert [one for one in effects if isinstance(one, h.ForgetShard)] == [
        h.ForgetShard(1, 3, over.shard_id(over.shards[0]))
    ]


def test_what_failed_stays_to_be_looked_at_until_the_model_is_tried_again() -> None:
    broken, unwanted = on(replica(P.FAILED), Course.FAIL), on(replica(P.GONE, id="m-2"), Course.STOP)
    kept = books(broken, unwanted)
    do(kept, Remove(unwanted.id))
    assert kept.failed == {}
    do(kept, Remove(broken.id))
    assert kept.failed == {"m": broken}
    (place,) = reconcile(kept.state(NOW), NOW, random.Random(5)).decisions
    do(kept, place)
    assert kept.failed == {}


def test_a_placed_replica_is_started_with_a_key_of_its_own_where_its_node_said_it_is() -> None:
    kept = books()
    (decision,) = reconcile(kept.state(NOW), NOW, random.Random(5)).decisions
    assert isinstance(decision, Place)
    (record, start) = do(kept, decision)
    assert isinstance(record, h.Record)
    assert isinstance(start, h.StartShard)
    assert start.shard.address == f"{start.shard.node}.example"
    assert start.shard.port == start.shard.claim.ports[0]
    assert len(start.replica.engine_key) == 64
    assert start.replica.fingerprint == decision.profile.fingerprint


def test_the_same_refusal_is_said_once_and_another_again() -> None:
    kept = books()
    kept.catalog = catalog(definition("m", {"engine": "sim", "min_memory_gb": 500}, scaling={"min": 1}))
    (decision,) = reconcile(kept.state(NOW), NOW, random.Random(5)).decisions
    assert isinstance(decision, Decline)
    assert kinds(do(kept, decision)) == ["not_placed"]
    assert kinds(do(kept, decision)) == []
    do(kept, Decline("m", None))
    assert kept.refusals == {}
    assert kinds(do(kept, decision)) == ["not_placed"]
