"""Engines that do not do as they should, and processes that are none of ours."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pytest

from llmgw.core.claims import Claim
from llmgw.core.inventory import EngineInstall, Gpu
from llmgw.wire.agent_v1 import CommandRefused, ShardSpec, ShardStatus
from tests.agent import fake_engine
from tests.agent.fake_server import FakeServer
from tests.agent.node import Node, alive, free_port, spec, start, stop

SCRIPT = Path(fake_engine.__file__)


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + bytes(100))
    return str(path)


@pytest.fixture(autouse=True)
def fake_install(node: Node, tmp_path: Path) -> None:
    program = tmp_path / "llama-server"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{SCRIPT}" "$@"\n')
    program.chmod(0o755)
    engines = {"llama.cpp": EngineInstall("llama.cpp", path=str(program)), "sim": EngineInstall("sim")}
    node.probe.found = msgspec.structs.replace(node.probe.found, engines=engines)


def behaving(model: str, *words: str, env: Mapping[str, str] | None = None, **changes: object) -> ShardSpec:
    made: dict[str, str] = {"BEHAVE": " ".join(words), **(env or {})}
    return spec(free_port(), source=model, env=made, **changes)  # type: ignore[arg-type]


async def test_an_engine_that_ignores_term_is_killed_after_its_grace(
    server: FakeServer, node: Node, model: str
) -> None:
    wanted = behaving(model, "deaf")
    async with node.agent():
        await server.registered()
        await server.say(start(wanted))
        ready = await server.phase("ready")
        began = asyncio.get_running_loop().time()
        await server.say(stop(wanted, grace_s=0.5))
        await server.phase("gone")
        assert ready.pid is not None and not alive(ready.pid)
        assert 0.5 <= asyncio.get_running_loop().time() - began < 2.0


async def test_a_child_in_a_session_of_its_own_dies_with_its_engine(
    server: FakeServer, node: Node, model: str, tmp_path: Path
) -> None:
    note = tmp_path / "orphan"
    wanted = behaving(model, "orphan", env={"ORPHAN_FILE": str(note)})
    async with node.agent():
        await server.registered()
        await server.say(start(wanted))
        await server.phase("ready")
        orphan = int(note.read_text())
        assert alive(orphan)
        await server.say(stop(wanted))
        await server.phase("gone")
        assert not alive(orphan)


async def test_a_child_left_by_a_crash_is_dead_before_the_failure_is_told(
    server: FakeServer, node: Node, model: str, tmp_path: Path
) -> None:
    note = tmp_path / "orphan"
    wanted = behaving(model, "orphan", env={"ORPHAN_FILE": str(note)})
    async with node.agent():
        await server.registered()
        await server.say(start(wanted))
        ready = await server.phase("ready")
        assert ready.pid is not None
        os.kill(ready.pid, signal.SIGKILL)
        await server.phase("failed")
        assert not alive(int(note.read_text()))


async def test_a_clean_exit_nobody_asked_for_is_a_crash(server: FakeServer, node: Node, model: str) -> None:
    async with node.agent():
        await server.registered()
        await server.say(start(behaving(model, "clean")))
        await server.phase("ready")
        failed = await server.phase("failed")
        assert failed.failure == "engine_exited"
        assert failed.reason is not None and "status 0" in failed.reason


async def test_an_engine_that_serves_another_name_is_never_called_ready(
    server: FakeServer, node: Node, model: str
) -> None:
    wanted = behaving(model, "stranger", startup_timeout_s=1.5)
    async with node.agent():
        await server.registered()
        await server.say(start(wanted))
        said = await server.hear(ShardStatus, lambda m: m.shard.phase in ("ready", "stopping"))
        assert said.shard.phase == "stopping"
        failed = await server.phase("failed")
        assert failed.failure == "start_timeout"
        assert failed.reason is not None and "it serves another" in failed.reason


async def test_an_engine_that_is_never_healthy_fails_by_its_startup_timeout(
    server: FakeServer, node: Node, model: str
) -> None:
    async with node.agent():
        await server.registered()
        await server.say(start(behaving(model, "slow", startup_timeout_s=1.0)))
        failed = await server.phase("failed")
        assert failed.failure == "start_timeout"
        assert failed.reason is not None and "1 s (startup_timeout)" in failed.reason
        assert failed.log_tail


@contextlib.contextmanager
def held(port: int) -> Iterator[None]:
    with socket.create_server(("127.0.0.1", port)):
        yield


async def test_a_busy_port_is_told_before_anything_runs(server: FakeServer, node: Node, model: str) -> None:
    wanted = behaving(model)
    with held(wanted.port):
        async with node.agent():
            await server.registered()
            await server.say(start(wanted))
            failed = await server.phase("failed")
            assert failed.failure == "port_busy" and failed.pid is None
            assert failed.reason is not None and str(wanted.port) in failed.reason


@pytest.mark.parametrize(
    ("changes", "failure", "words"),
    [
        ({"source": "/nowhere/x.gguf"}, "weights_missing", "/nowhere/x.gguf"),
        ({"source": "hf:owner/repo"}, "weights_missing", "not available in this version"),
        ({"source": None}, "weights_missing", "no source"),
        ({"engine": "vllm"}, "bad_profile", "does not know the engine vllm"),
        ({"install": "llama.cpp-9"}, "engine_not_installed", "llama.cpp-9"),
        ({"claim": Claim(gpus=(0, 3))}, "gpu_missing", "needs GPU 3, this node has 0"),
        ({"address": "192.0.2.7"}, "port_busy", "agent.yaml"),
        ({"tensor_parallel": 2}, "bad_profile", "tensor_parallel"),
    ],
)
async def test_what_is_wrong_on_the_node_comes_back_as_a_clear_failure(
    server: FakeServer, node: Node, model: str, changes: dict[str, object], failure: str, words: str
) -> None:
    node.probe.found = msgspec.structs.replace(node.probe.found, gpus=(Gpu(0),))
    wanted = msgspec.structs.replace(behaving(model), **changes)
    async with node.agent():
        await server.registered()
        await server.say(start(wanted))
        failed = await server.phase("failed")
        assert failed.failure == failure
        assert failed.reason is not None and words in failed.reason


async def test_an_engine_removed_since_the_node_was_looked_at_is_said_to_be_missing(
    server: FakeServer, node: Node, model: str, tmp_path: Path
) -> None:
    async with node.agent():
        await server.registered()
        (tmp_path / "llama-server").unlink()
        await server.say(start(behaving(model)))
        failed = await server.phase("failed")
        assert failed.failure == "engine_not_installed"
        assert failed.reason is not None and str(tmp_path / "llama-server") in failed.reason


async def test_an_engine_sees_only_its_own_cards_and_the_profile_does_not_overrule_that(
    server: FakeServer, node: Node, model: str
) -> None:
    node.probe.found = msgspec.structs.replace(node.probe.found, gpus=(Gpu(0), Gpu(1), Gpu(2)))
    made = behaving(model, env={"CUDA_VISIBLE_DEVICES": "0", "MINE": "yes"})
    wanted = msgspec.structs.replace(made, claim=Claim(gpus=(1, 2)))
    async with node.agent():
        await server.registered()
        await server.say(start(wanted))
        ready = await server.phase("ready")
        env = environment(ready.pid)
    assert env["CUDA_VISIBLE_DEVICES"] == "1,2"
    assert env["MINE"] == "yes"
    assert env["LLMGW_MARK_SHARD"] == "tiny-1a2b3c4d/0" and env["LLMGW_MARK_GENERATION"] == "1"
    assert env["LLAMA_API_KEY"] == "k-secret"


def environment(pid: int | None) -> dict[str, str]:
    held = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return dict(entry.decode().split("=", 1) for entry in held if entry)


async def test_our_process_without_a_record_is_killed_and_strangers_are_left_alone(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    def sleeping(env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["sleep", "1000"], env={"PATH": os.environ["PATH"], **env})

    ours = {"LLMGW_MARK_AGENT": "n1", "LLMGW_MARK_STATE": str(node.state), "LLMGW_MARK_SHARD": "x/0"}
    stray = sleeping(ours)
    strangers = [
        sleeping({}),
        sleeping({**ours, "LLMGW_MARK_STATE": str(tmp_path / "another")}),
        sleeping({**ours, "LLMGW_MARK_AGENT": "n2"}),
    ]
    try:
        async with node.agent():
            await server.registered()
            assert not alive(stray.pid)
            assert all(alive(stranger.pid) for stranger in strangers)
    finally:
        for process in (stray, *strangers):
            process.kill()
            process.wait()


async def test_an_unreadable_record_costs_its_engine_and_nothing_else(
    server: FakeServer, node: Node, model: str
) -> None:
    wanted = behaving(model)
    async with node.agent():
        await server.registered()
        await server.say(start(wanted))
        ready = await server.phase("ready")
    (record,) = node.state.glob("shard-*")
    record.write_text("{torn")
    async with node.agent():
        registration = await server.registered()
        assert registration.shards == ()
    assert ready.pid is not None and not alive(ready.pid)


async def test_orders_of_an_older_term_are_refused_also_after_a_restart(
    server: FakeServer, node: Node, model: str
) -> None:
    server.welcome = msgspec.structs.replace(server.welcome, term=9)
    async with node.agent():
        await server.registered()
        await server.say(start(behaving(model), term=8))
        refused = await server.hear(CommandRefused)
        assert refused.highest_term == 9 and "term 8" in refused.reason
    server.welcome = msgspec.structs.replace(server.welcome, term=1)
    async with node.agent():
        registration = await server.registered()
        assert registration.highest_term == 9
        await server.say(start(behaving(model), term=8))
        assert (await server.hear(CommandRefused)).highest_term == 9


async def test_a_newer_generation_replaces_the_running_one(
    server: FakeServer, node: Node, model: str
) -> None:
    older = behaving(model)
    newer = msgspec.structs.replace(older, key=msgspec.structs.replace(older.key, generation=2))
    async with node.agent():
        await server.registered()
        await server.say(start(older))
        first = await server.phase("ready")
        await server.say(start(newer))
        gone = await server.phase("gone")
        assert gone.key.generation == 1
        assert first.pid is not None and not alive(first.pid)
        second = await server.phase("ready")
        assert second.key.generation == 2
