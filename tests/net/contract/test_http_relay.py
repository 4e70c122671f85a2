"""Both halves together: a handler that relays an engine's answer, with failures on either side."""

import asyncio

import pytest

from llmgw.net.http1.limits import ServerLimits
from llmgw.net.http1.pool import UpstreamPool
from llmgw.ports import Exchange, ExchangeHandler, Stage, UpstreamBroke
from tests.net.contract.conftest import Dial
from tests.net.toolkit import Engine, Wire, engine, get, pool, post, serving, until

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def relay(upstream: UpstreamPool, running: Engine) -> ExchangeHandler:
    """The least a gateway does: relay whatever the engine answers, and never call a break an end."""

    async def handler(exchange: Exchange) -> None:
        body = await exchange.read_body(1_000_000)
        try:
            response = await upstream.send(running.request(body))
        except UpstreamBroke as broke:
            exchange.respond(504 if broke.timed_out else 502, [], broke.stage.value.encode())
            return
        async with response:
            exchange.start(response.status, [])
            exchange.watch_pressure(response.pause, response.resume)
            try:
                await response.stream(exchange.write)
            except UpstreamBroke:
                exchange.abort()
            else:
                exchange.finish()

    return handler


async def test_streams_are_relayed_as_they_come(dial: Dial) -> None:
    step = asyncio.Event()

    async def script(wire: Wire, number: int) -> None:
        while True:
            _, body = await wire.request()
            await wire.send(CHUNKED + b"5\r\ndata1\r\n")
            await step.wait()
            step.clear()
            await wire.send(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))

    async with engine(script) as running, pool() as upstream, serving(relay(upstream, running)) as listener:
        wire = await dial(listener.address)
        for _ in range(3):
            await wire.send(post(b"echo"))
            await wire.reader.readuntil(b"5\r\ndata1\r\n")
            step.set()
            assert await wire.reader.readuntil(b"0\r\n\r\n") == b"4\r\necho\r\n0\r\n\r\n"
    assert running.connections == 1


@pytest.mark.parametrize("how", ["end", "reset", "garbage"])
async def test_an_engine_that_dies_in_a_stream_never_looks_like_a_clean_end(dial: Dial, how: str) -> None:
    received = asyncio.Event()

    async def script(wire: Wire, number: int) -> None:
        await wire.request()
        await wire.send(CHUNKED + b"5\r\ndata1\r\n")
        await received.wait()
        if how == "reset":
            wire.reset()
        elif how == "garbage":
            await wire.send(b"not a chunk\r\n")
            await wire.closed()

    async with engine(script) as running, pool() as upstream, serving(relay(upstream, running)) as listener:
        wire = await dial(listener.address)
        await wire.send(post(b"x"))
        await wire.reader.readuntil(b"5\r\ndata1\r\n")
        received.set()
        assert await wire.closed() == b""  # no terminator


async def test_an_engine_that_dies_before_answering_is_a_refusal_and_the_connection_lives(dial: Dial) -> None:
    async def script(wire: Wire, number: int) -> None:
        await wire.request()

    async with engine(script) as running, pool() as upstream, serving(relay(upstream, running)) as listener:
        wire = await dial(listener.address)
        for _ in range(2):
            await wire.send(post(b"x"))
            answer = await wire.answer()
            assert (answer.status, answer.body) == (502, Stage.HEAD.value.encode())


@pytest.mark.parametrize("when", ["before the answer", "in the stream"])
async def test_a_client_that_leaves_ends_the_engines_work_at_once(dial: Dial, when: str) -> None:
    working = asyncio.Event()
    left = asyncio.Event()

    async def script(wire: Wire, number: int) -> None:
        await wire.request()
        if when == "in the stream":
            await wire.send(CHUNKED + b"1\r\nx\r\n")
        working.set()
        await wire.closed()
        left.set()

    async with engine(script) as running, pool() as upstream, serving(relay(upstream, running)) as listener:
        wire = await dial(listener.address)
        await wire.send(post(b"x"))
        await working.wait()
        if when == "in the stream":
            await wire.reader.readuntil(b"x\r\n")
        wire.abort()
        await left.wait()
        await until(lambda: listener.in_flight == 0)


@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
async def test_an_answer_the_client_does_not_read_stays_with_the_engine(dial: Dial, framing: str) -> None:
    sent = 0
    piece = b"x" * 10_000
    head = {
        "chunked": CHUNKED,
        "length": b"HTTP/1.1 200 OK\r\nContent-Length: 30000000\r\n\r\n",
        "close": b"HTTP/1.1 200 OK\r\n\r\n",
    }[framing]

    async def script(wire: Wire, number: int) -> None:
        nonlocal sent
        await wire.request()
        await wire.send(head)
        for _ in range(3000):
            await wire.send(b"2710\r\n%b\r\n" % piece if framing == "chunked" else piece)
            sent += len(piece)
        if framing == "chunked":
            await wire.send(b"0\r\n\r\n")
        if framing != "close":
            await wire.closed()

    async with engine(script) as running, pool() as upstream, serving(relay(upstream, running)) as listener:
        wire = await dial(listener.address)
        await wire.send(post(b"x"))
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.05)
        assert sent < 20_000_000  # two pairs of kernel buffers, and 64 KiB of ours
        answer = await wire.answer()
        assert (len(answer.body), answer.clean) == (30_000_000, True)


async def test_a_client_that_never_reads_is_given_up_and_the_engine_freed(dial: Dial) -> None:
    freed = asyncio.Event()

    async def script(wire: Wire, number: int) -> None:
        await wire.request()
        await wire.send(CHUNKED)
        try:
            while True:
                await wire.send(b"2710\r\n%b\r\n" % (b"x" * 10_000))
        finally:
            freed.set()

    limits = ServerLimits(stall_s=0.2)
    async with (
        engine(script) as running,
        pool() as upstream,
        serving(relay(upstream, running), limits=limits) as listener,
    ):
        wire = await dial(listener.address)
        await wire.send(get())
        await freed.wait()
        await until(lambda: listener.open_connections == 0)
