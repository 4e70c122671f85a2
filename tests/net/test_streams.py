"""Streams over real sockets: identity of peers, dead peers, addresses that do not answer."""

import asyncio
import os
from pathlib import Path
from typing import cast

import pytest

from llmgw.aio.tasks import Tasks
from llmgw.net import streams
from llmgw.net.streams import StreamDialer, WebSocketListener
from llmgw.ports import MessageStream, Peer, StreamClosed


async def test_the_peer_on_a_unix_socket_is_known_by_pid(tmp_path: Path) -> None:
    peers: list[Peer] = []

    async def note(stream: MessageStream) -> None:
        peers.append(stream.peer)

    listening = await WebSocketListener().listen(f"unix:{tmp_path}/s.sock", {"/watch": note})
    stream = await StreamDialer().dial(listening.address, "/watch")
    with pytest.raises(StreamClosed):
        await stream.receive()
    await listening.aclose()
    assert peers == [Peer(address=f"unix:{tmp_path}/s.sock", pid=os.getpid())]
    assert stream.peer.pid == os.getpid()


async def test_the_peer_on_tcp_is_known_by_address() -> None:
    peers: list[Peer] = []

    async def note(stream: MessageStream) -> None:
        peers.append(stream.peer)

    listening = await WebSocketListener().listen("127.0.0.1:0", {"/agent": note})
    stream = await StreamDialer().dial(listening.address, "/agent")
    with pytest.raises(StreamClosed):
        await stream.receive()
    await listening.aclose()
    assert peers[0].address.startswith("127.0.0.1:")
    assert peers[0].pid is None
    assert stream.peer.address == listening.address


@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_dialling_literal_addresses_starts_no_thread() -> None:
    async def leave(stream: MessageStream) -> None:
        return None

    def no_threads(*args: object) -> None:
        raise AssertionError("a thread was asked for")

    loop = asyncio.get_running_loop()
    loop.run_in_executor = no_threads  # type: ignore[method-assign,assignment]
    for address in ("127.0.0.1:0", "[::1]:0"):
        try:
            listening = await WebSocketListener().listen(address, {"/agent": leave})
        except OSError:
            assert "::1" in address, "only IPv6 may be missing"
            continue
        await StreamDialer().dial(listening.address, "/agent")
        await listening.aclose()


async def test_an_address_that_does_not_answer_is_given_up_in_time() -> None:
    silent = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    with pytest.raises(StreamClosed, match=r"no answer from .* within 0\.05 s"):
        await StreamDialer().dial(f"127.0.0.1:{port}", "/agent", within=0.05)
    silent.close()


@pytest.mark.parametrize(
    ("address", "says"),
    [("127.0.0.1:1", "cannot reach"), ("nonsense", "not an address"), ("unix:/no/such.sock", "cannot reach")],
)
async def test_what_went_wrong_is_said(address: str, says: str) -> None:
    with pytest.raises(StreamClosed, match=says):
        await StreamDialer().dial(address, "/agent")


async def test_something_that_is_no_stream_server_is_said() -> None:
    class Other(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            opened = cast(asyncio.Transport, transport)
            opened.write(b"SSH-2.0-other\r\n")
            opened.close()

    server = await asyncio.get_running_loop().create_server(Other, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        with pytest.raises(StreamClosed, match=r"127\.0\.0\.1"):
            await StreamDialer().dial(f"127.0.0.1:{port}", "/agent")
    finally:
        server.close()


async def test_a_peer_that_vanishes_without_a_word_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "PING_EVERY_S", 0.05)
    monkeypatch.setattr(streams, "PING_ANSWER_S", 0.05)
    reasons: list[str] = []
    noticed = asyncio.Event()

    async def listen(stream: MessageStream) -> None:
        try:
            await stream.receive()
        except StreamClosed as closed:
            reasons.append(closed.reason)
            noticed.set()

    listening = await WebSocketListener().listen("127.0.0.1:0", {"/agent": listen})
    stream = await StreamDialer().dial(listening.address, "/agent")
    stream._connection.transport.pause_reading()  # a peer whose network is gone answers no ping
    await noticed.wait()
    assert reasons == ["keepalive ping timeout"]
    stream._connection.transport.abort()
    await listening.aclose()


async def test_closing_does_not_wait_for_a_connection_that_never_spoke(tmp_path: Path) -> None:
    async def leave(stream: MessageStream) -> None:
        return None

    listening = await WebSocketListener().listen(f"unix:{tmp_path}/s.sock", {"/watch": leave})
    mute, _ = await asyncio.get_running_loop().create_unix_connection(asyncio.Protocol, f"{tmp_path}/s.sock")
    await asyncio.sleep(0.01)
    async with asyncio.timeout(1), Tasks() as tasks:
        await tasks.start(listening.aclose(), name="closing")
    mute.abort()
