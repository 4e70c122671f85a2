"""A tiny router: follows the watch stream as the real one does, and records what it was given.

Laws: it keeps its endpoints while the server is away; it acknowledges a revision only when nothing new
would go to what that revision withdrew; it sends no requests (the real router joins later).
"""

import asyncio
import random
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from llmgw.aio.mailbox import Mailbox
from llmgw.aio.tasks import Tasks
from llmgw.core import defaults
from llmgw.net.streams import StreamDialer
from llmgw.ports import MessageStream, StreamClosed
from llmgw.sim.facts import RouterFact
from llmgw.sim.machine import SimProcess
from llmgw.wire import watch_v1 as wire
from llmgw.wire.envelope import Unknown

_RECONNECT_S = 0.5  # a child on the server's own machine; the real router's backoff is tested with it
_WAITING_MAX = 1000  # messages received and not applied yet, of a router that is slow


class RouterEyes(Protocol):
    """Hears what a router is given."""

    def router_started(self, router: RouterFact) -> None: ...

    def published(self, router: RouterFact, endpoint: wire.EndpointEntry) -> None: ...

    def withdrawn(self, router: RouterFact, endpoint: str) -> None: ...


class RouterPlan(msgspec.Struct, frozen=True):
    """What one router process is started with."""

    watch: str
    settings_hash: str
    index: int
    version: str


class SimRouter:
    """The program of one router process."""

    def __init__(
        self, plan: RouterPlan, eyes: RouterEyes, apply_delay_s: Callable[[], float], draw: random.Random
    ) -> None:
        self._plan = plan
        self._eyes = eyes
        self._apply_delay_s = apply_delay_s
        self._id = f"r-{draw.getrandbits(32):08x}"
        self.fact = RouterFact("")
        self._unheard: frozenset[str] = frozenset()
        self._kept: set[str] = set()  # of an earlier server, on nodes the present one has not heard

    def catches(self, signum: int) -> bool:
        """It dies of every signal: it holds nothing that must be finished."""
        return False

    async def run(self, process: SimProcess) -> int:
        """Follow the stream until told to drain."""
        self.fact.name = process.name
        self._eyes.router_started(self.fact)
        while True:
            try:
                stream = await StreamDialer().dial(self._plan.watch, "/watch")
            except StreamClosed:
                await asyncio.sleep(_RECONNECT_S)
                continue
            drained = await self._follow(stream, process)
            self.fact.connected_since = None
            if drained:
                return 0
            await asyncio.sleep(_RECONNECT_S)

    async def _follow(self, stream: MessageStream, process: SimProcess) -> bool:
        """Until the stream ends; whether this router was told to end."""
        loop = asyncio.get_running_loop()
        arrived: Mailbox[wire.Snapshot | wire.Update] = Mailbox(_WAITING_MAX)
        async with Tasks() as tasks:
            try:
                await stream.send(wire.encode(self._hello(process)))
                tasks.start(self._report_use(stream, loop.time()), name="use")
                tasks.start(self._apply_all(stream, arrived), name="apply")
                while True:
                    message = wire.decode_down(await stream.receive())
                    if self.fact.connected_since is None:
                        self.fact.connected_since = loop.time()
                    match message:
                        case wire.Snapshot() | wire.Update():
                            self._note_withdrawals(message, loop.time())
                            await arrived.put(message)
                        case wire.Drain() | wire.Refused():
                            return isinstance(message, wire.Drain)
                        case wire.UsageStored() | Unknown():
                            pass
            except StreamClosed:
                return False
            finally:
                await stream.close()

    def _hello(self, process: SimProcess) -> wire.Hello:
        plan = self._plan
        return wire.Hello(
            router_id=self._id,
            version=plan.version,
            settings_hash=plan.settings_hash,
            pid=process.pid,
            start_time=process.identity.start_time,
            index=plan.index,
        )

    async def _report_use(self, stream: MessageStream, began: float) -> None:
        while True:
            now = asyncio.get_running_loop().time()
            use = {name: wire.EndpointUse(in_flight=0) for name in self.fact.endpoints}
            try:
                await stream.send(wire.encode(wire.Use(use, known_s=now - began)))
            except StreamClosed:
                return
            await asyncio.sleep(defaults.TICK_S)

    def _note_withdrawals(self, message: wire.Snapshot | wire.Update, now: float) -> None:
        for name in self._gone(message):
            self.fact.withdrawn_at.setdefault(name, (now, message.revision))

    def _gone(self, message: wire.Snapshot | wire.Update) -> Iterable[str]:
        named = {entry.id for entry in message.endpoints}
        if message.unheard is not None:
            self._unheard = frozenset(message.unheard)
        if isinstance(message, wire.Snapshot):
            self._kept = {id for id in self.fact.endpoints if id not in named}
        self._kept -= named
        dropped = [id for id in self._kept if self._node_of(id) not in self._unheard]
        told = message.gone_endpoints if isinstance(message, wire.Update) else ()
        return sorted({*told, *dropped})

    def _node_of(self, endpoint: str) -> str | None:
        entry = self.fact.endpoints.get(endpoint)
        return None if entry is None else entry.node

    async def _apply_all(self, stream: MessageStream, arrived: Mailbox[wire.Snapshot | wire.Update]) -> None:
        while True:
            message = await arrived.get()
            delay = self._apply_delay_s()
            if delay > 0:
                await asyncio.sleep(delay)
            self._apply(message)
            try:
                await stream.send(wire.encode(wire.Applied(message.revision)))
            except StreamClosed:
                return

    def _apply(self, message: wire.Snapshot | wire.Update) -> None:
        fact = self.fact
        for name in self._gone(message):
            if fact.endpoints.pop(name, None) is not None:
                self._eyes.withdrawn(fact, name)
        for entry in message.endpoints:
            told = fact.withdrawn_at.get(entry.id)
            if told is not None and told[1] < message.revision:
                del fact.withdrawn_at[entry.id]
            if fact.endpoints.get(entry.id) != entry:
                fact.endpoints[entry.id] = entry
                self._eyes.published(fact, entry)
