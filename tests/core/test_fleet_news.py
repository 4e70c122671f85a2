"""News that comes late, twice, or to a server that just began or ceased to lead."""

import msgspec

from llmgw.core import happenings as h
from llmgw.core.replica import ShardPhase
from tests.core.makers import catalog
from tests.core.obedient import World, node
from tests.core.replicas import stranger
from tests.core.test_fleet import one_model, only, running

P = ShardPhase


def records(world: World, kind: str) -> list[str]:
    return [one.text for one in world.effects if isinstance(one, h.Record) and one.kind == kind]


# ---------------------------------------------------------------- commands that may be lost


def test_a_start_that_was_lost_with_its_stream_is_sent_again_when_the_agent_is_back() -> None:
    world = World(one_model())
    world.lead()
    world.obeys = lambda _: False  # the command never arrives
    world.register(node("n1"))
    world.pass_time(2)
    first = only(world)
    world.leave("n1")
    world.obeys = lambda _: True
    world.register(node("n1"))
    assert world.started() == [first.id, first.id]
    world.pass_time(2)
    assert world.phases() == ["ready"]
    assert only(world).id == first.id


def test_a_stop_decided_while_the_node_was_away_is_told_when_it_is_back() -> None:
    world = running()
    replica = only(world)
    world.leave("n1")
    world.tell(h.CatalogChanged(catalog()))
    world.pass_time(5)
    assert world.stopped() == []
    assert world.phases() == ["stopping"], "it may still run, so its claims are held"
    world.register(node("n1"))
    world.pass_time(2)
    assert world.stopped() == [replica.id]
    assert world.state.replicas == {}


def test_agents_that_refused_an_older_term_are_told_again_under_the_new_one() -> None:
    world = World(one_model())
    world.lead()
    world.obeys = lambda _: False
    world.register(node("n1"))
    world.pass_time(2)
    world.tell(h.CommandRefused(world.sessions["n1"], "term 1 is older than 7", 7))
    assert h.RaiseTerm(7) in world.effects
    world.obeys = lambda _: True
    world.tell(h.TermRaised(8))
    assert [one.term for one in world.effects if isinstance(one, h.StartShard)] == [1, 8]
    assert world.published() == {only(world).id}


def test_an_end_nobody_here_waits_for_is_noted_so_that_the_agent_may_forget_it() -> None:
    world = running()
    stray = stranger(P.GONE)
    world.tell(h.ShardReported(world.sessions["n1"], stray))
    assert h.ForgetShard(world.sessions["n1"], 1, stray.id) in world.effects


def test_a_late_failure_of_an_older_incarnation_changes_nothing() -> None:
    world = running()
    replica = only(world)
    report = world.shards["n1"][replica.shard_id(replica.shards[0])]
    older = msgspec.structs.replace(
        report, id=msgspec.structs.replace(report.id, generation=0), phase=P.FAILED
    )
    world.tell(h.ShardReported(world.sessions["n1"], older))
    world.pass_time(5)
    assert only(world) == replica


def test_a_node_that_fell_silent_on_an_open_stream_is_made_to_report_anew() -> None:
    world = running(1, ("n1", "n2"))
    home = only(world).shards[0].node
    session = world.sessions.pop(home)  # no heartbeat comes, and no end of the stream either
    world.pass_time(125)
    assert any(isinstance(one, h.RefuseAgent) and one.session == session for one in world.effects)
    assert home not in world.state.links


# ---------------------------------------------------------------- leading


def test_settling_is_paid_once_a_node_that_leaves_later_does_not_bring_it_back() -> None:
    world = World(one_model())
    world.lead("n1", "n2")
    for name in ("n1", "n2"):
        world.register(node(name))
    world.pass_time(2)
    replica = only(world)
    other = "n2" if replica.shards[0].node == "n1" else "n1"
    world.leave(other)
    world.crash(replica)
    world.pass_time(10)
    assert world.phases() == ["ready"]


def test_a_new_term_has_everybody_report_anew() -> None:
    world = running()
    session = world.sessions["n1"]
    world.tell(h.LeaseTaken("cluster-1", 5, {}))
    assert any(isinstance(one, h.RefuseAgent) and one.session == session for one in world.effects)
    assert world.state.links == {}
    world.register(node("n1"))
    world.pass_time(2)
    assert world.phases() == ["ready"]
    assert world.stopped() == []


def test_routers_keep_what_they_have_from_a_server_that_ceased_to_lead() -> None:
    world = running()
    replica = only(world)
    world.tell(h.LeaseLost("10.0.0.2:8443"))
    before = len(world.effects)
    world.crash(replica)
    world.tell(h.KeysChanged())
    world.pass_time(30)
    assert not any(isinstance(one, h.Publish) for one in world.effects[before:])


def test_nothing_is_published_before_leading() -> None:
    world = World(one_model())
    world.tell(h.KeysChanged())
    world.tell(h.CatalogChanged(one_model(2)))
    world.pass_time(5)
    assert world.effects == [h.Record("catalog_changed", "1 models")]


def test_the_end_of_settling_is_published_so_that_waiting_routers_are_told() -> None:
    world = World(one_model())
    world.lead("n1", "n2")
    world.join_router()
    world.pass_time(1)
    before = world.state.revision
    world.pass_time(60)
    assert world.state.settling_left_s == 0
    assert world.state.revision == before + 1


def test_a_change_of_keys_moves_the_revision_and_a_tick_does_not() -> None:
    world = running()
    before = world.state.revision
    world.tell(h.KeysChanged())
    world.tell(h.Ticked())
    assert world.state.revision == before + 1
    world.pass_time(5)
    assert world.state.revision == before + 1


# ---------------------------------------------------------------- what operators read


def test_a_lost_replica_that_returns_is_an_event() -> None:
    world = running(1, ("n1", "n2"))
    replica = only(world)
    home = replica.shards[0].node
    world.leave(home)
    world.pass_time(125)
    assert records(world, "replica_lost") == [f"nothing heard from {home}"]
    world.register(node(home))
    assert records(world, "replica_returned") == [f"{home} is back with it, ready"]


def test_a_replicas_life_is_told_once_each_step() -> None:
    world = running()
    world.crash(only(world))
    world.pass_time(10)
    kinds = [kind for kind in world.kinds() if kind.startswith(("placed", "replica_"))]
    assert kinds == [
        *("placed", "replica_ready", "replica_failed", "replica_gone"),
        *("placed", "replica_ready"),
    ]


def test_a_mass_silence_is_said_once_when_it_begins_and_once_when_it_ends() -> None:
    names = ("n1", "n2", "n3", "n4")
    world = running(4, names)
    for name in names[:3]:
        world.leave(name)
    world.pass_time(300)
    assert world.phases() == ["ready"] * 4
    assert len(records(world, "expiry_frozen")) == 1
    for name in names[:3]:
        world.register(node(name))
    world.pass_time(5)
    assert len(records(world, "expiry_resumed")) == 1
    assert world.phases() == ["ready"] * 4


def test_more_memory_is_an_event_with_both_values_and_the_models_that_fit_now() -> None:
    world = World(one_model(min_memory_gb=100))
    world.lead()
    world.register(node("n1", memory_gb=64))
    world.pass_time(2)
    world.tell(h.AgentHeard(world.sessions["n1"], memory_total_bytes=128 * 10**9))
    assert records(world, "node_changed") == ["memory was 64 GB, is 128 GB; m fits now"]
    world.pass_time(2)
    assert world.phases() == ["ready"], "without a restart of the agent"


def test_an_engine_that_appears_makes_a_node_a_candidate() -> None:
    world = World(one_model())
    world.lead()
    world.register(msgspec.structs.replace(node("n1"), engines={}))
    world.pass_time(2)
    world.tell(h.NodeRedescribed(world.sessions["n1"], node("n1")))
    assert records(world, "node_changed") == ["engines were none, are sim; m fits now"]
    world.pass_time(2)
    assert world.phases() == ["ready"]


def test_heartbeats_keep_what_they_do_not_speak_of() -> None:
    world = running()
    world.tell(h.AgentHeard(world.sessions["n1"], memory_available_bytes=5))
    report = world.state.nodes["n1"].report
    assert report is not None
    assert (report.memory_available_bytes, report.memory_total_bytes) == (5, 64 * 10**9)
