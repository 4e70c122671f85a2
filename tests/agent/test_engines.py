"""An agent with a real llama.cpp: started, watched, adopted, stopped."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from llmgw.core.catalog import ArgValue
from llmgw.net.http1.pool import UpstreamPool
from llmgw.ports import UpstreamRequest
from llmgw.wire.agent_v1 import ForgetShard, LogCancel, LogLines, LogRequest
from tests.agent.fake_server import FakeServer
from tests.agent.node import Node, alive, free_port, spec, start, stop

pytest.importorskip("xllamacpp")


def command_line(pid: int | None) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def beginning(model: Path) -> bytes:
    return model.read_bytes()[:100_000]


def write_line(node: Node, text: str) -> None:
    (log,) = (node.state / "logs").glob("*.log")
    with log.open("a") as file:
        file.write(text + "\n")


async def ask_models(port: int, key: str) -> int:
    pool = UpstreamPool()
    headers = ((b"authorization", b"Bearer " + key.encode()),)
    try:
        answer = await pool.fetch(
            UpstreamRequest("127.0.0.1", port, "GET", b"/v1/models", headers, b""), 65536
        )
    finally:
        await pool.aclose()
    return answer.status


async def test_a_real_engine_is_started_served_and_stopped(
    server: FakeServer, node: Node, tiny_model: Path
) -> None:
    wanted = spec(free_port(), source=str(tiny_model), context_length=2048)
    async with node.agent():
        registration = await server.registered()
        assert registration.shards == () and registration.complete
        await server.say(start(wanted))
        ready = await server.phase("ready")
        assert ready.pid is not None and alive(ready.pid)
        assert ready.claim == wanted.claim and ready.engine_key == "k-secret" and ready.fingerprint == "f1"
        assert ready.running_s is not None and ready.running_s < 20
        assert await ask_models(wanted.port, "k-secret") == 200
        assert await ask_models(wanted.port, "another") == 401
        await server.say(stop(wanted))
        gone = await server.phase("gone")
        assert not alive(ready.pid)
        assert gone.failure is None
        await server.say(ForgetShard(1, wanted.key))
    assert list(node.state.glob("shard-*")) == []


async def test_the_key_is_in_no_command_line_and_the_state_file_is_private(
    server: FakeServer, node: Node, tiny_model: Path
) -> None:
    wanted = spec(free_port(), source=str(tiny_model))
    async with node.agent():
        await server.registered()
        await server.say(start(wanted))
        ready = await server.phase("ready")
        assert "k-secret" not in command_line(ready.pid)
        (state,) = node.state.glob("shard-*")
        assert state.stat().st_mode & 0o777 == 0o600


async def test_an_engine_that_is_killed_is_reported_failed_within_a_second_with_its_log(
    server: FakeServer, node: Node, tiny_model: Path
) -> None:
    wanted = spec(free_port(), source=str(tiny_model))
    async with node.agent():
        await server.registered()
        await server.say(start(wanted))
        ready = await server.phase("ready")
        assert ready.pid is not None
        began = asyncio.get_running_loop().time()
        os.kill(ready.pid, signal.SIGKILL)
        failed = await server.phase("failed")
        assert asyncio.get_running_loop().time() - began < 1.0
        assert failed.failure == "engine_exited"
        assert failed.reason is not None and "SIGKILL" in failed.reason
        assert failed.log_tail and any("listening" in line for line in failed.log_tail)


async def test_a_new_agent_takes_over_the_engine_of_the_old_one(
    server: FakeServer, node: Node, tiny_model: Path
) -> None:
    wanted = spec(free_port(), source=str(tiny_model))
    async with node.agent():
        await server.registered()
        await server.say(start(wanted))
        ready = await server.phase("ready")
    assert ready.pid is not None and alive(ready.pid)
    assert await ask_models(wanted.port, "k-secret") == 200
    async with node.agent():
        again = await server.registered()
        (shard,) = again.shards
        assert (shard.pid, shard.start_time, shard.phase) == (ready.pid, ready.start_time, "ready")
        assert shard.claim == wanted.claim and shard.engine_key == wanted.engine_key
        assert shard.key == wanted.key and shard.term == 1
        os.kill(ready.pid, signal.SIGKILL)
        failed = await server.phase("failed")
        assert failed.reason is not None and "unknown" in failed.reason
        assert failed.log_tail


async def test_an_engine_that_died_without_an_agent_is_told_as_failed(
    server: FakeServer, node: Node, tiny_model: Path
) -> None:
    wanted = spec(free_port(), source=str(tiny_model))
    async with node.agent():
        await server.registered()
        await server.say(start(wanted))
        ready = await server.phase("ready")
    assert ready.pid is not None
    os.kill(ready.pid, signal.SIGKILL)
    async with node.agent():
        registration = await server.registered()
        (shard,) = registration.shards
        assert shard.phase in ("stopping", "failed")
        if shard.phase == "stopping":
            shard = await server.phase("failed")
        assert shard.failure == "engine_exited" and shard.log_tail


async def test_a_repeated_start_keeps_the_engine(server: FakeServer, node: Node, tiny_model: Path) -> None:
    wanted = spec(free_port(), source=str(tiny_model))
    async with node.agent():
        await server.registered()
        await server.say(start(wanted))
        ready = await server.phase("ready")
        await server.say(start(wanted))
        again = await server.phase("ready")
        assert again.pid == ready.pid


async def test_an_agent_told_to_stop_engines_leaves_none(
    server: FakeServer, node: Node, tiny_model: Path
) -> None:
    wanted = spec(free_port(), source=str(tiny_model))
    node.stop_engines = True
    async with node.agent():
        await server.registered()
        await server.say(start(wanted))
        ready = await server.phase("ready")
    assert ready.pid is not None and not alive(ready.pid)
    assert (await server.phase("gone")).key == wanted.key
    assert list(node.state.glob("shard-*")) == []


async def test_a_damaged_model_is_recognised(server: FakeServer, node: Node, tiny_model: Path) -> None:
    cut = node.state.parent / "cut.gguf"
    cut.write_bytes(beginning(tiny_model))
    async with node.agent():
        await server.registered()
        await server.say(start(spec(free_port(), source=str(cut))))
        failed = await server.phase("failed")
        assert failed.failure == "weights_bad", failed
        assert failed.reason is not None and "damaged" in failed.reason
        assert failed.log_tail


async def test_a_file_that_is_no_model_is_refused_before_anything_runs(
    server: FakeServer, node: Node
) -> None:
    text = node.state.parent / "words.gguf"
    text.write_text("hello")
    async with node.agent():
        await server.registered()
        await server.say(start(spec(free_port(), source=str(text))))
        failed = await server.phase("failed")
        assert failed.failure == "weights_bad" and failed.pid is None


async def test_logs_are_read_and_followed_through_the_stream(
    server: FakeServer, node: Node, tiny_model: Path
) -> None:
    wanted = spec(free_port(), source=str(tiny_model))
    async with node.agent():
        await server.registered()
        await server.say(start(wanted))
        await server.phase("ready")
        await server.say(LogRequest("r1", wanted.key.replica, lines=5))
        said = await server.hear(LogLines, lambda m: m.request_id == "r1")
        assert len(said.lines) == 5 and not said.last
        assert (await server.hear(LogLines, lambda m: m.request_id == "r1")).last
        await server.say(LogRequest("r2", wanted.key.replica, lines=1, follow=True))
        await server.hear(LogLines, lambda m: m.request_id == "r2")
        write_line(node, "something new")
        more = await server.hear(LogLines, lambda m: m.request_id == "r2" and bool(m.lines))
        assert more.lines == ("something new",) and not more.last
        await server.say(LogCancel("r2"))


async def test_a_simulated_engine_needs_no_weights(server: FakeServer, node: Node) -> None:
    wanted = spec(free_port(), engine="sim", args={"decode_rate": 1000, "slots": 2}, context_length=512)
    async with node.agent():
        await server.registered()
        await server.say(start(wanted))
        ready = await server.phase("ready")
        assert await ask_models(wanted.port, "k-secret") == 200
        assert await ask_models(wanted.port, "another") == 401
        await server.say(stop(wanted))
        await server.phase("gone")
        assert ready.pid is not None and not alive(ready.pid)


@pytest.mark.parametrize(
    ("args", "failure", "words"),
    [({"oom": True}, "out_of_memory", "memory"), ({"slotz": 3}, "bad_profile", "--slotz 3")],
)
async def test_an_engine_that_does_not_start_is_told_by_its_own_words(
    server: FakeServer, node: Node, args: dict[str, ArgValue], failure: str, words: str
) -> None:
    async with node.agent():
        await server.registered()
        await server.say(start(spec(free_port(), engine="sim", args=args)))
        failed = await server.phase("failed")
        assert failed.failure == failure
        assert failed.reason is not None and words in failed.reason
