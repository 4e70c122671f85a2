"""The simulated engine as a process and over real sockets, with the official client's eyes."""

import asyncio
import os
import random
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest

from llmgw.aio.tasks import Tasks
from llmgw.host.clock import SystemClock
from llmgw.net.http1.pool import UpstreamPool
from llmgw.net.http1.server import HttpListener
from llmgw.ports import Fetched, HttpTimeouts, UpstreamBroke, UpstreamRequest
from llmgw.simengine.answers import Counters, word
from llmgw.simengine.engine import SimEngine
from llmgw.simengine.options import SimOptions

FAST = SimOptions("m", key="k", decode_rate=5000.0, slots=2)


class Bench:
    """An engine that serves, and a client of it."""

    def __init__(self, engine: SimEngine, address: str, crashed: asyncio.Event) -> None:
        self.engine = engine
        self.host, _, port = address.rpartition(":")
        self.port = int(port)
        self.pool = UpstreamPool()
        self.crashed = crashed

    async def until(self, true: Callable[[Counters], bool]) -> None:
        """Wait until the engine's counters are so; every turn of the loop is a look."""
        async with asyncio.timeout(10):
            while not true(self.engine.counters):
                await self.get("/health")

    def request(self, path: str, body: object = None, key: str = "k") -> UpstreamRequest:
        headers = ((b"authorization", f"Bearer {key}".encode()), (b"content-type", b"application/json"))
        data = b"" if body is None else msgspec.json.encode(body)
        method = "GET" if body is None else "POST"
        timeouts = HttpTimeouts(connect=5, first_byte=10, idle=10, total=20)
        return UpstreamRequest(self.host, self.port, method, path.encode(), headers, data, timeouts)

    async def get(self, path: str, key: str = "k") -> Fetched:
        return await self.pool.fetch(self.request(path, None, key), 1 << 20)

    async def post(self, path: str, **body: object) -> Fetched:
        return await self.pool.fetch(self.request(path, body), 1 << 20)

    async def chat(self, **body: object) -> Fetched:
        return await self.post("/v1/chat/completions", **chat(**body))


def chat(**more: object) -> dict[str, object]:
    return {"model": "m", "messages": [{"role": "user", "content": "hello"}], **more}


@asynccontextmanager
async def serving(options: SimOptions = FAST) -> AsyncIterator[Bench]:
    crashed = asyncio.Event()
    engine = SimEngine(options, SystemClock(), random.Random(1), crashed.set)
    listening = await HttpListener(SystemClock()).serve("127.0.0.1:0", engine.handle)
    bench = Bench(engine, listening.address, crashed)
    try:
        yield bench
    finally:
        await bench.pool.aclose()
        await listening.aclose()


def events(body: bytes) -> list[bytes]:
    assert body.endswith(b"\n\n")
    return [event.removeprefix(b"data: ") for event in body.removesuffix(b"\n\n").split(b"\n\n")]


async def test_it_says_itself_that_it_is_simulated() -> None:
    async with serving() as bench:
        answer = msgspec.json.decode((await bench.get("/v1/models")).body)
        assert answer["data"][0]["id"] == "m" and answer["data"][0]["owned_by"] == "llmgw-sim"


async def test_the_key_is_asked_of_everyone_but_the_health_question() -> None:
    async with serving() as bench:
        assert (await bench.get("/health", key="wrong")).status == 200
        for path in ("/v1/models", "/metrics"):
            assert (await bench.get(path, key="wrong")).status == 401


async def test_a_stream_joined_is_the_plain_answer_with_the_same_usage() -> None:
    async with serving() as bench:
        plain = msgspec.json.decode((await bench.chat(max_tokens=30)).body)
        body = (await bench.chat(max_tokens=30, stream=True, stream_options={"include_usage": True})).body
        *chunks, last = events(body)
        assert last == b"[DONE]"
        parsed = [msgspec.json.decode(chunk) for chunk in chunks]
        text = "".join(c["choices"][0]["delta"].get("content", "") for c in parsed if c["choices"])
        assert text == plain["choices"][0]["message"]["content"]
        assert text == "".join(word(number) for number in range(30))
        assert parsed[-1]["usage"] == plain["usage"] and plain["usage"]["completion_tokens"] == 30
        assert parsed[-2]["choices"][0]["finish_reason"] == "length"


async def test_usage_is_streamed_only_when_asked_for() -> None:
    async with serving() as bench:
        body = (await bench.chat(max_tokens=2, stream=True)).body
        assert b"usage" not in body


async def test_completions_have_their_own_shape() -> None:
    async with serving() as bench:
        plain = msgspec.json.decode((await bench.post("/v1/completions", model="m", prompt="hi")).body)
        assert plain["object"] == "text_completion" and plain["choices"][0]["text"].startswith("this answer")
        streamed = await bench.post("/v1/completions", model="m", prompt="hi", max_tokens=3, stream=True)
        first = msgspec.json.decode(events(streamed.body)[0])
        assert first["choices"][0]["text"] == "this"


async def test_requests_beyond_the_slots_wait_and_are_counted() -> None:
    async with serving(msgspec.structs.replace(FAST, decode_rate=20.0)) as bench, Tasks() as tasks:
        asked = [tasks.start(bench.chat(max_tokens=4), name="ask") for _ in range(3)]
        await bench.until(lambda counters: counters.waiting == 1)
        text = (await bench.get("/metrics")).body.decode()
        assert re.search(r"^vllm:num_requests_running\{.*\} 2$", text, re.M)
        assert re.search(r"^vllm:num_requests_waiting\{.*\} 1$", text, re.M)
        assert re.search(r"^vllm:kv_cache_usage_perc\{.*\} 0\.\d+$", text, re.M)
        for task in asked:
            assert (await task).status == 200
        assert bench.engine.counters.running == 0 and bench.engine.counters.held_tokens == 0


async def test_a_client_that_leaves_frees_its_slot() -> None:
    async with serving(msgspec.structs.replace(FAST, decode_rate=1.0)) as bench:
        response = await bench.pool.send(bench.request("/v1/chat/completions", chat(stream=True)))
        assert bench.engine.counters.running == 1
        await response.__aexit__()
        await bench.until(lambda counters: counters.running == 0)
        assert bench.engine.counters.aborted == 1 and bench.engine.counters.held_tokens == 0


async def test_words_come_at_the_set_rate() -> None:
    async with serving(msgspec.structs.replace(FAST, decode_rate=100.0)) as bench:
        began = asyncio.get_running_loop().time()
        await bench.chat(max_tokens=30)
        assert 0.3 <= asyncio.get_running_loop().time() - began < 1.0


async def test_it_is_not_healthy_before_it_has_started() -> None:
    async with serving(msgspec.structs.replace(FAST, startup_s=3600.0)) as bench:
        assert (await bench.get("/health")).status == 503


async def test_it_crashes_in_the_middle_of_the_answer_it_was_told_to() -> None:
    async with serving(msgspec.structs.replace(FAST, crash_after=2)) as bench:
        await bench.chat(max_tokens=10)
        assert not bench.crashed.is_set()
        await bench.chat(max_tokens=10)
        assert bench.crashed.is_set()


async def test_it_hangs_when_told_to() -> None:
    async with serving(msgspec.structs.replace(FAST, hang_after=1)) as bench:
        request = bench.request("/v1/chat/completions", chat())
        slow = msgspec.structs.replace(request, timeouts=HttpTimeouts(first_byte=0.2))
        with pytest.raises(UpstreamBroke):
            await bench.pool.fetch(slow, 1000)


async def test_it_answers_garbage_when_told_to() -> None:
    async with serving(msgspec.structs.replace(FAST, garbage_after=1)) as bench:
        with pytest.raises(msgspec.DecodeError):
            msgspec.json.decode((await bench.chat()).body)


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (["--oom"], 1, "simulated out of memory"),
        (["--slots", "0"], 2, "--slots"),
        (["--bogus", "1"], 2, "unrecognized arguments: --bogus 1"),
    ],
)
def test_a_process_that_cannot_start_says_why(options: list[str], status: int, words: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "llmgw.entry.simengine", "--model", "m", "--port", "1", *options],
        capture_output=True,
        text=True,
        env={**os.environ},
        check=False,
    )
    assert ended.returncode == status
    assert words in ended.stderr and "Traceback" not in ended.stderr
