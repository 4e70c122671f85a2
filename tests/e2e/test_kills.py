"""`kill -9` of each process of a running installation, with a client asking all the while."""

import os
import signal

import pytest

from tests.e2e.installation import Installation, Traffic, alive, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


def only_engine(installation: Installation) -> int:
    engines = until("an engine is reported", installation.engines)
    assert len(engines) == 1
    return engines[0]


def engine_processes(installation: Installation) -> list[int]:
    """Live engine processes of this installation, whatever anybody reports."""
    return [
        pid
        for pid, command in installation.processes().items()
        if "llamacpp_wheel" in command or command.split()[0].endswith("llama-server")
    ]


def another(installation: Installation, verb: str, old: int) -> int:
    """The pid of the process that took the place of `old`."""

    def look() -> int | None:
        pid = installation.role(verb)
        return pid if pid != old else None

    return until(f"a new {verb} process", look)


def must_be(installation: Installation, verb: str) -> int:
    pid = installation.role(verb)
    assert pid is not None, f"no single {verb} process: {installation.processes()}"
    return pid


def test_a_killed_agent_leaves_its_engine_serving_and_the_next_one_adopts_it(
    installation: Installation,
) -> None:
    engine, agent = only_engine(installation), must_be(installation, "agent")
    with Traffic(installation, installation.model()).running() as traffic:
        traffic.seen_good(3)
        os.kill(agent, signal.SIGKILL)
        traffic.seen_good(5)
        another(installation, "agent", agent)
        until("the node is back", lambda: [n for n in installation.ctl("nodes") if (n["heard_s"] or 99) < 2])
        traffic.seen_good(5)
        assert only_engine(installation) == engine
        assert engine_processes(installation) == [engine]
    assert not traffic.bad
    assert [replica["state"] for replica in installation.replicas()] == ["ready"]


def test_routers_serve_while_the_server_is_dead_and_the_replica_is_adopted(
    installation: Installation,
) -> None:
    engine, server = only_engine(installation), must_be(installation, "server")
    router = must_be(installation, "router")
    before = installation.replicas()[0]["id"]
    with Traffic(installation, installation.model()).running() as traffic:
        traffic.seen_good(3)
        os.kill(server, signal.SIGKILL)
        traffic.seen_good(5)
        another(installation, "server", server)
        adopted = until("the replica is adopted", installation.ready_replicas)
        traffic.seen_good(5)
    assert not traffic.bad
    assert [replica["id"] for replica in adopted] == [before]
    assert only_engine(installation) == engine
    assert engine_processes(installation) == [engine]
    assert must_be(installation, "router") == router, "the router outlives its server"
    placed = [event for event in installation.ctl("events") if event["kind"] == "placed"]
    assert len(placed) == 1, placed


def test_a_killed_router_is_replaced_at_once(installation: Installation) -> None:
    engine, router = only_engine(installation), must_be(installation, "router")
    model = installation.model()
    with Traffic(installation, model).running() as traffic:
        traffic.seen_good(3)
        os.kill(router, signal.SIGKILL)
        another(installation, "router", router)
        traffic.seen_good(5)
    assert only_engine(installation) == engine
    status, _ = installation.chat(model)
    assert status == 200


def test_a_killed_engine_is_seen_and_rebuilt_without_hands(installation: Installation) -> None:
    engine = only_engine(installation)
    model = installation.model()
    with Traffic(installation, model).running() as traffic:
        traffic.seen_good(3)
        os.kill(engine, signal.SIGKILL)
        until("the failure is reported", lambda: "ready" not in states(installation), limit_s=5)
        fresh = until("another engine is ready", lambda: fresh_engine(installation, engine))
        traffic.seen_good(5)
    assert engine_processes(installation) == [fresh]
    assert not alive(engine)
    assert any("failed" in event["kind"] for event in installation.ctl("events"))


def states(installation: Installation) -> list[str]:
    return [replica["state"] for replica in installation.replicas()]


def fresh_engine(installation: Installation, old: int) -> int | None:
    ready = [shard["pid"] for replica in installation.ready_replicas() for shard in replica["shards"]]
    return next((pid for pid in ready if pid and pid != old), None)
