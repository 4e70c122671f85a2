"""What bounds the client listener, how it tells both sides about pressure, and how it stops."""

import asyncio
import json

import pytest

from llmgw.aio.tasks import Tasks
from llmgw.net.http1.limits import ServerLimits
from llmgw.ports import Exchange
from tests.net.contract.conftest import Dial
from tests.net.toolkit import echo, get, post, serving, until

# ---------------------------------------------------------------- bounds


async def test_a_head_above_the_limit_is_refused_whether_it_ends_or_not(dial: Dial) -> None:
    limits = ServerLimits(head_bytes=2000)
    async with serving(echo, limits=limits) as listener:
        for raw in (
            get(extra="X: " + "y" * 3000 + "\r\n"),
            get(extra="X: " + "y" * 3000)[:-2],
            b"GET /" + b"y" * 3000,
        ):
            wire = await dial(listener.address)
            for start in range(0, len(raw), 1000):
                await wire.send(raw[start : start + 1000])
            assert (await wire.answer()).status == 431
            assert await wire.closed() == b""


async def test_a_head_that_does_not_come_to_an_end_is_given_up(dial: Dial) -> None:
    async with serving(echo, limits=ServerLimits(head_s=0.05)) as listener:
        wire = await dial(listener.address)
        await wire.send(b"GET / HTTP/1.1\r\nHost:")
        assert (await wire.answer()).status == 408
        silent = await dial(listener.address)
        assert await silent.closed() == b""


async def test_an_idle_connection_is_closed(dial: Dial) -> None:
    async with serving(echo, limits=ServerLimits(idle_s=0.05)) as listener:
        wire = await dial(listener.address)
        await wire.send(post(b"x"))
        assert (await wire.answer()).body == b"x"
        assert await wire.closed() == b""


async def test_connections_above_the_limit_are_told_so(dial: Dial) -> None:
    async with serving(echo, limits=ServerLimits(connections=2)) as listener:
        kept = [await dial(listener.address) for _ in range(2)]
        for wire in kept:
            await wire.send(post(b"x"))
            await wire.answer()
        extra = await dial(listener.address)
        answer = await extra.answer()
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert json.loads(answer.body)["error"]["code"] == "server_is_overloaded"
        assert await extra.closed() == b""
        await extra.gone()
        kept[0].abort()
        await until(lambda: listener.open_connections < 2)
        again = await dial(listener.address)
        await again.send(post(b"y"))
        assert (await again.answer()).body == b"y"
        for wire in (kept[1], again):
            wire.abort()


# ---------------------------------------------------------------- pressure and ends


async def test_a_client_that_does_not_read_makes_the_source_pause_and_go_on(dial: Dial) -> None:
    events: list[str] = []
    written = 0
    paused = asyncio.Event()

    async def flood(exchange: Exchange) -> None:
        nonlocal written
        flowing = asyncio.Event()
        flowing.set()

        def pause() -> None:
            events.append("pause")
            flowing.clear()
            paused.set()

        def resume() -> None:
            events.append("resume")
            flowing.set()

        exchange.start(200, [])
        exchange.watch_pressure(pause, resume)
        for _ in range(3000):
            await flowing.wait()
            exchange.write(b"x" * 10_000)
            written += 10_000
            await asyncio.sleep(0)
        exchange.finish()

    async with serving(flood) as listener:
        wire = await dial(listener.address)
        await wire.send(get())
        await paused.wait()
        assert written < 12_000_000  # the kernel's buffers and 64 KiB of ours
        answer = await wire.answer()
        assert (len(answer.body), answer.clean) == (30_000_000, True)
        assert events[:2] == ["pause", "resume"]


async def test_a_handler_that_asks_late_is_told_of_pressure_at_once(dial: Dial) -> None:
    told: list[str] = []

    async def flood(exchange: Exchange) -> None:
        exchange.start(200, [])
        for _ in range(1000):
            exchange.write(b"x" * 10_000)
        exchange.watch_pressure(lambda: told.append("pause"), lambda: told.append("resume"))
        exchange.finish()

    async with serving(flood) as listener:
        wire = await dial(listener.address)
        await wire.send(get())
        assert len((await wire.answer()).body) == 10_000_000
    assert told == ["pause"]  # and nothing after the end


async def test_a_client_that_half_closes_without_reading_cancels_the_handler(dial: Dial) -> None:
    paused = asyncio.Event()
    cancelled = asyncio.Event()

    async def flood(exchange: Exchange) -> None:
        exchange.start(200, [])
        exchange.watch_pressure(paused.set, lambda: None)
        for _ in range(2000):
            exchange.write(b"x" * 10_000)
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with serving(flood) as listener:
        wire = await dial(listener.address)
        await wire.send(get())
        await paused.wait()
        wire.writer.write_eof()  # what was written before cannot be flushed, and is not waited for
        await cancelled.wait()


async def test_a_client_that_leaves_after_a_large_body_is_noticed(dial: Dial) -> None:
    cancelled = asyncio.Event()
    entered = asyncio.Event()

    async def work(exchange: Exchange) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()  # the body is complete before anybody asks for it
        finally:
            cancelled.set()

    async with serving(work, limits=ServerLimits(unread_bytes=1000)) as listener:
        wire = await dial(listener.address)
        await wire.send(post(b"x" * 5000))
        await entered.wait()
        wire.abort()
        await cancelled.wait()


async def test_a_client_that_never_reads_is_given_up(dial: Dial) -> None:
    ended = asyncio.Event()

    async def flood(exchange: Exchange) -> None:
        flowing = asyncio.Event()
        flowing.set()
        exchange.start(200, [])
        exchange.watch_pressure(flowing.clear, flowing.set)
        try:
            while True:
                await flowing.wait()
                exchange.write(b"x" * 10_000)
                await asyncio.sleep(0)
        finally:
            ended.set()

    async with serving(flood, limits=ServerLimits(stall_s=0.1)) as listener:
        wire = await dial(listener.address)
        await wire.send(get())
        await ended.wait()


@pytest.mark.parametrize("way", ["reset", "close", "half-close"])
@pytest.mark.parametrize("when", ["in the body", "before the answer", "in the stream"])
async def test_a_client_that_leaves_cancels_the_handler(dial: Dial, way: str, when: str) -> None:
    entered = asyncio.Event()
    cancelled = asyncio.Event()

    async def work(exchange: Exchange) -> None:
        if when == "in the stream":
            exchange.start(200, [])
            exchange.write(b"first")
        entered.set()
        try:
            await exchange.read_body(1000)
            await asyncio.Event().wait()
        finally:
            # What a handler does while it is being cancelled goes nowhere and breaks nothing.
            exchange.abort()
            cancelled.set()

    async with serving(work) as listener:
        wire = await dial(listener.address)
        request = post(b"body")
        await wire.send(request[:-1] if when == "in the body" else request)
        await entered.wait()
        if when == "in the stream":
            await wire.reader.readuntil(b"first")
        if way == "reset":
            wire.abort()
        elif way == "close":
            wire.writer.close()
        else:
            wire.writer.write_eof()
        await cancelled.wait()
        await until(lambda: listener.in_flight == 0 and listener.open_connections == 0)


async def test_a_client_that_leaves_after_its_answer_does_not_disturb_the_handler(dial: Dial) -> None:
    finished: list[str] = []
    go_on = asyncio.Event()

    async def settle_later(exchange: Exchange) -> None:
        exchange.respond(200, [], b"done")
        await go_on.wait()
        finished.append("settled")

    async with serving(settle_later) as listener:
        wire = await dial(listener.address)
        await wire.send(get())
        await wire.answer()
        wire.abort()
        await until(lambda: listener.open_connections == 0)
        go_on.set()
        await until(lambda: listener.in_flight == 0)
    assert finished == ["settled"]


async def test_an_aborted_stream_is_never_taken_for_a_clean_end(dial: Dial) -> None:
    async def cut(exchange: Exchange) -> None:
        exchange.start(200, [])
        exchange.write(b'data: {"error": 1}\n\n')
        await asyncio.sleep(0.01)
        exchange.abort()

    async with serving(cut) as listener:
        wire = await dial(listener.address)
        await wire.send(get())
        answer = await wire.answer()
        assert (answer.body, answer.clean) == (b'data: {"error": 1}\n\n', False)
        wire = await dial(listener.address)
        await wire.send(b"GET / HTTP/1.0\r\n\r\n")
        assert not (await wire.answer()).clean  # a reset, where a plain end would be clean


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_handler_that_leaves_its_exchange_open_is_ended_for(dial: Dial, streaming: bool) -> None:
    async def forget(exchange: Exchange) -> None:
        if streaming:
            exchange.start(200, [])
            exchange.write(b"part")

    async with serving(forget) as listener:
        wire = await dial(listener.address)
        await wire.send(get())
        answer = await wire.answer()
        assert (answer.status, answer.clean) == ((200, False) if streaming else (500, True))


async def test_a_second_answer_and_a_split_header_are_errors_of_the_handler(dial: Dial) -> None:
    raised: list[str] = []

    async def wrong(exchange: Exchange) -> None:
        for headers in ([(b"x", b"a\r\nset-cookie: b")], [(b"content-length", b"7")]):
            try:
                exchange.respond(200, headers, b"")
            except ValueError as error:
                raised.append(str(error))
        exchange.respond(200, [], b"once")
        with pytest.raises(RuntimeError):
            exchange.respond(200, [], b"twice")
        with pytest.raises(RuntimeError):
            exchange.start(200, [])
        with pytest.raises(RuntimeError):
            exchange.write(b"x")
        with pytest.raises(RuntimeError):
            exchange.finish()
        exchange.abort()

    async with serving(wrong) as listener:
        wire = await dial(listener.address)
        await wire.send(get())
        assert (await wire.answer()).body == b"once"
    assert len(raised) == 2


# ---------------------------------------------------------------- stopping


async def test_draining_finishes_what_is_in_progress_and_accepts_nothing_new(dial: Dial) -> None:
    go_on = asyncio.Event()
    entered = asyncio.Event()

    async def slow(exchange: Exchange) -> None:
        entered.set()
        await go_on.wait()
        exchange.respond(200, [], b"finished")

    async with serving(slow) as listener, Tasks() as tasks:
        idle = await dial(listener.address)
        busy = await dial(listener.address)
        await busy.send(get())
        await entered.wait()
        listener.stop_accepting()
        assert await idle.closed() == b""
        with pytest.raises(ConnectionRefusedError):
            await dial(listener.address)
        assert not await listener.drained(0.02)
        draining = tasks.start(listener.drained(20), name="drain")
        go_on.set()
        answer = await busy.answer()
        assert (answer.body, answer.headers["connection"]) == (b"finished", "close")
        assert await draining


async def test_closing_cancels_handlers_and_cuts_connections(dial: Dial) -> None:
    entered = asyncio.Event()
    cancelled: list[bool] = []

    async def endless(exchange: Exchange) -> None:
        exchange.start(200, [])
        exchange.write(b"x")
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(True)

    async with serving(endless) as listener:
        wire = await dial(listener.address)
        await wire.send(get())
        await entered.wait()
        await wire.reader.readuntil(b"x\r\n")
    assert cancelled == [True]
    assert b"0\r\n\r\n" not in await wire.closed()
