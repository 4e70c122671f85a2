"""The fleet as its owner drives it: events in, effects out, agents around it that obey."""

import msgspec
import pytest

from llmgw.core import happenings as h
from llmgw.core.catalog import Catalog
from llmgw.core.inventory import Mark, OperatorMark
from llmgw.core.replica import Replica, ShardPhase
from tests.core.makers import catalog, definition
from tests.core.obedient import SETTINGS, World, node


def one_model(count: int = 1, **profile: object) -> Catalog:
    return catalog(definition("m", {"engine": "sim", **profile}, scaling={"min": count}))


def running(count: int = 1, nodes: tuple[str, ...] = ("n1",)) -> World:
    """A world whose replicas are ready."""
    world = World(one_model(count))
    world.lead()
    world.join_router()
    for id in nodes:
        world.register(node(id))
    world.pass_time(2)
    assert world.phases() == ["ready"] * count
    return world


def only(world: World) -> Replica:
    (replica,) = world.state.replicas.values()
    return replica


def test_a_wanted_replica_is_placed_started_and_published() -> None:
    world = running()
    replica = only(world)
    assert world.published() == {replica.id}
    assert world.started() == [replica.id]
    assert "placed" in world.kinds()


def test_once_converged_further_turns_change_nothing() -> None:
    world = running(3, ("n1", "n2"))
    before = len(world.effects)
    world.pass_time(300)
    assert world.effects[before:] == []


def test_nothing_is_placed_by_a_server_that_does_not_lead() -> None:
    world = World(one_model())
    world.register(node("n1"))
    world.pass_time(100)
    assert world.started() == []
    assert any(isinstance(effect, h.RefuseAgent) for effect in world.effects)


def test_a_crashed_engine_is_stopped_released_and_replaced_after_a_backoff() -> None:
    world = running()
    first = only(world)
    world.crash(first)
    assert world.published() == set(), "withdrawn at once, not at the next turn"
    world.pass_time(3)
    assert "replica_failed" in world.kinds()
    assert first.id not in world.state.replicas, "its process is gone, so its claims are free"
    assert world.started() == [first.id], "the backoff has not passed"
    world.pass_time(6)
    assert world.phases() == ["ready"]
    assert only(world).id != first.id


def test_a_model_that_was_changed_after_it_failed_is_tried_at_once() -> None:
    world = running()
    world.crash(only(world))
    world.pass_time(2)
    assert world.state.retries and world.state.failed
    world.tell(h.CatalogChanged(one_model()))
    assert world.state.retries and world.state.failed, "the same profile would fail the same way"
    world.tell(h.CatalogChanged(one_model(startup_timeout="20m")))
    world.pass_time(1)
    assert not world.state.retries and not world.state.failed
    assert world.phases() == ["ready"]


def test_claims_are_held_until_the_agent_says_that_the_process_is_gone() -> None:
    world = World(one_model(min_memory_gb=50))
    world.lead()
    world.register(node("n1", memory_gb=64))
    world.pass_time(2)
    first = only(world)
    shard = first.shards[0]
    world.obeys = lambda _: False  # the agent does not get its engine to stop
    world.tell(h.CatalogChanged(one_model(min_memory_gb=51)))
    world.say("n1", first.shard_id(shard), ShardPhase.STOPPING)
    world.pass_time(60)
    assert len(world.started()) == 1, "the memory is still held"
    world.say("n1", first.shard_id(shard), ShardPhase.GONE)
    world.obeys = lambda _: True
    world.pass_time(2)
    assert len(world.started()) == 2


def test_a_restarted_server_adopts_and_starts_nothing() -> None:
    before = running(2, ("n1", "n2"))
    ids = set(before.state.replicas)
    world = World(one_model(2))
    world.shards = before.shards
    world.lead("n1", "n2")
    world.join_router()
    world.register(node("n1"))
    world.pass_time(5)
    world.register(node("n2"))
    world.pass_time(100)
    assert set(world.state.replicas) == ids
    assert world.started() == []
    assert world.published() == ids
    assert all(one.adopted for one in world.state.replicas.values())


def test_nothing_is_placed_while_the_roster_is_not_back_within_the_window() -> None:
    world = World(one_model())
    world.lead("n1", "n2")
    world.register(node("n1"))
    world.pass_time(29)
    assert world.started() == []
    world.pass_time(2)  # steady for half the window
    assert len(world.started()) == 1


def test_an_agent_that_runs_nothing_is_news_what_we_believed_there_is_gone() -> None:
    world = running()
    lost = only(world)
    world.leave("n1")
    world.shards["n1"].clear()
    world.register(node("n1"))
    assert world.published() == set()
    world.pass_time(10)
    assert world.phases() == ["ready"]
    assert only(world).id != lost.id


def test_an_incomplete_report_takes_nothing_down() -> None:
    world = running()
    replica = only(world)
    world.shards["n1"].clear()
    world.register(node("n1"), complete=False)
    assert world.published() == {replica.id}


def test_a_reconnecting_agent_confirms_its_shard_and_nothing_is_stopped() -> None:
    world = running()
    replica = only(world)
    world.leave("n1")
    world.pass_time(5)
    world.register(node("n1"))
    world.pass_time(100)
    assert world.stopped() == []
    assert world.published() == {replica.id}


def test_a_stream_of_the_same_agent_replaces_its_older_one_whose_words_are_ignored() -> None:
    world = running()
    old = world.sessions["n1"]
    world.register(node("n1"))
    assert any(isinstance(one, h.RefuseAgent) and one.session == old for one in world.effects)
    replica = only(world)
    report = world.shards["n1"][replica.shard_id(replica.shards[0])]
    world.tell(h.ShardReported(old, msgspec.structs.replace(report, phase=ShardPhase.FAILED)))
    assert world.published() == {replica.id}
    world.tell(h.AgentLeft(old, "late"))
    assert "n1" in world.state.links


def test_another_agent_with_the_same_id_is_refused_while_the_first_is_alive() -> None:
    world = running()
    first = world.sessions["n1"]
    second = world.register(node("n1"), instance_id="somebody else")
    assert world.state.links["n1"].session == first
    assert any(isinstance(one, h.RefuseAgent) and one.session == second for one in world.effects)


def test_an_agent_of_another_cluster_is_refused_with_the_way_out() -> None:
    world = running()
    session = world.register(node("n9"), cluster_id="other")
    (refusal,) = [one for one in world.effects if isinstance(one, h.RefuseAgent) and one.session == session]
    assert "--forget-cluster" in refusal.reason
    assert "n9" not in world.state.nodes


def test_a_higher_term_seen_by_an_agent_raises_ours_before_it_may_join() -> None:
    world = World(one_model())
    world.lead()
    world.register(node("n1"), highest_term=7)
    assert h.RaiseTerm(7) in world.effects
    assert world.state.links == {}
    world.tell(h.TermRaised(8))
    world.register(node("n1"), highest_term=7)
    assert "n1" in world.state.links


def test_a_lost_node_is_replaced_and_when_it_returns_the_surplus_is_drained() -> None:
    world = running(1, ("n1", "n2"))
    lost = only(world)
    home = lost.shards[0].node
    world.leave(home)
    world.pass_time(30)
    assert world.published() == {lost.id}, "unreachable is not lost: routers may still reach it"
    world.pass_time(100)
    assert world.phases() == ["lost", "ready"]
    world.register(node(home))
    world.pass_time(5)
    assert world.phases() == ["ready"]
    assert len(world.stopped()) == 1


def test_a_model_that_left_the_catalog_is_drained_before_it_is_stopped() -> None:
    world = running()
    replica = only(world)
    world.in_flight[replica.id] = 1
    world.tell(h.CatalogChanged(catalog()))
    world.pass_time(60)
    assert world.published() == set()
    assert world.phases() == ["draining"]
    assert world.stopped() == []
    world.in_flight.clear()
    world.pass_time(2)
    assert world.stopped() == [replica.id]
    assert world.state.replicas == {}


def test_a_drain_is_bounded_and_says_what_it_cut() -> None:
    world = running()
    replica = only(world)
    world.in_flight[replica.id] = 3
    world.tell(h.CatalogChanged(catalog()))
    world.pass_time(SETTINGS.drain_grace_s + 2)
    assert world.state.replicas == {}
    texts = [one.text for one in world.effects if isinstance(one, h.Record)]
    assert any("3 requests cut" in text for text in texts)


def test_a_silent_router_delays_a_stop_only_until_the_bound() -> None:
    world = running()
    world.routers.append("deaf")
    world.tell(h.RouterJoined("deaf"))
    world.routers.remove("deaf")  # connected, but it acknowledges and reports nothing
    world.tell(h.CatalogChanged(catalog()))
    world.pass_time(30)
    assert world.phases() == ["draining"], "its use is unknown, which is not zero"
    world.pass_time(SETTINGS.drain_grace_s)
    assert world.state.replicas == {}


def test_what_is_met_ready_and_not_wanted_is_withdrawn_before_it_is_stopped() -> None:
    before = running(2, ("n1", "n2"))
    world = World(one_model(1))
    world.shards = before.shards
    world.lead("n1", "n2")
    world.register(node("n1"))
    world.routers.append("router")  # it serves both, as the server before this one told it
    world.tell(h.RouterJoined("router"))
    world.routers.remove("router")
    world.tell(h.Ticked())
    world.now += 1
    world.register(node("n2"))  # the newer one here, so the one to go
    world.tell(h.Ticked())
    assert world.phases() == ["draining", "ready"]
    world.now += SETTINGS.withdrawal_ack_s + 1
    world.tell(h.Ticked())
    assert world.stopped() == [], "the router has acknowledged nothing and its use is unknown"
    world.routers.append("router")
    world._acknowledge()
    world.pass_time(2)
    assert world.phases() == ["ready"]


def test_a_start_that_never_gets_ready_fails_after_its_timeout() -> None:
    world = World(one_model(startup_timeout="30s"))
    world.obeys = lambda _: False
    world.lead()
    world.register(node("n1"))
    world.pass_time(28)
    assert "replica_failed" not in world.kinds()
    world.pass_time(5)
    assert "replica_failed" in world.kinds()


def test_an_unplaceable_model_is_said_once_with_its_reason_and_cleared_when_it_fits() -> None:
    world = World(one_model(min_memory_gb=100))
    world.lead()
    world.register(node("n1", memory_gb=64))
    world.pass_time(50)
    assert world.kinds().count("not_placed") == 1
    assert "100 GB" in world.state.refusals["m"].line
    world.tell(h.NodeRedescribed(world.sessions["n1"], node("n1", memory_gb=128)))
    world.pass_time(2)
    assert world.phases() == ["ready"]
    assert world.state.refusals == {}


def test_surplus_replicas_are_drained_and_the_rest_untouched() -> None:
    world = running(3, ("n1", "n2"))
    world.tell(h.CatalogChanged(one_model(1)))
    world.pass_time(5)
    assert world.phases() == ["ready"]
    assert len(set(world.stopped())) == 2


@pytest.mark.parametrize("mark", [Mark.CORDONED, Mark.DRAINING])
def test_a_marked_node_takes_nothing_new_and_no_report_clears_the_mark(mark: Mark) -> None:
    world = World(one_model())
    world.lead()
    world.register(node("n1"))
    world.tell(h.MarkSet("n1", OperatorMark(mark, "disk swap", "ops@host")))
    world.register(node("n1"))
    world.pass_time(5)
    assert world.started() == []
    assert world.state.nodes["n1"].mark.mark is mark


def test_losing_the_lease_closes_the_agents_streams_and_ends_all_decisions() -> None:
    world = running()
    replica = only(world)
    world.tell(h.LeaseLost("10.0.0.2:8443"))
    world.crash(replica)
    world.pass_time(60)
    assert len(world.started()) == 1
    assert any(isinstance(one, h.RefuseAgent) and "10.0.0.2" in one.reason for one in world.effects)
