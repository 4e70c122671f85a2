"""The stream to the control plane: found, lost, refused, found again; engines never notice."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from llmgw.core.inventory import EngineInstall
from llmgw.wire.agent_v1 import Heartbeat, LogLines, LogRequest, NodeChanged, Refused
from tests.agent.fake_server import FakeServer
from tests.agent.node import Node, alive, free_port, spec, start


@pytest.fixture
async def second() -> AsyncIterator[FakeServer]:
    made = FakeServer()
    await made.start()
    yield made
    await made.stop()


async def test_a_registration_is_the_whole_node_and_its_identity_stays(
    server: FakeServer, node: Node
) -> None:
    async with node.agent():
        first = await server.connected()
    async with node.agent():
        again = await server.connected()
    assert first.node == node.probe.found
    assert len(first.instance_id) == 32 and first.instance_id == again.instance_id
    assert first.cluster_id is None and again.cluster_id == "c1"
    assert first.boot_id


async def test_heartbeats_come_at_the_pace_the_server_asked_for(server: FakeServer, node: Node) -> None:
    server.welcome = msgspec.structs.replace(server.welcome, heartbeat_s=0.2)
    async with node.agent():
        await server.registered()
        first = await server.hear(Heartbeat)
        assert first.memory_available_bytes == 1000 and first.ports_in_use == ()
        began = asyncio.get_running_loop().time()
        for _ in range(3):
            await server.hear(Heartbeat)
        assert 0.4 < asyncio.get_running_loop().time() - began < 2.0


async def test_a_lost_stream_leaves_engines_alone_and_is_found_again(server: FakeServer, node: Node) -> None:
    wanted = spec(free_port(), engine="sim")
    async with node.agent():
        await server.registered()
        await server.say(start(wanted))
        ready = await server.phase("ready")
        address = server.address
        await server.stop()
        assert ready.pid is not None and alive(ready.pid)
        await server.start(address)
        again = await server.registered()
        (shard,) = again.shards
        assert (shard.pid, shard.phase) == (ready.pid, "ready")
        assert again.cluster_id == "c1" and again.highest_term == 1
        assert len(server.streams) == 2


async def test_what_happened_while_disconnected_is_in_the_next_registration(
    server: FakeServer, node: Node
) -> None:
    wanted = spec(free_port(), engine="sim", args={"startup": 1.0})
    async with node.agent():
        await server.registered()
        await server.say(start(wanted))
        await server.phase("starting")
        address = server.address
        await server.stop()
        await asyncio.sleep(2.5)
        await server.start(address)
        (shard,) = (await server.registered()).shards
        assert shard.phase == "ready"


async def test_a_refusing_server_is_heard_and_the_next_one_tried(
    server: FakeServer, second: FakeServer, node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    server.refusal = Refused("this server does not lead")
    node.servers = (server.address, second.address)
    with caplog.at_level(logging.WARNING):
        async with node.agent():
            await second.registered()
    assert f"not connected to {server.address}: this server does not lead" in caplog.text


async def test_a_standby_that_names_the_leader_is_believed(
    server: FakeServer, second: FakeServer, node: Node
) -> None:
    server.refusal = Refused("this server does not lead", leader=second.address)
    async with node.agent():
        await second.registered()


async def test_every_address_is_tried_before_any_waiting(server: FakeServer, node: Node) -> None:
    nobody = [f"127.0.0.1:{free_port()}" for _ in range(3)]
    node.servers = (*nobody, server.address)
    node.timings = msgspec.structs.replace(node.timings, reconnect_first=30.0, reconnect_cap=30.0)
    async with node.agent():
        await server.registered()


async def test_a_host_that_never_answers_is_given_up_in_time(server: FakeServer, node: Node) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        node.servers = (f"127.0.0.1:{silent.getsockname()[1]}", server.address)
        node.timings = msgspec.structs.replace(node.timings, dial=0.3)
        async with node.agent():
            await server.registered()


async def test_a_server_of_another_cluster_is_not_obeyed(
    server: FakeServer, node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    async with node.agent():
        await server.connected()
    server.welcome = msgspec.structs.replace(server.welcome, cluster_id="c2")
    with caplog.at_level(logging.WARNING):
        async with node.agent():
            await server.registered()
            await server.registered()
    assert "belongs to cluster c1, the server to c2" in caplog.text
    assert "--forget-cluster" in caplog.text


async def test_messages_of_another_version_are_passed_over(
    server: FakeServer, node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = spec(free_port(), engine="sim")
    with caplog.at_level(logging.WARNING):
        async with node.agent():
            await server.registered()
            for _ in range(3):
                await server.say_bytes(b'{"type":"from_the_future","x":1}')
            await server.say_bytes(b"{torn")
            await server.say_bytes(b'{"type":"start_shard","term":"seven"}')
            await server.say(start(wanted))
            await server.phase("ready")
    assert caplog.text.count("from_the_future") == 1


async def test_a_lasting_change_of_the_node_is_told_and_a_passing_one_is_not(
    server: FakeServer, node: Node
) -> None:
    node.timings = msgspec.structs.replace(node.timings, look=0.1)
    async with node.agent():
        await server.registered()
        node.probe.found = msgspec.structs.replace(node.probe.found, memory_available_bytes=5)
        await asyncio.sleep(0.3)
        assert not [m for m in server.heard if isinstance(m, NodeChanged)]
        engines = {**(node.probe.found.engines or {}), "vllm": EngineInstall("vllm", path="/x")}
        node.probe.found = msgspec.structs.replace(node.probe.found, engines=engines)
        changed = await server.hear(NodeChanged)
        assert changed.node.engines is not None and "vllm" in changed.node.engines


async def test_a_log_nobody_wrote_is_said_to_be_missing(server: FakeServer, node: Node) -> None:
    async with node.agent():
        await server.registered()
        await server.say(LogRequest("r", "nobody-1"))
        answer = await server.hear(LogLines)
        assert answer.last and answer.error is not None and "nobody-1" in answer.error


async def test_the_state_directory_holds_no_secret_others_can_read(server: FakeServer, node: Node) -> None:
    async with node.agent():
        await server.registered()
        await server.say(start(spec(free_port(), engine="sim")))
        await server.phase("ready")
        assert readable_by_others(node.state) == []


def readable_by_others(folder: Path) -> list[str]:
    return [str(path) for path in (folder, *folder.rglob("*")) if path.stat().st_mode & 0o077]
