"""A node's shards: terms, generations, repeats, adoption, and whatever may happen in any order."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.core.orders import (
    Drop,
    ForgetAsked,
    Found,
    Refuse,
    ReportGone,
    StartAsked,
    StopAll,
    StopAsked,
    TermSeen,
)
from llmgw.core.reason import Failure
from llmgw.core.replica import ShardPhase
from llmgw.core.shard_life import ENDED, Stage
from llmgw.core.supervisor import ENDED_KEPT, live, next_due
from tests.core.supervising import Bench, Engine, order, shard_id


def test_an_order_of_an_older_term_is_refused_with_both_numbers() -> None:
    bench = Bench()
    bench.send(TermSeen(7))
    assert bench.terms == [7]
    bench.start(term=6)
    (refused,) = bench.said
    assert isinstance(refused, Refuse)
    assert "term 6" in refused.reason and "term 7" in refused.reason
    assert bench.engines == {}


def test_a_stop_of_an_older_term_stops_nothing() -> None:
    bench = Bench()
    bench.start(term=5)
    bench.pass_time(1)
    bench.stop(term=4)
    assert bench.stage() is Stage.READY


def test_a_newer_term_is_remembered_before_it_is_obeyed() -> None:
    bench = Bench()
    bench.start(term=3)
    assert [type(command).__name__ for command in bench.done][:2] == ["RememberTerm", "Check"]


def test_a_repeated_start_only_tells_how_the_shard_is() -> None:
    bench = Bench()
    bench.start()
    bench.pass_time(1)
    bench.start()
    assert len(bench.engines) == 1
    assert bench.last().phase is ShardPhase.READY


def test_an_incarnation_that_failed_is_not_started_again() -> None:
    bench = Bench()
    bench.start()
    bench.pass_time(1)
    bench.exit(bench.engine)
    bench.start()
    assert len(bench.engines) == 1
    assert bench.last().phase is ShardPhase.FAILED


def test_an_older_generation_is_refused() -> None:
    bench = Bench()
    bench.start(generation=3)
    bench.start(generation=2)
    assert isinstance(bench.said[-1], Refuse)


def test_a_newer_generation_waits_for_the_older_one_to_be_gone() -> None:
    bench = Bench()
    bench.start(generation=1)
    bench.pass_time(1)
    bench.engine.heeds_term = False
    bench.start(generation=2)
    assert set(bench.engines) == {shard_id(1)}
    bench.pass_time(11)
    assert not bench.engines[shard_id(1)].alive
    assert bench.engines[shard_id(2)].alive
    assert bench.stage() is Stage.READY
    assert Drop(shard_id(1)) in bench.done
    assert set(bench.records) == {shard_id(2)}


def test_a_stop_for_an_older_incarnation_leaves_the_newer_one_alone() -> None:
    bench = Bench()
    bench.start(generation=2)
    bench.pass_time(1)
    bench.stop(generation=1)
    assert bench.stage() is Stage.READY
    assert bench.said[-1] == ReportGone(shard_id(1))


def test_a_stop_for_a_newer_incarnation_ends_the_older_one_too() -> None:
    bench = Bench()
    bench.start(generation=1)
    bench.pass_time(1)
    bench.stop(generation=2)
    assert not bench.engine.alive
    assert ReportGone(shard_id(2)) in bench.said
    assert bench.stage() is Stage.GONE


def test_a_stop_for_what_is_not_here_says_gone() -> None:
    bench = Bench()
    bench.stop()
    assert bench.said == [ReportGone(shard_id())]


def test_a_stop_forgets_the_incarnation_that_waits() -> None:
    bench = Bench()
    bench.ignores_term = True
    bench.start(generation=1)
    bench.start(generation=2)
    bench.stop(generation=2)
    bench.pass_time(12)
    assert set(bench.engines) == {shard_id(1)}
    assert ReportGone(shard_id(2)) in bench.said


def test_only_an_ended_shard_is_forgotten() -> None:
    bench = Bench()
    bench.start()
    bench.pass_time(1)
    bench.send(ForgetAsked(1, shard_id()))
    assert bench.stage() is Stage.READY
    bench.stop()
    bench.send(ForgetAsked(1, shard_id()))
    assert bench.state.shards == {}


def test_ended_shards_are_kept_up_to_a_bound() -> None:
    bench = Bench()
    bench.refusal = None
    for number in range(ENDED_KEPT + 5):
        replica = f"m-{number}"
        bench.send(StartAsked(1, order(id=shard_id(replica=replica))))
        bench.send(StopAsked(1, shard_id(replica=replica), 1.0))
    assert len(bench.state.shards) <= ENDED_KEPT + 1


def test_a_living_engine_of_an_earlier_agent_stays_what_it_was() -> None:
    bench = Bench()
    bench.engines[shard_id()] = Engine(shard_id())
    bench.send(Found(order(), alive=True, ready=True))
    assert bench.stage() is Stage.READY
    assert bench.engine.terms == 0
    bench.pass_time(60)
    assert bench.stage() is Stage.READY


def test_an_adopted_engine_that_was_starting_gets_ready() -> None:
    bench = Bench()
    bench.engines[shard_id()] = Engine(shard_id())
    bench.send(Found(order(), alive=True, ready=False))
    assert bench.last().phase is ShardPhase.READY


def test_an_engine_that_died_while_nobody_watched_is_swept_and_told() -> None:
    bench = Bench()
    engine = Engine(shard_id())
    engine.alive, engine.child_alive = False, True
    bench.engines[shard_id()] = engine
    bench.send(Found(order(), alive=False, ready=True))
    bench.pass_time(1)
    assert not engine.child_alive
    failure = bench.last().failure
    assert bench.last().phase is ShardPhase.FAILED and failure is not None
    assert failure.code is Failure.ENGINE_EXITED


def test_stopping_all_ends_everything_and_starts_nothing_that_waited() -> None:
    bench = Bench()
    bench.ignores_term = True
    bench.start(generation=1)
    bench.start(generation=2)
    bench.send(StopAll(1.0))
    bench.pass_time(3)
    assert not live(bench.state)
    assert set(bench.engines) == {shard_id(1)}


def test_nothing_is_due_on_an_empty_node() -> None:
    assert next_due(Bench().state) is None


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32))
def test_whatever_happens_one_engine_a_shard_and_no_end_is_told_before_it_is_true(seed: int) -> None:
    draw = random.Random(seed)
    bench = Bench()
    bench.ready_at_once = draw.random() < 0.7
    for _ in range(draw.randint(5, 40)):
        _disturb(bench, draw)
        _check(bench)
    _heal(bench)
    bench.send(StopAll(5.0))
    bench.pass_time(120)
    _check(bench)
    assert not live(bench.state)
    assert not any(engine.alive or engine.child_alive for engine in bench.engines.values())
    assert bench.records == {}


def _disturb(bench: Bench, draw: random.Random) -> None:
    replica = draw.choice(("a", "b"))
    id = shard_id(draw.randint(1, 4), replica)
    engines = [engine for engine in bench.engines.values() if engine.alive]
    match draw.randint(0, 9):
        case 0 | 1 | 2:
            wanted = order(id=id, startup_timeout_s=draw.choice((1.0, 30.0)), has_port=draw.random() < 0.8)
            bench.send(StartAsked(draw.randint(1, 3), wanted))
        case 3:
            bench.send(StopAsked(draw.randint(1, 3), id, draw.choice((0.0, 3.0))))
        case 4 if engines:
            bench.exit(draw.choice(engines))
        case 5 if engines:
            engine = draw.choice(engines)
            engine.child_alive = draw.random() < 0.5
            engine.heeds_term = draw.random() < 0.5
            engine.answers = draw.random() < 0.5
        case 6:
            bench.port_free = draw.random() < 0.7
            bench.check_hangs = draw.random() < 0.1
            bench.spawn_hangs = draw.random() < 0.1
        case 7:
            bench.send(ForgetAsked(draw.randint(1, 3), id))
        case _:
            bench.pass_time(draw.choice((0.05, 1.0, 8.0, 40.0)))


def _heal(bench: Bench) -> None:
    bench.port_free = True
    for engine in bench.engines.values():
        engine.dies_of_kill = True


def _check(bench: Bench) -> None:
    for replica in ("a", "b"):
        alive = [e.id for e in bench.engines.values() if e.id.replica == replica and e.alive]
        assert len(alive) <= 1, alive
        shard = bench.state.shards.get((replica, 0))
        if alive:
            assert shard is not None and shard.id == alive[0] and shard.stage not in ENDED
