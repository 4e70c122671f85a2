"""The client listener on real sockets: options only the kernel knows."""

import asyncio
import socket
from pathlib import Path

import pytest

from llmgw.net.addresses import BadAddress
from llmgw.net.http1.server import HttpListener
from llmgw.ports import Exchange
from tests.net.toolkit import FixedClock, Wire, echo, get, post, serving, until


async def test_a_successor_can_listen_before_its_predecessor_stops() -> None:
    async def say(exchange: Exchange) -> None:
        exchange.respond(200, [], b"")

    async with serving(say) as first:
        second = await HttpListener(FixedClock()).serve(first.address, say)
        first.stop_accepting()
        wire = await Wire.dial(second.address)
        await wire.send(get())
        assert (await wire.answer()).status == 200
        wire.abort()
        await second.aclose()
        await wire.gone()


async def test_small_pieces_are_not_delayed_by_the_kernel() -> None:
    delays: list[int] = []

    async def look(exchange: Exchange) -> None:
        transport = exchange._connection._transport  # type: ignore[attr-defined]
        sock = transport.get_extra_info("socket")
        delays.append(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        exchange.respond(200, [], b"")

    async with serving(look) as listener:
        wire = await Wire.dial(listener.address)
        await wire.send(get())
        await wire.answer()
        await wire.gone()
    assert delays == [1]


async def test_a_taken_port_is_an_error_of_the_system() -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    with pytest.raises(OSError, match="in use"):
        await HttpListener(FixedClock()).serve(f"127.0.0.1:{taken.getsockname()[1]}", echo)
    taken.close()


async def test_only_tcp_addresses_serve_clients(tmp_path: Path) -> None:
    with pytest.raises(BadAddress, match="host:port"):
        await HttpListener(FixedClock()).serve(f"unix:{tmp_path}/c.sock", echo)


async def test_a_request_in_single_bytes_is_served() -> None:
    async with serving(echo) as listener:
        wire = await Wire.dial(listener.address)
        for byte in post(b"slow"):
            await wire.send(bytes([byte]))
            await asyncio.sleep(0)
        assert (await wire.answer()).body == b"slow"
        await wire.gone()


async def test_draining_waits_for_answers_that_are_still_being_read() -> None:
    async def large(exchange: Exchange) -> None:
        exchange.respond(200, [], bytes(30_000_000))

    async with serving(large) as listener:
        wire = await Wire.dial(listener.address)
        await wire.send(get())
        await wire.head()
        await until(lambda: listener.in_flight == 0)
        listener.stop_accepting()
        assert not await listener.drained(0.05)
        assert len(await wire.closed()) == 30_000_000
        assert await listener.drained(20)
        await wire.gone()
