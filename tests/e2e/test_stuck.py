"""What hangs, falls silent or comes back late: every wait has an end that says what was waited for."""

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import NODE, Cluster, sim_model
from tests.e2e.installation import Traffic, alive, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster that calls a node unreachable, and lost, within seconds."""
    limits = {"unreachable_after": "6s", "lost_after": "8s", "drain_grace": "2s"}
    one = Cluster(tmp_path, limits)
    try:
        yield one
    finally:
        print(one.log("server")[-6000:], one.log(NODE)[-3000:])
        one.destroy()


def ready(cluster: Cluster, model: str = "m") -> dict[str, Any]:
    """The one replica of a model, once it is ready and the router serves it."""

    def look() -> dict[str, Any] | None:
        rows = [row for row in cluster.replicas() or () if row["model"] == model]
        return rows[0] if [row["state"] for row in rows] == ["ready"] else None

    row = until(f"{model} is ready", look)
    until(f"{model} answers", lambda: not cluster.serves(model))
    return row


def kinds(cluster: Cluster) -> list[str]:
    """What was decided, oldest first."""
    return [event["kind"] for event in reversed(cluster.events())]


def nothing_left(cluster: Cluster) -> bool:
    """No engine, port, claim, record or replica."""
    node = cluster.node()
    return (
        node.get("memory_claimed_bytes") == 0
        and cluster.replicas() == []
        and not cluster.engines()
        and not cluster.engine_ports_in_use()
        and not list(cluster.agent_state().glob("shard-*"))
    )


def test_an_engine_that_pauses_for_a_moment_is_not_given_up(cluster: Cluster) -> None:
    cluster.configure(sim_model("m"))
    cluster.up()
    engine = ready(cluster)["shards"][0]["pid"]
    os.kill(engine, signal.SIGSTOP)
    time.sleep(6)  # some health questions are missed, fewer than mean its end
    os.kill(engine, signal.SIGCONT)
    assert ready(cluster)["shards"][0]["pid"] == engine
    assert "replica_failed" not in kinds(cluster)


def test_an_order_its_agent_never_reads_fails_by_the_start_timeout_and_leaves_nothing(
    cluster: Cluster,
) -> None:
    cluster.configure()
    cluster.up()
    cluster.stop("server")
    cluster.configure(sim_model("m", startup_timeout="2s"))
    cluster.start_server()
    placed = "the order is on its way"
    until(placed, lambda: [r for r in cluster.replicas() or () if r["model"] == "m"], limit_s=20)
    os.kill(cluster.pid(NODE), signal.SIGSTOP)
    for engine in cluster.engines():  # the agent may have read it after all: then its engine hangs
        os.kill(engine.pid, signal.SIGSTOP)
    failed = until("it fails", lambda: [e for e in cluster.events() if e["kind"] == "replica_failed"])
    assert "startup_timeout" in failed[0]["text"] and "rank 0" in failed[0]["text"]
    os.kill(cluster.pid(NODE), signal.SIGCONT)
    row = ready(cluster)
    assert [engine.shard for engine in cluster.engines()] == [f"{row['id']}/0"]


def test_a_node_that_sleeps_keeps_its_replica_until_it_is_lost_and_gets_it_back(cluster: Cluster) -> None:
    cluster.configure(sim_model("m"))
    cluster.up()
    before = ready(cluster)
    with Traffic(cluster, "m").running() as traffic:
        os.kill(cluster.pid(NODE), signal.SIGSTOP)
        until("the node is unreachable", lambda: cluster.node()["state"] == "unreachable")
        traffic.seen_good(3)
        assert ready(cluster)["id"] == before["id"], "nobody said that the engine is gone"
        until("the node is lost", lambda: cluster.node()["state"] == "lost")
        os.kill(cluster.pid(NODE), signal.SIGCONT)
        until("the replica is back", lambda: ready(cluster)["id"] == before["id"])
        traffic.seen_good(3)
    assert [engine.pid for engine in cluster.engines()] == [before["shards"][0]["pid"]]
    assert "replica_failed" not in kinds(cluster)


def test_a_stuck_request_holds_a_drain_no_longer_than_its_grace_and_the_cut_is_told(cluster: Cluster) -> None:
    cluster.configure(sim_model("m", args={"hang-after": 2}))
    cluster.up()
    ready(cluster)  # its first request was answered
    cut: list[str] = []
    client = threading.Thread(target=lambda: cut.append(cluster.serves("m")))
    client.start()
    until("it is in flight", lambda: (cluster.replicas() or [{}])[0].get("in_flight"))
    cluster.kill("server")
    cluster.configure()
    cluster.start_server()
    until("nothing is left", lambda: nothing_left(cluster), limit_s=30)
    stopping = next(event for event in cluster.events() if event["kind"] == "replica_stopping")
    assert stopping["text"] == "drain_grace 2s is over, 1 requests cut"
    client.join()
    assert cut != [""]


def test_what_is_stopped_while_its_node_is_away_is_stopped_when_it_returns(cluster: Cluster) -> None:
    cluster.configure(sim_model("m"))
    cluster.up()
    engine = ready(cluster)["shards"][0]["pid"]
    cluster.kill(NODE)
    cluster.stop("server")
    cluster.configure()
    cluster.start_server()
    until("the server leads", lambda: (cluster.status() or {}).get("leading"))
    assert alive(engine)
    cluster.start_agent(NODE)
    until("nothing is left", lambda: nothing_left(cluster))
    assert not alive(engine)


def test_server_and_agent_killed_together_find_the_engine_serving_and_keep_it(cluster: Cluster) -> None:
    cluster.configure(sim_model("m"))
    cluster.up()
    before = ready(cluster)
    with Traffic(cluster, "m").running() as traffic:
        traffic.seen_good(2)
        cluster.kill("server")
        cluster.kill(NODE)
        traffic.seen_good(2)
        cluster.start_server()
        cluster.start_agent(NODE)
        assert ready(cluster)["id"] == before["id"]
        traffic.seen_good(2)
    assert not traffic.bad
    assert [engine.pid for engine in cluster.engines()] == [before["shards"][0]["pid"]]
    assert kinds(cluster).count("placed") == 1


def test_an_engine_that_died_while_nobody_watched_is_told_with_its_reason(cluster: Cluster) -> None:
    cluster.configure(sim_model("m"))
    cluster.up()
    engine = ready(cluster)["shards"][0]["pid"]
    cluster.kill("server")
    cluster.kill(NODE)
    os.kill(engine, signal.SIGKILL)
    cluster.start_server()
    cluster.start_agent(NODE)
    failed = until("it is told", lambda: [e for e in cluster.events() if e["kind"] == "replica_failed"])
    assert "ended while it was wanted" in failed[0]["text"]
    listed = json.loads(cluster.ctl("replicas", "--json").stdout)
    assert [(row["state"], row["reason"] is not None) for row in listed] == [("failed", True)]
    assert ready(cluster)["shards"][0]["pid"] != engine


def test_a_stranger_on_an_engines_port_is_left_alone_and_passed_by(cluster: Cluster) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        held.listen()
        cluster.engine_ports = range(port, port + 2)
        cluster.configure(sim_model("m"))
        cluster.up()
        until("m is ready", lambda: cluster.model("m").get("ready"))
        assert ready(cluster)["url"].endswith(f":{port + 1}")
