"""The server's process in a simulation: the production control plane and router children, simulated ports.

Laws: built by the functions production calls; the admin listener is left out (nobody in here looks at
pages), and so are configuration files.
"""

import asyncio
import random
from collections.abc import Callable

import msgspec
from sqlalchemy import Engine

from llmgw.control.admin import Admin
from llmgw.control.children import RouterChildren, RouterPlan
from llmgw.control.plane import ControlPlane, ControlPorts, PlaneSettings
from llmgw.core import defaults
from llmgw.core.catalog import Catalog
from llmgw.core.claims import PortRange
from llmgw.core.fleet_state import FleetSettings
from llmgw.core.inventory import PresenceLimits
from llmgw.core.units import GB
from llmgw.entry.server import build_control, prepare_store, read_first_keys
from llmgw.net.streams import WebSocketListener
from llmgw.ports import Clock, LeaseOwner, ProcessId
from llmgw.sim.machine import SimMachine, SimProcess
from llmgw.sim.options import Options
from llmgw.store.inline import Hooks, InlineDatabase
from llmgw.store.store import SqlStore

STATE_DIR = "/sim/server"
PORT = 8443
VERSION = "sim"


class ServerPorts(msgspec.Struct, frozen=True):
    """What servers of one simulation share, one process after the other."""

    machine: SimMachine
    database: Engine
    hooks: Hooks
    clock: Clock
    draw: random.Random
    catalog: Callable[[], Catalog]


def plane_settings(options: Options, address: str) -> PlaneSettings:
    """The control plane's settings of a run."""
    return PlaneSettings(
        fleet=FleetSettings(
            presence=PresenceLimits(defaults.UNREACHABLE_AFTER_S, options.lost_after_s),
            settling_s=options.settling_s,
            drain_grace_s=options.drain_grace_s,
            withdrawal_ack_s=defaults.WITHDRAWAL_ACK_S,
            # Few ports, so that one is given again soon after it was released.
            ports=PortRange(20000, 20015),
            foreign_memory_bytes=GB,
        ),
        agents_listen=f"{address}:{PORT}",
        watch_listen=f"unix:{STATE_DIR}/watch.sock",
        tick_s=defaults.TICK_S,
        heartbeat_s=defaults.HEARTBEAT_S,
        stop_grace_s=defaults.STOP_GRACE_S,
        lease_s=defaults.LEASE_S,
        version=VERSION,
    )


def router_plan() -> RouterPlan:
    """How the server starts its routers."""
    return RouterPlan(
        processes=1,
        argv=("llmgw", "router", "--child", f"{STATE_DIR}/router.json"),
        env={},
        state_dir=STATE_DIR,
        log_path=f"{STATE_DIR}/router.log",
        version=VERSION,
        settings_hash="settings",
        drain_s=defaults.ROUTER_DRAIN_UP_S,
    )


class SimServer:
    """One server process."""

    def __init__(self, plane: ControlPlane, children: RouterChildren) -> None:
        self.plane = plane
        self.admin = Admin(plane)
        self._children = children
        self._begun = asyncio.Event()
        self._closing = False

    async def run(self) -> None:
        """Serve until closed."""
        try:
            await self.plane.start()
            await self._children.start()
        finally:
            self._begun.set()
        await self.plane.run()
        if not self._closing:
            raise RuntimeError("the control plane broke on a bug")

    async def aclose(self) -> None:
        """In the order production closes, and like there not before everything was opened."""
        await self._begun.wait()
        self._closing = True
        await self._children.aclose()
        await self.plane.aclose()


async def build_server(process: SimProcess, options: Options, ports: ServerPorts) -> SimServer:
    """As `llmgw server` does it. Raises `CannotRun`."""
    machine, identity = ports.machine, process.identity
    database = InlineDatabase(ports.database, ports.hooks)
    store = SqlStore(
        database,
        lambda holder: not machine.alive(ProcessId(holder.boot_id, holder.pid, holder.start_time)),
    )
    owner = LeaseOwner(
        f"{ports.draw.getrandbits(64):016x}", identity.boot_id, identity.pid, identity.start_time
    )
    await prepare_store(database, store, owner, ports.draw)
    control = ControlPorts(ports.clock, store, WebSocketListener(), ports.draw, owner)
    plane = build_control(plane_settings(options, machine.address), ports.catalog(), control)
    await read_first_keys(plane)
    return SimServer(plane, RouterChildren(router_plan(), machine, plane.routers))
