"""The books: which stream speaks for a node, and what an agent that comes back must be told again."""

from llmgw.core import happenings as h
from llmgw.core.fleet_books import Books
from llmgw.core.fleet_state import AgentLink
from llmgw.core.replica import Course, ShardPhase
from tests.core.makers import catalog, node, report
from tests.core.obedient import SETTINGS
from tests.core.replicas import on, ready, replica

P = ShardPhase


def books() -> Books:
    made = Books(SETTINGS, catalog())
    made.term = 3
    made.nodes["n1"] = node(report("n1"))
    made.bind("n1", AgentLink(1, "instance"), 10.0)
    return made


def test_the_newest_stream_speaks_for_its_node_and_an_older_one_for_nobody() -> None:
    kept = books()
    kept.bind("n1", AgentLink(2, "instance"), 11.0)
    assert kept.hear(1, 12.0) is None
    heard = kept.hear(2, 12.0)
    assert heard is not None
    assert heard.last_heard == 12.0
    assert kept.unbind(1, 13.0) is None
    assert kept.unbind(2, 13.0) == "n1"
    assert kept.connected == set()


def test_a_start_that_may_have_been_lost_and_a_stop_not_yet_obeyed_are_repeated() -> None:
    kept = books()
    starting, stopping = replica(P.ASSIGNED, id="a"), on(ready(id="b"), Course.STOP)
    running, elsewhere = ready(id="c"), replica(P.ASSIGNED, id="d", nodes=("n2",))
    for one in (starting, stopping, running, elsewhere):
        kept.replicas[one.id] = one
    start, stop = kept.repeated_commands("n1")
    assert start == h.StartShard(1, 3, starting, starting.shards[0])
    assert stop == h.StopShard(1, 3, stopping.shard_id(stopping.shards[0]), "a reason")


def test_an_adopted_replica_is_never_started_from_our_side() -> None:
    kept = books()
    adopted = replica(P.ASSIGNED, adopted=True)
    kept.replicas[adopted.id] = adopted
    assert kept.repeated_commands("n1") == []


def test_nothing_is_commanded_by_a_server_that_does_not_lead_or_to_a_node_that_is_away() -> None:
    kept = books()
    starting = replica(P.ASSIGNED)
    kept.term = None
    assert kept.start_command(starting, starting.shards[0]) == []
    kept.term = 4
    kept.unbind(1, 11.0)
    assert kept.start_command(starting, starting.shards[0]) == []


def test_streams_that_are_closed_are_told_why_and_speak_for_nobody() -> None:
    kept = books()
    assert kept.close_links({"n1", "n9"}, "because", 11.0) == [h.RefuseAgent(1, "because")]
    assert kept.hear(1, 12.0) is None
