"""SIGTERM to each role and to `up`: what must go goes, what must stay stays, nothing is left behind."""

import os
import signal
from pathlib import Path

import pytest

from tests.e2e.installation import Installation, alive, until
from tests.e2e.test_kills import another, engine_processes, must_be, only_engine

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_up_stops_everything_it_started(installation: Installation, signum: int) -> None:
    before = installation.processes()
    assert len(before) >= 5, before  # up, server, router, agent, engine
    assert installation.stop(signum) == 0
    assert installation.processes() == {}


def test_a_killed_up_takes_its_processes_with_it(installation: Installation) -> None:
    assert installation.up is not None
    installation.up.kill()
    installation.up.wait()
    until("nothing is left", lambda: not installation.processes(), limit_s=30)


def test_a_second_run_reuses_the_data_and_the_key_is_not_shown_again(installation: Installation) -> None:
    key = installation.key()
    installation.stop()
    first_output = installation.output.read_text()
    installation.start()
    assert installation.key() == key
    assert key not in installation.output.read_text()[len(first_output) :]
    status, _ = installation.chat(installation.model())
    assert status == 200


def test_a_server_told_to_stop_stops_its_routers_and_leaves_engines(installation: Installation) -> None:
    engine = only_engine(installation)
    server, router = must_be(installation, "server"), must_be(installation, "router")
    os.kill(server, signal.SIGTERM)
    until("server and router end", lambda: not alive(server) and not alive(router), limit_s=30)
    assert alive(engine)
    another(installation, "server", server)  # `up` brings it back
    until("the replica is adopted", installation.ready_replicas)
    assert only_engine(installation) == engine


def test_a_router_told_to_stop_is_replaced(installation: Installation) -> None:
    router = must_be(installation, "router")
    os.kill(router, signal.SIGTERM)
    another(installation, "router", router)
    until("it serves again", lambda: serves(installation))


def test_the_data_folder_holds_secrets_for_the_owner_only(shared_installation: Installation) -> None:
    for name in ("first-key", "admin-token"):
        path = next(shared_installation.data.rglob(name))
        assert path.stat().st_mode & 0o777 == 0o600, path


def test_engines_are_gone_with_up_and_their_port_is_free(installation: Installation) -> None:
    engine = only_engine(installation)
    assert engine_processes(installation) == [engine]
    installation.stop()
    assert not Path(f"/proc/{engine}").exists()


def serves(installation: Installation) -> bool:
    try:
        return installation.chat("tiny")[0] == 200
    except OSError:
        return False
