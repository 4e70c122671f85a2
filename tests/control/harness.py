"""A real control plane on real sockets over a real store, with agents and routers a test speaks for.

Laws: time is the loop's, with short settings; nothing is waited for by sleeping, only by what happens.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self, TypeVar

import msgspec

from llmgw.aio.tasks import Tasks
from llmgw.control.plane import ControlPlane, ControlPorts, PlaneSettings
from llmgw.core.catalog import Catalog
from llmgw.core.claims import PortRange
from llmgw.core.fleet_state import FleetSettings
from llmgw.core.inventory import EngineInstall, NodeReport, PresenceLimits
from llmgw.core.replica import phase_of
from llmgw.core.units import GB
from llmgw.entry.server import build_control
from llmgw.net.streams import StreamDialer, WebSocketListener
from llmgw.ports import LeaseOwner, MessageStream, StoreUnavailable, StreamClosed
from llmgw.store.inline import InlineDatabase, Kind, inline_engine
from llmgw.store.store import SqlStore, migrate
from llmgw.wire import agent_v1, watch_v1
from tests.core.makers import catalog, definition

M = TypeVar("M")

SOON_S = 10.0  # what a test waits for at most; everything here takes milliseconds


def one_model(count: int = 1) -> Catalog:
    return catalog(definition("m", {"engine": "sim"}, scaling={"min": count}))


async def until(holds: Callable[[], bool], what: str = "it") -> None:
    """Wait until something holds that no message tells of."""
    try:
        async with asyncio.timeout(SOON_S):
            while not holds():  # noqa: ASYNC110  what it looks at tells nobody when it changes
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"{what} did not come true") from None


class WallClock:
    """A clock that stands unless moved."""

    def __init__(self) -> None:
        self.at = 1_000_000.0

    def now(self) -> float:
        return self.at


class Faults:
    """A store that is away while `away` is set, and that stalls while `gate` is shut."""

    def __init__(self) -> None:
        self.away = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def before(self, kind: Kind) -> None:
        await self.gate.wait()
        if self.away:
            raise StoreUnavailable("cut by the test")

    async def after(self, kind: Kind) -> None:
        """Nothing is lost on its way back here."""


class Site:
    """What outlives a server: its store, its clock, its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = WallClock()
        self.faults = Faults()
        # The database's clock moves as the loop's does, so that leases run.
        self.engine = inline_engine(asyncio.get_running_loop().time)
        self.database = InlineDatabase(self.engine, self.faults)
        self.draw = random.Random(11)
        self.dead: set[str] = set()

    async def open(self) -> Self:
        await migrate(self.database, self.draw)
        return self

    def store(self) -> SqlStore:
        return SqlStore(self.database, lambda holder: holder.owner in self.dead)

    @asynccontextmanager
    async def server(
        self, catalog: Catalog | None = None, name: str = "server-1", **settings: object
    ) -> AsyncIterator["Server"]:
        """A running control plane."""
        owner = LeaseOwner(name, "boot", 100, 1)
        ports = ControlPorts(self.clock, self.store(), WebSocketListener(), self.draw, owner)
        plane = build_control(self.settings(**settings), catalog or one_model(), ports)
        await plane.keeper.read_keys()
        await plane.start()
        server = Server(plane)
        try:
            yield server
        finally:
            await server.aclose()
            self.dead.add(name)

    def settings(self, **changed: object) -> PlaneSettings:
        fleet = FleetSettings(
            presence=PresenceLimits(15.0, 120.0),
            settling_s=0.0,
            drain_grace_s=600.0,
            withdrawal_ack_s=2.0,
            ports=PortRange(20000, 20099),
            foreign_memory_bytes=GB,
        )
        names = fleet.__struct_fields__
        fleet = msgspec.structs.replace(fleet, **{k: v for k, v in changed.items() if k in names})
        plain = PlaneSettings(
            fleet=fleet,
            agents_listen="127.0.0.1:0",
            watch_listen=f"unix:{self.folder / 'watch.sock'}",
            tick_s=0.05,
            heartbeat_s=0.5,
            stop_grace_s=1.0,
            lease_s=3.0,
            version="0.1.0",
        )
        return msgspec.structs.replace(plain, **{k: v for k, v in changed.items() if k not in names})


class Server:
    """A control plane with the ends a test holds on to."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self._closed = False
        self._ends: list[Callable[[], Awaitable[None]]] = []

    async def agent(self, id: str = "n1", **fields: object) -> "Agent":
        """An agent that has registered and obeys."""
        agent = Agent(await StreamDialer().dial(self.plane.agents_address, "/agent"), id)
        self._ends.append(agent.aclose)
        await agent.register(**fields)
        return agent

    async def router(self, id: str = "r1", **fields: object) -> "Router":
        """A router that has said hello and acknowledges."""
        router = Router(await StreamDialer().dial(self.plane.settings.watch_listen, "/watch"))
        self._ends.append(router.aclose)
        plain = watch_v1.Hello(id, "0.1.0", "hash", 900, 55)
        await router.say(msgspec.structs.replace(plain, **fields))
        return router

    def phases(self) -> list[str]:
        return sorted(phase_of(one).value for one in self.plane.owner.state().replicas.values())

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            for end in reversed(self._ends):
                await end()
            await self.plane.aclose()


class End:
    """One end of a stream: what came over it, in order, and a way to wait for a kind of message."""

    def __init__(self, stream: MessageStream) -> None:
        self.stream = stream
        self.heard: list[object] = []
        self.closed: str | None = None  # why it ended
        self._news = asyncio.Event()
        self._tasks = Tasks()
        self._tasks.start(self._listen(), name="test end of a stream")

    async def _listen(self) -> None:
        try:
            while True:
                message = self.decode(await self.stream.receive())
                self.heard.append(message)
                await self.obey(message)
                self._news.set()
        except StreamClosed as closed:
            self.closed = closed.reason
            self._news.set()

    def decode(self, data: bytes) -> object:
        raise NotImplementedError

    async def obey(self, message: object) -> None:
        """What it does about a message."""

    def all(self, kind: type[M]) -> list[M]:
        return [message for message in self.heard if isinstance(message, kind)]

    async def next(self, kind: type[M], holds: Callable[[M], bool] = lambda _: True) -> M:
        """The first message of a kind for which something holds, whether it came already or comes yet."""
        async with asyncio.timeout(SOON_S):
            while True:
                found = [message for message in self.all(kind) if holds(message)]
                if found:
                    return found[0]
                assert self.closed is None, f"closed while waiting for {kind.__name__}: {self.closed}"
                self._news.clear()
                await self._news.wait()

    async def end(self) -> str:
        """Wait until the other side closes; what it said."""
        async with asyncio.timeout(SOON_S):
            while self.closed is None:
                self._news.clear()
                await self._news.wait()
        return self.closed

    async def aclose(self) -> None:
        await self.stream.close()
        await self._tasks.aclose()


class Agent(End):
    """Speaks for a node."""

    def __init__(self, stream: MessageStream, id: str) -> None:
        self.id = id
        self.obedient = True
        self.shards: dict[agent_v1.ShardKey, agent_v1.ShardReport] = {}
        super().__init__(stream)

    def decode(self, data: bytes) -> object:
        return agent_v1.decode_down(data)

    async def say(self, message: agent_v1.Up) -> None:
        await self.stream.send(agent_v1.encode(message))

    async def register(self, **fields: object) -> None:
        node = NodeReport(
            self.id,
            "127.0.0.1",
            memory_total_bytes=64 * GB,
            gpus=(),
            engines={"sim": EngineInstall("sim")},
        )
        plain = agent_v1.Register(f"instance-{self.id}", "boot", node)
        shards = fields.get("shards", ())
        assert isinstance(shards, tuple)
        self.shards = {shard.key: shard for shard in shards}
        await self.say(msgspec.structs.replace(plain, **fields))

    async def report(self, key: agent_v1.ShardKey, phase: str, **fields: object) -> None:
        self.shards[key] = msgspec.structs.replace(self.shards[key], phase=phase, **fields)
        await self.say(agent_v1.ShardStatus(self.shards[key]))

    def running(self) -> tuple[agent_v1.ShardReport, ...]:
        return tuple(self.shards.values())

    async def obey(self, message: object) -> None:
        if not self.obedient:
            return
        match message:
            case agent_v1.StartShard():
                if message.spec.key not in self.shards:
                    self.shards[message.spec.key] = reported(message.spec)
                    await self.report(message.spec.key, "starting")
                await self.report(message.spec.key, "ready")
            case agent_v1.StopShard():
                if message.key in self.shards:
                    await self.report(message.key, "gone")
            case agent_v1.ForgetShard():
                self.shards.pop(message.key, None)
            case _:
                pass


def reported(spec: agent_v1.ShardSpec) -> agent_v1.ShardReport:
    """A shard as an agent reports it that was started by `spec`."""
    return agent_v1.ShardReport(
        key=spec.key,
        phase="starting",
        model=spec.model,
        profile=spec.profile,
        fingerprint=spec.fingerprint,
        engine=spec.engine,
        shard_count=spec.shard_count,
        address=spec.address,
        port=spec.port,
        claim=spec.claim,
        engine_key=spec.engine_key,
        pid=4711,
    )


class Router(End):
    """Follows the table as routers do."""

    def __init__(self, stream: MessageStream) -> None:
        self.obedient = True
        self.revision = 0
        self.endpoints: dict[str, watch_v1.EndpointEntry] = {}
        self.models: dict[str, watch_v1.ModelEntry] = {}
        self.keys: dict[str, watch_v1.KeyEntry] = {}
        super().__init__(stream)

    def decode(self, data: bytes) -> object:
        return watch_v1.decode_down(data)

    async def say(self, message: watch_v1.Up) -> None:
        await self.stream.send(watch_v1.encode(message))

    async def obey(self, message: object) -> None:
        match message:
            case watch_v1.Snapshot():
                self.endpoints, self.models, self.keys = {}, {}, {}
            case watch_v1.Update():
                for id in message.gone_endpoints:
                    del self.endpoints[id]
                for name in message.gone_models:
                    del self.models[name]
                for key in message.gone_keys:
                    del self.keys[key]
            case _:
                return
        self.endpoints |= {one.id: one for one in message.endpoints}
        self.models |= {one.name: one for one in message.models}
        self.keys |= {one.public_id: one for one in message.keys}
        self.revision = message.revision
        if self.obedient:
            await self.say(watch_v1.Applied(message.revision))
            await self.use({})

    async def use(self, in_flight: Mapping[str, int]) -> None:
        await self.say(
            watch_v1.Use({id: watch_v1.EndpointUse(count, 0.0) for id, count in in_flight.items()})
        )
