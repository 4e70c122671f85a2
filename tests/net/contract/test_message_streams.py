"""What every implementation of message streams promises."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from llmgw.aio.tasks import Tasks
from llmgw.net.streams import MESSAGE_MAX, StreamDialer, WebSocketListener
from llmgw.ports import Listening, MessageStream, StreamClosed, StreamHandler

KINDS = ("tcp", "unix")


@pytest.fixture(params=KINDS)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "127.0.0.1:0" if request.param == "tcp" else f"unix:{tmp_path}/s.sock"


@asynccontextmanager
async def listener(address: str, **handlers: StreamHandler) -> AsyncIterator[Listening]:
    failures: list[BaseException] = []
    listening = await WebSocketListener(lambda what, why: failures.append(why)).listen(
        address, {f"/{name}": handler for name, handler in handlers.items()}
    )
    try:
        yield listening
    finally:
        await listening.aclose()
    assert failures == []


async def echo(stream: MessageStream) -> None:
    while True:
        await stream.send(await stream.receive())


async def test_messages_go_both_ways_in_order_and_whole(address: str) -> None:
    async with listener(address, echo=echo) as listening:
        stream = await StreamDialer().dial(listening.address, "/echo")
        sent = [b"", b"a", bytes(range(256)), b"x" * 300_000]
        for message in sent:
            await stream.send(message)
        assert [await stream.receive() for _ in sent] == sent
        await stream.close()


async def test_paths_tell_streams_apart_and_an_unknown_one_is_refused(address: str) -> None:
    def says(word: bytes) -> StreamHandler:
        async def say(stream: MessageStream) -> None:
            await stream.send(word)

        return say

    async with listener(address, agent=says(b"agents"), watch=says(b"watchers")) as listening:
        for path, word in (("/agent", b"agents"), ("/watch", b"watchers")):
            stream = await StreamDialer().dial(listening.address, path)
            assert await stream.receive() == word
        with pytest.raises(StreamClosed, match=r"404.*no stream at /other"):
            await StreamDialer().dial(listening.address, "/other")


@pytest.mark.parametrize("after_message", [False, True])
async def test_the_reason_of_a_refusal_reaches_the_dialler(address: str, after_message: bool) -> None:
    async def refuse(stream: MessageStream) -> None:
        if after_message:
            await stream.receive()
        await stream.close("cluster id is c1, this agent belongs to c2")

    async with listener(address, agent=refuse) as listening:
        stream = await StreamDialer().dial(listening.address, "/agent")
        if after_message:
            await stream.send(b"hello")
        with pytest.raises(StreamClosed) as closed:
            await stream.receive()
        assert closed.value.reason == "cluster id is c1, this agent belongs to c2"
        with pytest.raises(StreamClosed, match="belongs to c2"):
            await stream.send(b"more")


async def test_the_diallers_reason_reaches_the_handler(address: str) -> None:
    reasons: asyncio.Queue[str] = asyncio.Queue()

    async def listen(stream: MessageStream) -> None:
        try:
            await stream.receive()
        except StreamClosed as closed:
            await reasons.put(closed.reason)

    async with listener(address, agent=listen) as listening:
        stream = await StreamDialer().dial(listening.address, "/agent")
        await stream.close("ü" * 100)  # longer than a close frame holds, cut between characters
        await stream.close("again")
        assert await reasons.get() == "ü" * 60


async def test_a_handler_that_returns_closes_its_stream(address: str) -> None:
    async def leave(stream: MessageStream) -> None:
        return None

    async with listener(address, agent=leave) as listening:
        stream = await StreamDialer().dial(listening.address, "/agent")
        with pytest.raises(StreamClosed):
            await stream.receive()


async def test_a_handler_that_raises_is_reported_and_its_stream_closed(address: str) -> None:
    failures: list[str] = []

    async def broken(stream: MessageStream) -> None:
        raise LookupError("no such thing")

    listening = await WebSocketListener(lambda what, why: failures.append(str(why))).listen(
        address, {"/agent": broken}
    )
    stream = await StreamDialer().dial(listening.address, "/agent")
    with pytest.raises(StreamClosed, match="internal error"):
        await stream.receive()
    await listening.aclose()
    assert failures == ["no such thing"]


async def test_closing_the_listener_ends_streams_and_handlers(address: str) -> None:
    cancelled = []
    entered = asyncio.Event()

    async def stay(stream: MessageStream) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(True)

    async with listener(address, agent=stay) as listening:
        stream = await StreamDialer().dial(listening.address, "/agent")
        await entered.wait()
    assert cancelled == [True]
    with pytest.raises(StreamClosed, match="stopping"):
        await stream.receive()
    with pytest.raises(StreamClosed, match="cannot reach"):
        await StreamDialer().dial(listening.address, "/agent")


async def test_send_waits_while_the_other_end_does_not_read(address: str) -> None:
    go_on = asyncio.Event()
    received: list[int] = []

    async def slow(stream: MessageStream) -> None:
        await go_on.wait()
        while True:
            received.append(len(await stream.receive()))

    async with listener(address, agent=slow) as listening, Tasks() as tasks:
        stream = await StreamDialer().dial(listening.address, "/agent")
        sent = 0

        async def flood() -> None:
            nonlocal sent
            for _ in range(40):
                await stream.send(b"x" * 1_000_000)
                sent += 1

        flooding = tasks.start(flood(), name="flood")
        before = -1
        while before != sent:  # until nothing more goes out
            before = sent
            await asyncio.sleep(0.05)
        assert sent < 30
        go_on.set()
        await flooding
        await stream.close()
    assert received == [1_000_000] * 40


async def test_a_message_above_the_bound_is_refused_by_both_ends(address: str) -> None:
    async with listener(address, echo=echo) as listening:
        stream = await StreamDialer().dial(listening.address, "/echo")
        with pytest.raises(ValueError, match="at most 8388608"):
            await stream.send(bytes(MESSAGE_MAX + 1))
        await stream._connection.send(bytes(MESSAGE_MAX + 1))
        with pytest.raises(StreamClosed, match="exceeds limit"):
            await stream.receive()


async def test_receive_can_be_cancelled_without_losing_a_message(address: str) -> None:
    async with listener(address, echo=echo) as listening:
        stream = await StreamDialer().dial(listening.address, "/echo")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await stream.receive()
        await stream.send(b"kept")
        assert await stream.receive() == b"kept"
        await stream.close()
