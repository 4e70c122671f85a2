"""The simulated router: follows the stream, acknowledges what is in force, keeps what it has while alone."""

import asyncio
import random
from collections.abc import Callable

import pytest

from llmgw.net.streams import WebSocketListener
from llmgw.ports import MessageStream, SpawnSpec
from llmgw.sim.facts import RouterFact
from llmgw.sim.loop import SimLoop
from llmgw.sim.machine import SimMachine, no_such_program
from llmgw.sim.network import SimNetwork
from llmgw.sim.router import RouterPlan, SimRouter
from llmgw.wire import watch_v1 as wire
from tests.sim.test_machine import Witness

WATCH = "unix:/sim/server/watch.sock"


class Desk:
    """A control plane's end of the watch stream, played by hand, and what the router did."""

    def __init__(self, delay: Callable[[], float] = lambda: 0.0) -> None:
        self.network = SimNetwork(random.Random(1))
        self.loop = SimLoop(self.network)
        self.machine = SimMachine("server", "10.0.0.9", self.network, no_such_program, Witness())
        self.seen: list[tuple[str, str]] = []
        self.streams: asyncio.Queue[MessageStream] = asyncio.Queue()
        self.router = SimRouter(RouterPlan(WATCH, "hash", 0, "1"), self, delay, random.Random(2))

    def router_started(self, router: RouterFact) -> None:
        self.seen.append(("started", ""))

    def published(self, router: RouterFact, endpoint: wire.EndpointEntry) -> None:
        self.seen.append(("published", endpoint.id))

    def withdrawn(self, router: RouterFact, endpoint: str) -> None:
        self.seen.append(("withdrawn", endpoint))

    async def accept(self, stream: MessageStream) -> None:
        await self.streams.put(stream)
        await asyncio.get_running_loop().create_future()


async def applied(stream: MessageStream) -> int:
    """The next revision the router acknowledges."""
    while True:
        message = wire.decode_up(await stream.receive())
        if isinstance(message, wire.Applied):
            return message.revision


def entry(name: str) -> wire.EndpointEntry:
    return wire.EndpointEntry(name, "m", "10.0.0.1", 20000)


def snapshot(revision: int, *names: str) -> bytes:
    return wire.encode(wire.Snapshot(revision, "c", 1, endpoints=tuple(entry(name) for name in names)))


def test_a_router_applies_acknowledges_and_keeps_its_endpoints_without_a_server() -> None:
    desk = Desk()

    async def main() -> None:
        with desk.network.running_as("10.0.0.9", "server"):
            listening = await WebSocketListener().listen(WATCH, {"/watch": desk.accept})
        process = desk.machine.start(SpawnSpec(("router",), {}, ""), desk.router)
        stream = await desk.streams.get()
        hello = wire.decode_up(await stream.receive())
        assert isinstance(hello, wire.Hello)
        assert (hello.pid, hello.settings_hash) == (process.pid, "hash")
        await stream.send(snapshot(4, "a-1", "b-1"))
        assert await applied(stream) == 4
        await stream.send(wire.encode(wire.Update(5, gone_endpoints=("a-1",))))
        assert await applied(stream) == 5
        await stream.close()
        await asyncio.sleep(0.1)
        assert set(desk.router.fact.endpoints) == {"b-1"}
        assert desk.router.fact.connected_since is None
        again = await desk.streams.get()
        await again.send(snapshot(9, "c-1"))
        assert await applied(again) == 9
        await again.send(wire.encode(wire.Drain("replaced", 3.0)))
        assert await process.exited == 0
        await listening.aclose()

    desk.loop.run_for(main(), 100)
    desk.loop.finish()
    assert desk.seen == [
        ("started", ""),
        ("published", "a-1"),
        ("published", "b-1"),
        ("withdrawn", "a-1"),
        ("withdrawn", "b-1"),
        ("published", "c-1"),
    ]


@pytest.mark.parametrize("delay", [0.0, 3.0])
def test_a_slow_router_notes_when_it_was_told_and_acknowledges_when_it_is_done(delay: float) -> None:
    desk = Desk(lambda: delay)

    async def main() -> None:
        with desk.network.running_as("10.0.0.9", "server"):
            listening = await WebSocketListener().listen(WATCH, {"/watch": desk.accept})
        process = desk.machine.start(SpawnSpec(("router",), {}, ""), desk.router)
        stream = await desk.streams.get()
        await stream.send(snapshot(1, "a-1"))
        assert await applied(stream) == 1
        told = desk.loop.time()
        await stream.send(wire.encode(wire.Update(2, gone_endpoints=("a-1",))))
        await asyncio.sleep(0.1)
        assert ("a-1" in desk.router.fact.endpoints) == (delay > 0)
        assert desk.router.fact.withdrawn_at["a-1"][0] == pytest.approx(told, abs=0.1)
        assert await applied(stream) == 2
        assert desk.loop.time() - told == pytest.approx(delay, abs=0.1)
        desk.machine.kill(process.identity, 9)
        await listening.aclose()

    desk.loop.run_for(main(), 100)
    desk.loop.finish()
