"""`llmgw router` as a process: how a server starts its own, how it ends, and what it refuses."""

import asyncio
import hashlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from llmgw import __version__
from llmgw.aio.tasks import Tasks
from llmgw.entry.router import NOT_YET, main, own_process
from llmgw.entry.router_settings import dump
from llmgw.wire import watch_v1 as wire
from tests.gateway.toolkit import (
    DONE,
    KEY,
    LAST,
    Control,
    Engine,
    Script,
    Talk,
    answers,
    ask,
    event,
    settings,
    snapshot,
)


class Child:
    """A router process with its engine and its control plane."""

    def __init__(self, process: asyncio.subprocess.Process, control: Control, engine: Engine) -> None:
        self.process = process
        self.control = control
        self.engine = engine

    @property
    def hello(self) -> wire.Hello:
        return next(one for one in self.control.heard if isinstance(one, wire.Hello))

    def client(self) -> httpx.AsyncClient:
        headers = {"authorization": f"Bearer {KEY.text}"}
        return httpx.AsyncClient(base_url=f"http://{self.hello.address}", headers=headers, timeout=20)


@asynccontextmanager
async def child(tmp_path: Path, script: Script, **more: float) -> AsyncIterator[Child]:
    engine, control = Engine(script), Control(f"unix:{tmp_path}/watch.sock")
    await engine.open()
    control.snapshot = snapshot([engine])
    await control.open()
    file = tmp_path / "router.json"
    file.write_bytes(dump(settings(control.address, **more)))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "llmgw", "router", "--child", str(file), "--index", "3"),
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        await control.until(lambda: wire.Applied(1) in control.heard)
        yield Child(process, control, engine)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
        await control.close()
        await engine.close()


async def test_a_child_serves_and_says_who_it_is(tmp_path: Path) -> None:
    async with child(tmp_path, answers("Hello")) as served:
        hello = served.hello
        digest = hashlib.sha256((tmp_path / "router.json").read_bytes()).hexdigest()
        assert (hello.version, hello.settings_hash, hello.index) == (__version__, digest, 3)
        assert hello.pid == served.process.pid
        assert hello.start_time == psutil_start_ticks(served.process.pid)
        async with served.client() as client:
            assert "Hello" in (await client.post("/v1/chat/completions", json=ask())).text
            streamed = await client.post("/v1/chat/completions", json=ask(stream=True))
            assert streamed.content == event("Hello") + LAST + DONE


async def test_sigterm_lets_a_stream_end_refuses_new_ones_and_hands_over_its_usage(tmp_path: Path) -> None:
    release = asyncio.Event()

    async def held(talk: Talk) -> None:
        await talk.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        await talk.chunk(event("a"))
        await release.wait()
        await talk.chunk(LAST + DONE)
        await talk.send(b"0\r\n\r\n")

    async with child(tmp_path, held, drain_s=20.0) as served, served.client() as client, Tasks() as tasks:
        asking = tasks.start(client.post("/v1/chat/completions", json=ask(stream=True)), name="client")
        await served.control.until(lambda: bool(served.engine.asked))
        served.process.send_signal(signal.SIGTERM)
        while await _accepts(served.hello.address or ""):
            pass
        release.set()
        answer = await asking
        assert answer.content == event("a") + LAST + DONE
        assert await asyncio.wait_for(served.process.wait(), 10) == 0
        await served.control.until(lambda: len(served.control.rows) == 1)
        assert served.control.rows[0].status == 200


async def test_a_second_sigterm_does_not_wait_for_streams(tmp_path: Path) -> None:
    async def hangs(talk: Talk) -> None:
        await talk.wait_gone()

    async with child(tmp_path, hangs, drain_s=600.0) as served, served.client() as client, Tasks() as tasks:
        tasks.start(_broken(client), name="client")
        await served.control.until(lambda: bool(served.engine.asked))
        served.process.send_signal(signal.SIGTERM)
        while await _accepts(served.hello.address or ""):
            pass
        served.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(served.process.wait(), 10) == 0
        await served.control.until(lambda: [row.status for row in served.control.rows] == [499])


def psutil_start_ticks(pid: int) -> int:
    """Start time as another reader of /proc sees it: seconds since boot, in clock ticks."""
    born = psutil.Process(pid).create_time() - psutil.boot_time()
    return round(born * os.sysconf("SC_CLK_TCK"))


async def _broken(client: httpx.AsyncClient) -> None:
    with pytest.raises(httpx.TransportError):
        await client.post("/v1/chat/completions", json=ask())


async def _accepts(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        _, writer = await asyncio.open_connection(host, int(port))
    except OSError:
        return False
    writer.close()
    return True


def test_router_yaml_is_refused_with_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["-c", str(tmp_path / "router.yaml")]) == 1
    assert capsys.readouterr().err.strip() == f"llmgw: {NOT_YET}"


def test_settings_that_cannot_be_read_are_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    missing = tmp_path / "router.json"
    assert main(["--child", str(missing)]) == 1
    assert capsys.readouterr().err == f"llmgw: {missing}: No such file or directory\n"
    missing.write_bytes(b"{}")
    assert main(["--child", str(missing)]) == 1
    assert "watch" in capsys.readouterr().err


def test_a_taken_address_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "router.json"
    file.write_bytes(dump(settings(f"unix:{tmp_path}/watch.sock", listen="192.0.2.1:9")))
    assert main(["--child", str(file)]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("llmgw: clients.listen 192.0.2.1:9: ")


def test_a_process_knows_itself() -> None:
    pid, start_time = own_process()
    assert pid == os.getpid() and start_time > 0
