"""llama.cpp from its Python package, as a process that behaves like llama-server."""

import asyncio
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from llmgw.net.http1.pool import UpstreamPool
from llmgw.ports.http import Fetched, HttpTimeouts, UpstreamBroke, UpstreamRequest
from tests.agent.node import free_port
from tests.support.tiny_gguf import ANSWER, ANSWER_TOKENS, write_tiny_gguf

pytest.importorskip("xllamacpp")

WHEEL = (sys.executable, "-P", "-m", "llmgw.entry.llamacpp_wheel")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    write_tiny_gguf(path)
    return path


class Served:
    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.process = process
        self.port = port
        self.pool = UpstreamPool()

    def request(self, path: str, body: object = None, key: str = "k") -> UpstreamRequest:
        data = b"" if body is None else msgspec.json.encode(body)
        headers = ((b"authorization", b"Bearer " + key.encode()), (b"content-type", b"application/json"))
        method = "GET" if body is None else "POST"
        timeouts = HttpTimeouts(connect=1, first_byte=20, idle=20, total=30)
        return UpstreamRequest("127.0.0.1", self.port, method, path.encode(), headers, data, timeouts)

    async def ask(self, path: str, body: object = None, key: str = "k") -> Fetched:
        return await self.pool.fetch(self.request(path, body, key), 1 << 20)

    async def healthy(self) -> None:
        async with asyncio.timeout(20):
            while True:
                try:
                    if (await self.ask("/health")).status == 200:
                        return
                except UpstreamBroke:
                    pass
                await asyncio.sleep(0.05)


@asynccontextmanager
async def serving(model: Path, *options: str) -> AsyncIterator[Served]:
    port = free_port()
    argv = (*WHEEL, "-m", str(model), "--alias", "org/tiny", "--host", "127.0.0.1", "--port", str(port))
    process = await asyncio.create_subprocess_exec(
        *argv, *options, stdout=DEVNULL, stderr=DEVNULL, env={**os.environ, "LLAMA_API_KEY": "k"}
    )
    served = Served(process, port)
    try:
        await served.healthy()
        yield served
    finally:
        await served.pool.aclose()
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_it_serves_under_its_alias_and_asks_for_its_key(model: Path) -> None:
    async with serving(model, "-np", "2", "-c", "1024", "--metrics", "--jinja") as served:
        assert (await served.ask("/v1/models", key="wrong")).status == 401
        names = msgspec.json.decode((await served.ask("/v1/models")).body)["data"]
        assert [entry["id"] for entry in names] == ["org/tiny"]
        props = msgspec.json.decode((await served.ask("/props")).body)
        assert props["total_slots"] == 2
        assert b"llamacpp:requests_processing" in (await served.ask("/metrics")).body
        body = {"model": "org/tiny", "messages": [{"role": "user", "content": "hi"}]}
        answer = msgspec.json.decode((await served.ask("/v1/chat/completions", body)).body)
        assert answer["choices"][0]["message"]["content"] == ANSWER
        assert answer["usage"]["completion_tokens"] == ANSWER_TOKENS


async def test_it_leaves_at_once_on_sigterm_with_a_stream_open(model: Path) -> None:
    async with serving(model) as served:
        body = {"model": "org/tiny", "prompt": "x", "stream": True, "n_predict": -1, "ignore_eos": True}
        response = await served.pool.send(served.request("/v1/completions", body))
        assert response.status == 200
        served.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(2):
            assert await served.process.wait() == 0
        await response.__aexit__()


async def refused(*options: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(*WHEEL, *options, stdout=DEVNULL, stderr=PIPE)
    _, said = await process.communicate()
    assert process.returncode is not None
    text = said.decode()
    assert "Traceback" not in text
    return process.returncode, text


async def test_a_missing_model_is_one_line() -> None:
    status, said = await refused("-m", "/nowhere.gguf", "--port", "1")
    assert (status, said) == (1, "error: there is no model file at /nowhere.gguf\n")


async def test_a_damaged_model_and_a_busy_port_are_told_apart(model: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(b"hello")
    _, said = await refused("-m", str(cut), "--port", "0")
    assert "invalid magic" in said
    with socket.create_server(("127.0.0.1", 0)) as held:
        _, said = await refused("-m", str(model), "--port", str(held.getsockname()[1]))
    assert "couldn't bind HTTP server socket" in said


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--bogus", "1"), "unrecognized arguments: --bogus 1"),
        (("--split-mode", "sideways"), "invalid argument: --split-mode sideways; known are"),
        (("--ctx-size", "many"), "invalid int value: 'many'"),
    ],
)
async def test_an_option_it_does_not_know_is_refused(
    model: Path, options: tuple[str, ...], words: str
) -> None:
    status, said = await refused("-m", str(model), "--port", "0", *options)
    assert status == 2 and words in said
