"""The control plane of one server: joins the fleet's owner with the streams, the store and the routers.

Laws: it is built from settings and ports only, so that the simulator builds the same; it opens its
listeners before it leads, and leads before it places anything.
"""

import asyncio
import random
from collections.abc import Mapping

import msgspec

from llmgw.aio.closing import Closing
from llmgw.aio.every import every
from llmgw.aio.tasks import Tasks
from llmgw.control import translate
from llmgw.control.agents import AgentHub
from llmgw.control.keeper import Storekeeper
from llmgw.control.leadership import Leadership
from llmgw.control.owner import Owner
from llmgw.control.table import build_table
from llmgw.control.watchers import Current, RouterHub
from llmgw.core import happenings as h
from llmgw.core.catalog import Catalog
from llmgw.core.fleet import Fleet
from llmgw.core.fleet_state import FleetSettings
from llmgw.ports import Clock, ControlStore, LeaseOwner, StreamHandler, StreamListener
from llmgw.wire import agent_v1


class CannotListen(Exception):
    """An address cannot be had; the text names it and the system's reason."""


class PlaneSettings(msgspec.Struct, frozen=True):
    """What one control plane runs with; addresses as `ports.StreamListener` takes them, seconds."""

    fleet: FleetSettings
    agents_listen: str
    watch_listen: str
    tick_s: float
    heartbeat_s: float
    stop_grace_s: float
    lease_s: float
    version: str


class ControlPorts(msgspec.Struct, frozen=True):
    """Everything outside that a control plane touches."""

    clock: Clock
    store: ControlStore
    listener: StreamListener
    draw: random.Random
    owner: LeaseOwner


class ControlPlane:
    """A running control plane."""

    def __init__(self, settings: PlaneSettings, catalog: Catalog, ports: ControlPorts) -> None:
        self.settings = settings
        self.store = ports.store
        self.clock = ports.clock
        self._ports = ports
        self._tasks = Tasks()
        self._closing = Closing()
        self.owner = Owner(Fleet(settings.fleet, catalog), ports.draw, settings.tick_s)
        self.keeper = Storekeeper(ports.store, ports.clock, self.owner.tell)
        self.agents = AgentHub(self.owner.tell, self._tasks)
        self.routers = RouterHub(self.owner.tell, self.keeper.store_usage, self._tasks)
        self.leadership = Leadership(ports.store, ports.owner, settings.lease_s, self.owner.tell)
        self.agents_address = settings.agents_listen
        self._deciding: asyncio.Task[None] | None = None
        self._created = int(ports.clock.now())

    async def start(self) -> None:
        """Open the listeners and begin. Raises `CannotListen` for an address that cannot be had."""
        streams = {"/agent": self.agents.serve, "/watch": self.routers.serve}
        self.agents_address = await self._listen("agents.listen", self.settings.agents_listen, streams)
        await self._listen("the routers' socket", self.settings.watch_listen, {"/watch": self.routers.serve})
        self._deciding = self._tasks.start(self.owner.run(self), name="owner of the fleet")
        renew_s = self.leadership.renew_every_s
        self._tasks.start(every(renew_s, self.leadership.beat, name="lease"), name="lease")
        self._tasks.start(every(1.0, self.keeper.beat, name="storekeeper"), name="storekeeper")

    async def _listen(self, what: str, address: str, streams: Mapping[str, StreamHandler]) -> str:
        try:
            listening = await self._ports.listener.listen(address, streams)
        except OSError as error:
            raise CannotListen(f"{what} {address} cannot be opened: {error.strerror or error}") from error
        self._closing.add(what, listening.aclose)
        return listening.address

    async def run(self) -> None:
        """Until the owner fails, which only a bug makes it do; a server without it must not stay up."""
        assert self._deciding is not None, "started first"
        await asyncio.wait([self._deciding])

    async def change_catalog(self, catalog: Catalog) -> None:
        """Make another catalog current; takes effect at the next turn (C13)."""
        await self.owner.tell(h.CatalogChanged(catalog))

    async def aclose(self) -> None:
        """Stop; engines and routers are not ours to stop here."""
        await self._closing.aclose()
        await self.keeper.beat()
        await self.leadership.release()
        await self._tasks.aclose()

    # ------------------------------------------------------------ Performer

    def welcome(self, effect: h.WelcomeAgent) -> None:
        """Accept an agent."""
        ports = self.settings.fleet.ports
        message = agent_v1.Welcome(
            cluster_id=effect.cluster_id,
            term=effect.term,
            heartbeat_s=self.settings.heartbeat_s,
            port_first=ports.first,
            port_last=ports.last,
            server_version=self.settings.version,
        )
        self.agents.send(effect.session, message)

    def refuse(self, effect: h.RefuseAgent) -> None:
        """Refuse an agent; its stream ends after the reason."""
        self.agents.send(effect.session, agent_v1.Refused(effect.reason))

    def start_shard(self, effect: h.StartShard) -> None:
        """Command a start."""
        message = translate.start_message(effect.term, effect.replica, effect.shard)
        self.agents.send(effect.session, message)

    def stop(self, effect: h.StopShard) -> None:
        """Command a stop."""
        key = translate.shard_key(effect.shard)
        message = agent_v1.StopShard(effect.term, key, self.settings.stop_grace_s, effect.reason)
        self.agents.send(effect.session, message)

    def forget(self, effect: h.ForgetShard) -> None:
        """Let an agent drop a record."""
        message = agent_v1.ForgetShard(effect.term, translate.shard_key(effect.shard))
        self.agents.send(effect.session, message)

    def publish(self, effect: h.Publish) -> None:
        """Tell routers what they serve now."""
        state = self.owner.state()
        now = asyncio.get_running_loop().time()
        table = build_table(state, self.keeper.keys, self._created, now)
        self.routers.publish(Current(table, effect.revision, state.cluster_id, state.term or 0))

    def remember(self, effect: h.RememberNode) -> None:
        """Add to the roster."""
        self.keeper.remember(effect.node, effect.address)

    def raise_term(self, effect: h.RaiseTerm) -> None:
        """Raise our term above one that was seen."""
        self._tasks.start(self.leadership.raise_above(effect.above), name="raise the term")

    def record(self, effect: h.Record) -> None:
        """Keep an event."""
        self.keeper.record(effect)
