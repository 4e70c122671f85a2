"""`llmgw agent` as a process: described, ended, killed, started twice."""

import asyncio
import json
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from llmgw.agent.records import agent_marker
from llmgw.entry.agent import LOOPBACK_RETRY_S, timings_for
from llmgw.host.offloop import OffLoop
from llmgw.host.processes import LinuxProcesses
from tests.agent.fake_server import FakeServer
from tests.agent.node import alive, free_port, spec, start

AGENT = (sys.executable, "-m", "llmgw", "agent")


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    made = FakeServer()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def config(tmp_path: Path, server: FakeServer) -> AsyncIterator[Path]:
    path = tmp_path / "agent.yaml"
    weights, state = tmp_path / "weights", tmp_path / "state"
    path.write_text(f"server: {server.address}\nid: n1\nstate_dir: {state}\nweights_dir: {weights}\n")
    yield path
    processes = LinuxProcesses(OffLoop())
    for identity in await processes.marked(agent_marker("n1", str(state))):
        processes.kill(identity, signal.SIGKILL)


@asynccontextmanager
async def running(config: Path, *options: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(*AGENT, "-c", str(config), *options, stderr=PIPE)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def ended(process: Process, signum: signal.Signals) -> int:
    process.send_signal(signum)
    async with asyncio.timeout(20):
        return await process.wait()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
async def test_an_engine_outlives_its_agent_and_is_taken_over_by_the_next(
    server: FakeServer, config: Path, signum: signal.Signals
) -> None:
    async with running(config) as agent:
        await server.registered()
        await server.say(start(spec(free_port(), engine="sim")))
        ready = await server.phase("ready")
        await ended(agent, signum)
    assert ready.pid is not None and alive(ready.pid)
    async with running(config):
        (shard,) = (await server.registered()).shards
        assert (shard.pid, shard.phase) == (ready.pid, "ready")


async def test_told_to_stop_engines_it_ends_with_none_left(server: FakeServer, config: Path) -> None:
    async with running(config, "--stop-engines") as agent:
        await server.registered()
        await server.say(start(spec(free_port(), engine="sim")))
        ready = await server.phase("ready")
        assert await ended(agent, signal.SIGTERM) == 0
    assert ready.pid is not None and not alive(ready.pid)
    assert (await server.phase("gone")).pid == ready.pid


async def test_a_second_agent_of_one_state_directory_is_refused_in_one_line(
    server: FakeServer, config: Path
) -> None:
    async with running(config) as first:
        await server.registered()
        async with running(config) as second:
            _, said = await second.communicate()
        assert second.returncode == 1
        assert f"is used by process {first.pid}" in said.decode()
        assert "Traceback" not in said.decode()


async def test_a_node_joins_another_cluster_only_when_told_to_forget(
    server: FakeServer, config: Path
) -> None:
    async with running(config) as agent:
        await server.registered()
        await server.hear(object)
        await ended(agent, signal.SIGTERM)
    async with running(config, "--forget-cluster"):
        assert (await server.registered()).cluster_id is None


def described(*options: str) -> str:
    return subprocess.run([*AGENT, "--describe", *options], capture_output=True, text=True, check=True).stdout


def test_describing_prints_every_promised_key_as_json() -> None:
    node = json.loads(described("--json"))
    promised = {"id", "address", "labels", "memory_total_bytes", "gpus", "fabrics", "filesystems", "weights"}
    assert promised | {"engines"} <= set(node)
    assert node["engines"]["sim"]["kind"] == "sim"


def test_describing_for_people_names_everything(tmp_path: Path) -> None:
    text = described()
    for title in ("id", "address", "memory", "gpus", "fabrics  -", "engines", "disks", "weights"):
        assert any(line.startswith(title) for line in text.splitlines()), title


def test_what_is_wrong_in_the_file_is_a_line_and_not_a_traceback(tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text("server: 127.0.0.1:1\nbogus: 1\n")
    refused = subprocess.run([*AGENT, "-c", str(path)], capture_output=True, text=True, check=False)
    assert refused.returncode == 1 and "bogus" in refused.stderr and "Traceback" not in refused.stderr


def test_without_a_file_it_says_what_it_needs() -> None:
    refused = subprocess.run(AGENT, capture_output=True, text=True, check=False)
    assert refused.returncode == 1 and "-c agent.yaml" in refused.stderr


def test_a_state_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / "agent.yaml"
    path.write_text(f"server: 127.0.0.1:1\nstate_dir: {tmp_path}/file/state\n")
    refused = subprocess.run([*AGENT, "-c", str(path)], capture_output=True, text=True, check=False)
    assert refused.returncode == 1 and "state_dir" in refused.stderr and "Traceback" not in refused.stderr


def test_only_a_server_on_this_machine_is_dialled_again_at_once() -> None:
    assert timings_for(("127.0.0.1:1", "[::1]:2")).reconnect_first == LOOPBACK_RETRY_S
    assert timings_for(("127.0.0.1:1", "10.0.0.1:2")).reconnect_first == 1.0
