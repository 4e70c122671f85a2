"""One shard's life: its table, its deadlines, what each end means."""

import pytest

from llmgw.core.orders import Checked, Exited, Probed, RemoveRecord, Sweep, Terminate
from llmgw.core.reason import Explained, Failure
from llmgw.core.replica import ShardPhase
from llmgw.core.shard_life import (
    CHECK_WITHIN_S,
    MISSES,
    NEVER,
    NEXT,
    PORT_WITHIN_S,
    PROBE_READY_S,
    SPAWN_WITHIN_S,
    Happening,
    Stage,
)
from tests.core.supervising import CRASH, Bench, shard_id


def test_every_stage_and_happening_is_in_exactly_one_table() -> None:
    for stage in Stage:
        for happening in Happening:
            pair = (stage, happening)
            assert (pair in NEXT) != (pair in NEVER), pair


def test_nothing_comes_back_from_its_end() -> None:
    for stage in (Stage.GONE, Stage.FAILED):
        assert {after for (before, _), after in NEXT.items() if before is stage} == {stage}


def test_a_shard_becomes_ready_when_its_engine_answers() -> None:
    bench = Bench()
    bench.ready_at_once = False
    bench.start()
    assert bench.stage() is Stage.STARTING
    assert bench.records == {shard_id(): False}
    bench.pass_time(5)
    assert bench.stage() is Stage.STARTING
    bench.engine.answers = True
    bench.pass_time(0.5)
    assert bench.stage() is Stage.READY
    assert bench.records == {shard_id(): True}
    assert bench.phases() == [ShardPhase.STARTING, ShardPhase.STARTING, ShardPhase.READY]


def test_the_record_is_written_before_the_process_is_started() -> None:
    bench = Bench()
    bench.write_error = "no space left on device"
    bench.start()
    assert bench.engines == {}
    failure = bench.last().failure
    assert bench.stage() is Stage.FAILED and failure is not None
    assert "no space left" in failure.text


def test_a_refused_check_is_a_failure_without_a_process() -> None:
    bench = Bench()
    bench.refusal = Explained(Failure.WEIGHTS_MISSING, "there is no file /x.gguf")
    bench.start()
    assert bench.last().phase is ShardPhase.FAILED
    assert bench.last().failure == bench.refusal
    assert bench.engines == {} and bench.records == {}


def test_a_check_that_hangs_ends_in_failure_and_its_late_answer_starts_nothing() -> None:
    bench = Bench()
    bench.check_hangs = True
    bench.start()
    bench.pass_time(CHECK_WITHIN_S)
    assert bench.stage() is Stage.FAILED
    bench.send(Checked(shard_id()))
    assert bench.engines == {} and bench.stage() is Stage.FAILED


def test_a_spawn_that_hangs_ends_in_failure_and_a_late_process_is_killed() -> None:
    bench = Bench()
    bench.spawn_hangs = True
    bench.start()
    bench.pass_time(SPAWN_WITHIN_S)
    assert bench.stage() is Stage.FAILED
    bench.spawn_comes_through()
    assert isinstance(bench.done[-1], Sweep)
    assert not bench.engine.alive


def test_an_engine_that_exits_unasked_has_failed_whatever_its_status() -> None:
    bench = Bench()
    bench.start()
    bench.pass_time(1)
    bench.exit(bench.engine)
    assert bench.last().phase is ShardPhase.FAILED
    assert bench.last().failure == CRASH
    assert bench.records == {}


def test_children_left_by_a_crash_are_dead_before_it_is_called_failed() -> None:
    bench = Bench()
    bench.start()
    bench.pass_time(1)
    bench.engine.child_alive = True
    bench.exit(bench.engine)
    assert bench.stage() is Stage.SWEEPING
    bench.pass_time(0.2)
    assert bench.stage() is Stage.FAILED and not bench.engine.child_alive


def test_a_crash_whose_last_process_does_not_die_is_told_within_a_second() -> None:
    bench = Bench()
    bench.start()
    bench.pass_time(1)
    bench.engine.dies_of_kill = False
    bench.ignores_term = True
    bench.stop(grace_s=1)
    bench.pass_time(2)
    assert bench.last().phase is ShardPhase.STOPPING
    assert "still alive after KILL: 1" in bench.last().note
    bench.pass_time(3600)
    assert bench.stage() is Stage.SWEEPING
    bench.engine.dies_of_kill = True
    bench.pass_time(5)
    assert bench.stage() is Stage.GONE


def test_an_asked_stop_waits_for_exit_then_for_the_port() -> None:
    bench = Bench()
    bench.start()
    bench.pass_time(1)
    bench.port_free = False
    bench.stop()
    assert bench.stage() is Stage.RELEASING
    assert ShardPhase.GONE not in bench.phases()
    bench.port_free = True
    bench.pass_time(0.2)
    assert bench.last().phase is ShardPhase.GONE and bench.last().failure is None
    assert isinstance(bench.done[-1], RemoveRecord)


def test_a_port_held_by_a_stranger_does_not_hold_the_shard_for_ever() -> None:
    bench = Bench()
    bench.start()
    bench.pass_time(1)
    bench.port_free = False
    bench.stop()
    bench.pass_time(PORT_WITHIN_S)
    assert bench.last().phase is ShardPhase.GONE
    assert "not ours" in bench.last().note


def test_an_engine_that_ignores_term_is_told_again_then_killed_after_its_grace() -> None:
    bench = Bench()
    bench.start()
    bench.pass_time(1)
    bench.engine.heeds_term = False
    bench.stop(grace_s=10)
    bench.pass_time(9.9)
    assert bench.engine.alive and bench.engine.terms == 4
    bench.pass_time(0.4)
    assert not bench.engines[shard_id()].alive
    assert bench.last().phase is ShardPhase.GONE


def test_a_second_stop_may_only_hurry() -> None:
    bench = Bench()
    bench.start()
    bench.pass_time(1)
    bench.engine.heeds_term = False
    bench.stop(grace_s=5)
    bench.stop(grace_s=100)
    bench.pass_time(5.5)
    assert bench.stage() is Stage.GONE


def test_a_stop_while_the_process_is_being_started_ends_it_as_soon_as_it_is_there() -> None:
    bench = Bench()
    bench.spawn_hangs = True
    bench.start()
    bench.stop()
    assert bench.stage() is Stage.SPAWNING
    bench.spawn_comes_through()
    assert bench.stage() is Stage.GONE
    assert any(isinstance(command, Terminate) for command in bench.done)


def test_an_engine_that_is_not_ready_in_time_is_stopped_and_its_last_lines_kept() -> None:
    bench = Bench()
    bench.ready_at_once = False
    bench.start()
    bench.pass_time(60.5)
    failure = bench.last().failure
    assert bench.last().phase is ShardPhase.FAILED and failure is not None
    assert failure.code is Failure.START_TIMEOUT
    assert "connection refused" in failure.text
    assert failure.log_tail == CRASH.log_tail


def test_fewer_missed_questions_than_the_limit_change_nothing() -> None:
    bench = Bench()
    bench.start()
    bench.pass_time(1)
    bench.ready_at_once = False
    bench.pass_time(PROBE_READY_S * (MISSES - 1))
    assert bench.stage() is Stage.READY
    bench.engine.answers = True
    bench.pass_time(PROBE_READY_S)
    bench.engine.answers = False
    bench.pass_time(PROBE_READY_S * (MISSES - 1))
    assert bench.stage() is Stage.READY


def test_one_missed_question_is_none() -> None:
    bench = Bench()
    bench.start()
    bench.pass_time(1)
    bench.ready_at_once = False
    bench.pass_time(PROBE_READY_S)
    assert bench.state.shards["m-1", 0].misses == 1
    assert bench.stage() is Stage.READY


def test_an_engine_silent_for_many_questions_is_unhealthy_and_ended() -> None:
    bench = Bench()
    bench.start()
    bench.pass_time(1)
    bench.ready_at_once = False
    bench.pass_time(PROBE_READY_S * MISSES + 1)
    failure = bench.last().failure
    assert bench.last().phase is ShardPhase.FAILED and failure is not None
    assert failure.code is Failure.UNHEALTHY
    assert failure.log_tail == CRASH.log_tail


def test_a_rank_without_http_is_judged_by_staying_alive() -> None:
    bench = Bench()
    bench.start(has_port=False)
    assert bench.stage() is Stage.READY
    bench.pass_time(3600)
    assert bench.stage() is Stage.READY
    bench.stop()
    assert bench.stage() is Stage.GONE


def test_a_late_answer_does_not_count_as_the_look_on_its_way() -> None:
    bench = Bench()
    bench.start()
    bench.pass_time(1)
    bench.port_free = False
    bench.stop()
    looking = bench.state.shards["m-1", 0]
    bench.send(Probed(shard_id()))
    assert bench.state.shards["m-1", 0] == looking


def test_what_cannot_happen_raises() -> None:
    bench = Bench()
    bench.check_hangs = True
    bench.start()
    with pytest.raises(AssertionError, match="cannot happen"):
        bench.send(Exited(shard_id(), CRASH))
