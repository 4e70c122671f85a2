"""A whole installation whose store is a PostgreSQL server: it serves, it is watched, its database breaks.

One installation for all tests; each leaves it as it found it.
"""

import json
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ran_on, running_cluster
from tests.e2e.cluster import NODE, Cluster, sim_model
from tests.e2e.installation import alive, free_port, until
from tests.support.postgres import PASSWORD, PostgresCluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


class OnPostgres(Cluster):
    """A cluster whose store is a database of a server."""

    def __init__(self, folder: Path, postgres: PostgresCluster) -> None:
        super().__init__(folder)
        self.postgres = postgres
        self.database = postgres.database()
        self.asked = 0  # requests answered

    def configure(self, *models: Mapping[str, Any]) -> None:
        super().configure(*models)
        written = json.loads(self.server_yaml.read_text())
        self.server_yaml.write_text(json.dumps(written | {"store": self.postgres.url(self.database)}))

    def second_server(self) -> None:
        """Another server on the same database, with addresses and a folder of its own."""
        written = json.loads(self.server_yaml.read_text())
        for listener in ("clients", "admin", "agents"):
            written[listener] = {"listen": f"127.0.0.1:{free_port()}"}
        path = self.folder / "second.yaml"
        path.write_text(json.dumps(written | {"state_dir": str(self.folder / "second")}))
        self._start("second", "server", "-c", str(path))

    def ask(self) -> str:
        """One request; what was wrong with its answer."""
        wrong = self.serves("m", stream=self.asked % 2 == 0)
        self.asked += not wrong
        return wrong

    def served(self) -> None:
        """Wait until a request is answered."""
        until("requests are answered", lambda: self.ask() == "")

    def usage_rows(self) -> int:
        """Requests in the store."""
        return int(self.postgres.sql("SELECT count(*) FROM usage", database=self.database))

    @contextmanager
    def traffic(self) -> Iterator[list[str]]:
        """A client that asks without pause; yields what went wrong so far."""
        wrong: list[str] = []
        ending = threading.Event()

        def ask() -> None:
            while not ending.is_set():
                said = self.ask()
                wrong.extend([said] if said else [])

        thread = threading.Thread(target=ask)
        thread.start()
        try:
            yield wrong
        finally:
            ending.set()
            thread.join()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnPostgres]:
    for postgres in running_cluster():
        made = OnPostgres(tmp_path_factory.mktemp("postgresql"), postgres)
        made.configure(sim_model("m"))
        try:
            made.up()
            made.served()
            yield made
        finally:
            print(made.log("server")[-6000:])
            made.destroy()


@pytest.fixture(autouse=True)
def counted(request: pytest.FixtureRequest) -> None:
    ran_on(request, "postgresql")


def all_stored(cluster: OnPostgres) -> None:
    """Every request that was answered is in the store, once."""
    asked = cluster.asked
    until(f"{asked} requests are stored", lambda: cluster.usage_rows() >= asked)
    assert cluster.usage_rows() == asked


def test_requests_are_counted_and_the_database_is_found_whole(cluster: OnPostgres) -> None:
    assert [cluster.ask() for _ in range(4)] == [""] * 4
    all_stored(cluster)
    checked = cluster._llmgw("db", "--config", str(cluster.server_yaml), "check")
    assert (checked.returncode, checked.stderr) == (0, "")


def test_a_key_made_and_disabled_in_the_store_reaches_the_routers(cluster: OnPostgres) -> None:
    config = ("--config", str(cluster.server_yaml))
    made = json.loads(cluster._llmgw("keys", *config, "key", "create", "--name", "x", "--json").stdout)
    mine, cluster._key = cluster._key, made["key"]
    try:
        until("the new key is let in", lambda: cluster.ask() == "")
        assert cluster._llmgw("keys", *config, "key", "disable", made["id"]).returncode == 0
        until("the disabled key is kept out", lambda: cluster.ask().startswith("401"))
    finally:
        cluster._key = mine
    assert cluster.ask() == ""


def test_a_second_server_is_refused_naming_the_first_which_goes_on(cluster: OnPostgres) -> None:
    cluster.second_server()
    assert cluster.wait("second") == 1
    said = cluster.log("second").splitlines()[-1]
    assert said.startswith(f"llmgw: store: pid {cluster.pid('server')} at {os.uname().nodename}:")
    assert said.endswith("is a running llmgw server on the same database; stop it first")
    assert cluster.ask() == ""


def test_a_server_killed_and_started_again_leads_when_the_lease_has_expired(cluster: OnPostgres) -> None:
    before = cluster.replicas()
    cluster.kill("server")
    assert cluster.ask() == "", "its routers go on"
    cluster.start_server()
    cluster.collect()
    until("the server hears its node again", cluster.hears_node)
    until("its replica is ready again", lambda: _ready(cluster) == 1)
    assert "waiting for the lease of pid" in cluster.log("server")
    after = cluster.replicas()
    assert before is not None
    assert after is not None
    assert [one["shards"][0]["pid"] for one in after] == [one["shards"][0]["pid"] for one in before]
    cluster.served()


def _ready(cluster: Cluster) -> int:
    return sum(one["state"] == "ready" for one in cluster.replicas() or ())


def test_a_database_that_stalls_longer_than_the_lease_fails_no_request(cluster: OnPostgres) -> None:
    pids = [process.pid for process in cluster.engines()]
    with cluster.traffic() as wrong:
        with cluster.postgres.frozen():
            until("the trouble is logged", lambda: "the store does not answer" in cluster.log("server"))
            renewals = cluster.log("server").count("could not be renewed")
            until(
                "the lease has run out and is kept",
                lambda: cluster.log("server").count("could not be renewed") >= renewals + 3,
            )
            assert cluster.ctl("status").returncode == 0
            assert _ready(cluster) == 1
        until("the trouble is over", lambda: "the store answers again" in cluster.log("server"))
    assert wrong == []
    assert [process.pid for process in cluster.engines()] == pids
    all_stored(cluster)


def test_a_database_that_dies_and_returns_fails_no_request_and_an_engine_is_replaced_meanwhile(
    cluster: OnPostgres,
) -> None:
    again = cluster.log("server").count("the store answers again")
    cluster.postgres.kill()
    try:
        until("the trouble is logged", lambda: "Connection refused" in cluster.log("server"))
        (engine,) = cluster.engines()
        os.kill(engine.pid, signal.SIGKILL)
        until("the engine is replaced", lambda: _ready(cluster) == 1 and not alive(engine.pid))
        cluster.served()
    finally:
        cluster.postgres.start()
    until("the trouble is over", lambda: cluster.log("server").count("the store answers again") > again)
    until("what was decided meanwhile is in the store", lambda: "replica_failed" in _kinds(cluster))
    assert cluster.ask() == ""


def _kinds(cluster: OnPostgres) -> str:
    return cluster.postgres.sql("SELECT DISTINCT kind FROM events", database=cluster.database)


def test_a_server_stops_while_its_database_is_frozen_and_starts_when_it_is_back(cluster: OnPostgres) -> None:
    with cluster.postgres.frozen():
        cluster.stop("server", limit_s=30.0)
        cluster.start_server()
        assert cluster.wait("server") == 1
        assert "cannot connect" in cluster.log("server").splitlines()[-1]
    cluster.start_server()
    until("the server hears its node again", cluster.hears_node)
    cluster.served()


def test_the_password_is_nowhere_but_in_the_servers_file(cluster: OnPostgres) -> None:
    secret = PASSWORD.encode()
    escaped = cluster.postgres.url("").partition("//llmgw:")[2].partition("@")[0].encode()
    for text in (secret, escaped):
        for process in cluster.processes():
            for part in ("cmdline", "environ"):
                assert text not in Path(f"/proc/{process.pid}/{part}").read_bytes()
        holding = [
            path.name for path in cluster.folder.rglob("*") if path.is_file() and text in path.read_bytes()
        ]
        assert set(holding) <= {"server.yaml", "second.yaml"}
    assert cluster.log(NODE)


def test_no_trouble_with_the_database_was_a_traceback(cluster: OnPostgres) -> None:
    assert "the store does not answer" in cluster.log("server")
    assert "Traceback" not in cluster.log("server")
