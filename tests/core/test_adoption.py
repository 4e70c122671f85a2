"""What a report means: confirm, adopt, stop the unrecognised, miss what is gone (R9); one call an agent."""

import msgspec
import pytest

from llmgw.core import defaults
from llmgw.core.adoption import Adopted, hear_known, hear_report
from llmgw.core.catalog import Catalog
from llmgw.core.claims import Claim
from llmgw.core.replica import (
    Course,
    Replica,
    ReplicaPhase,
    ReportedShard,
    ShardEvent,
    ShardId,
    ShardPhase,
    breakage,
    phase_of,
    step_shard,
)
from tests.core.makers import catalog, definition
from tests.core.replicas import OOM, on, ready, replica, stranger, told

P = ShardPhase
CATALOG = catalog(definition("m", {"engine": "sim", "startup_timeout": "20m"}, scaling={"min": 1}))


def hear(
    *shards: ReportedShard,
    believed: tuple[Replica, ...] = (),
    node: str = "n1",
    complete: bool = True,
    known: Catalog = CATALOG,
) -> Adopted:
    return hear_report(node, shards, complete, {one.id: one for one in believed}, known, 50.0)


def only(heard: Adopted) -> Replica:
    (one,) = heard.replicas
    return one


# ---------------------------------------------------------------- known


def test_a_known_shard_is_confirmed_and_nothing_is_stopped() -> None:
    serving = ready()
    heard = hear(told(serving, P.READY), believed=(serving,))
    assert phase_of(only(heard)) is ReplicaPhase.READY
    assert (heard.adopted, heard.unrecognised, heard.forgettable) == ((), (), ())


@pytest.mark.parametrize("course", [Course.DRAIN, Course.STOP, Course.FAIL, Course.LOST])
def test_a_known_shard_is_not_told_to_stop_by_a_report_whatever_was_decided(course: Course) -> None:
    decided = on(ready(), course)
    assert hear(told(decided, P.READY), believed=(decided,)).unrecognised == ()


def test_a_lost_replica_is_kept_again_when_its_node_returns_with_it() -> None:
    lost = msgspec.structs.replace(on(ready(), Course.LOST))
    assert phase_of(hear_known(lost, told(lost, P.READY), 60.0)) is ReplicaPhase.READY


def test_a_lost_replica_whose_node_returns_without_it_stays_lost_with_its_process_gone() -> None:
    lost = step_shard(on(ready(), Course.LOST), 0, ShardEvent.NODE_LOST, 20.0)
    heard = only(hear(believed=(lost,)))
    assert heard.course is Course.LOST
    assert heard.shards[0].phase is P.GONE


def test_a_known_shard_from_another_node_is_unrecognised() -> None:
    serving = ready(node="n1")
    heard = hear(told(serving, P.READY), believed=(serving,), node="n2")
    assert [one.replica for one in heard.unrecognised] == [serving.id]
    assert heard.replicas == ()


def test_another_incarnation_of_a_known_shard_is_unrecognised() -> None:
    serving = ready()
    older = msgspec.structs.replace(told(serving, P.READY), id=ShardId(serving.id, 0, 0))
    heard = hear(older, told(serving, P.READY), believed=(serving,))
    assert heard.unrecognised == (older.id,)
    assert phase_of(only(heard)) is ReplicaPhase.READY


# ---------------------------------------------------------------- absent


def test_a_shard_missing_from_a_complete_report_is_gone() -> None:
    assert phase_of(only(hear(believed=(ready(),)))) is ReplicaPhase.FAILED


def test_a_shard_missing_from_a_partial_report_is_not() -> None:
    assert hear(believed=(ready(),), complete=False).replicas == ()


def test_other_nodes_shards_are_not_missed() -> None:
    assert hear(believed=(ready(node="n2"),)).replicas == ()


def test_a_start_that_was_lost_with_its_stream_is_not_missed_it_is_sent_again() -> None:
    assert hear(believed=(replica(P.ASSIGNED),)).replicas == ()


def test_an_adopted_assignment_that_vanished_is_missed_since_nobody_here_could_send_it_again() -> None:
    vanished = replica(P.ASSIGNED, adopted=True)
    assert phase_of(only(hear(believed=(vanished,)))) is ReplicaPhase.FAILED


def test_a_stopping_shard_missing_from_a_complete_report_frees_its_claim() -> None:
    stopping = on(ready(), Course.STOP)
    assert only(hear(believed=(stopping,))).over


# ---------------------------------------------------------------- unknown


def test_an_unknown_shard_is_adopted_with_what_its_agent_carries() -> None:
    claim = Claim(memory_bytes=7, ports=(20007,))
    report = stranger(
        P.READY, claim=claim, engine_key="secret", fingerprint="fp-old", running_s=90.0, port=20007
    )
    heard = hear(report)
    adopted = only(heard)
    assert heard.adopted == (report.id.replica,)
    assert phase_of(adopted) is ReplicaPhase.READY
    assert adopted.shards[0].claim == claim
    assert (adopted.fingerprint, adopted.engine_key) == ("fp-old", "secret")
    assert (adopted.shards[0].address, adopted.shards[0].port) == ("n1.example", 20007)
    assert adopted.created_at == 50.0, "its startup clock counts from the adoption"
    assert adopted.startup_timeout_s == 1200.0


def test_an_old_agents_report_without_a_claim_still_holds_the_port() -> None:
    assert only(hear(stranger(claim=None))).shards[0].claim.ports == (20000,)


def test_a_model_that_left_the_catalog_is_adopted_too_so_that_it_is_drained_and_its_claims_count() -> None:
    adopted = only(hear(stranger(model="removed")))
    assert (adopted.model, adopted.startup_timeout_s) == ("removed", defaults.STARTUP_TIMEOUT_S)


def test_a_word_of_a_newer_agent_keeps_the_shard_and_does_not_make_it_ready() -> None:
    assert phase_of(only(hear(stranger(P.UNKNOWN)))) is ReplicaPhase.STARTING


def test_what_was_being_stopped_when_we_met_it_is_no_failure_of_its_model() -> None:
    adopted = only(hear(stranger(P.STOPPING)))
    assert adopted.course is Course.STOP
    assert adopted.ending is not None


def test_what_failed_while_no_server_listened_is_a_failure_of_its_model() -> None:
    for phase in (P.FAILED, P.STOPPING):  # its last process may still be dying
        adopted = only(hear(stranger(phase, failure=OOM)))
        assert breakage(adopted) == OOM


@pytest.mark.parametrize("report", [stranger(P.GONE), stranger(P.FAILED, model="removed")])
def test_an_unknown_shard_that_ended_and_tells_nothing_may_be_forgotten(report: ReportedShard) -> None:
    heard = hear(report)
    assert heard.replicas == ()
    assert len(heard.forgettable) == 1


# ---------------------------------------------------------------- several nodes, one agent at a time


def halves() -> tuple[ReportedShard, ReportedShard]:
    leader = stranger(P.READY, shard_count=2)
    worker = msgspec.structs.replace(leader, id=ShardId(leader.id.replica, 1, 1), port=None)
    return leader, worker


def test_a_replica_of_two_nodes_is_put_together_from_two_reports_in_either_order() -> None:
    for first, second in (halves(), halves()[::-1]):
        half = only(hear(first, node="n1"))
        assert phase_of(half) is ReplicaPhase.STARTING, "short of a shard, but still being assembled"
        whole = only(hear(second, node="n2", believed=(half,)))
        assert phase_of(whole) is ReplicaPhase.READY
        assert whole.leader is not None
        assert whole.leader.port == 20000, "the endpoint comes from whichever report carries rank 0"


def test_a_part_met_after_the_rest_was_told_to_stop_is_to_stop_too() -> None:
    first, second = halves()
    failed = on(only(hear(first)), Course.FAIL)
    whole = only(hear(second, node="n2", believed=(failed,)))
    assert {shard.phase for shard in whole.shards} == {P.STOPPING}


def test_one_part_too_many_is_unrecognised() -> None:
    first, second = halves()
    whole = only(hear(second, node="n2", believed=(only(hear(first)),)))
    third = msgspec.structs.replace(first, id=ShardId(first.id.replica, 2, 1))
    assert hear(third, node="n3", believed=(whole,)).unrecognised == (third.id,)
