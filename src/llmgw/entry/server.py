"""Runs `llmgw server`: joins control plane, admin listener, store and router processes.

Laws: everything that can refuse does so before the first listener opens, in one line; a second server
on the same database is refused naming the one that leads (H2), and one whose predecessor died on another
machine waits for its lease to expire; SIGTERM stops routers after their drain and leaves engines running.
"""

import argparse
import asyncio
import contextlib
import logging
import os
import random
import secrets
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import uvicorn

from llmgw import __version__
from llmgw.aio.tasks import Tasks
from llmgw.control.admin import Admin
from llmgw.control.children import RouterChildren, RouterPlan
from llmgw.control.plane import CannotListen, ControlPlane, ControlPorts, PlaneSettings
from llmgw.core import defaults
from llmgw.core.catalog import Catalog
from llmgw.core.fleet_state import FleetSettings
from llmgw.engines import ENGINE_TRAITS
from llmgw.entry import router_settings
from llmgw.entry.config_common import ConfigError
from llmgw.entry.config_server import ServerConfig, load_server_config
from llmgw.entry.folders import ADMIN_ADDRESS
from llmgw.entry.paths import admin_token_path, watch_socket_path
from llmgw.entry.process import CannotRun, Stop, configure_logging, run_role
from llmgw.host.clock import SystemClock
from llmgw.host.offloop import OffLoop
from llmgw.host.processes import LinuxProcesses
from llmgw.net.streams import WebSocketListener
from llmgw.ports import Lease, LeaseOwner, ProcessId, StoreUnavailable
from llmgw.store.address import SqliteFile, parse_store_url
from llmgw.store.database import Database
from llmgw.store.migrations import NewerDatabase
from llmgw.store.opening import open_database
from llmgw.store.store import SqlStore, ensure_default_project, migrate
from llmgw.web.app import build_admin_app
from llmgw.web.options import AdminOptions

_LOG = logging.getLogger("llmgw.server")

LEASE_POLL_S = 1.0


def build_control(settings: PlaneSettings, catalog: Catalog, ports: ControlPorts) -> ControlPlane:
    """The control plane of one server; the simulator builds it from ports of its own."""
    return ControlPlane(settings, catalog, ports)


def main(argv: list[str]) -> int:
    """`llmgw server -c server.yaml`."""
    parser = argparse.ArgumentParser(prog="llmgw server", description="Control plane, admin and routers.")
    parser.add_argument("-c", "--config", required=True, type=Path, help="server.yaml")
    parser.add_argument("-v", "--verbose", action="store_true", help="log more")
    options = parser.parse_args(argv)
    configure_logging("server", verbose=options.verbose)
    try:
        config = load_server_config(options.config, ENGINE_TRAITS)
    except ConfigError as error:
        for line in error.lines:
            print(f"llmgw: {line}", file=sys.stderr)
        return 1
    return run_role(lambda stop: serve(config, stop))


async def serve(config: ServerConfig, stop: Stop) -> int:
    """Run until asked to stop. Raises `CannotRun`."""
    draw = random.SystemRandom()
    prepare_state_dir(config.state_dir)
    processes = LinuxProcesses(OffLoop())
    database = open_database(config.store)
    try:
        store = SqlStore(database, lambda holder: holder_dead(processes, holder))
        owner = lease_owner(processes, draw, config.agents.listen)
        # Whether a file's holder lives can be seen here; another database's may be on any machine.
        alone = isinstance(parse_store_url(config.store), SqliteFile)
        await prepare_store(database, store, owner, draw, waiting=None if alone else stop)
        settings = plane_settings(config)
        ports = ControlPorts(SystemClock(), store, WebSocketListener(), draw, owner)
        plane = build_control(settings, config.catalog, ports)
        await read_first_keys(plane)
        try:
            await run_plane(config, plane, processes, stop)
        finally:
            await plane.aclose()
    finally:
        await database.aclose()
    return 0


async def run_plane(config: ServerConfig, plane: ControlPlane, processes: LinuxProcesses, stop: Stop) -> None:
    """Open everything, wait for the word to stop, close in the right order."""
    children = RouterChildren(router_plan(config), processes, plane.routers)
    # Routers share their port (SO_REUSEPORT), so those of an earlier server do not stand in the way.
    await check_address("clients.listen", config.clients.listen, shared=True)
    await check_address("admin.listen", config.admin.listen, shared=False)
    try:
        await plane.start()
    except CannotListen as error:
        raise CannotRun(str(error)) from error
    async with admin_listener(config, plane):
        await children.start()
        try:
            await asked_or_broken(plane, stop)
        finally:
            await children.aclose()


async def asked_or_broken(plane: ControlPlane, stop: Stop) -> None:
    """Wait for the word to stop. Raises `CannotRun` when the control plane cannot decide any more."""
    async with Tasks() as tasks:
        broken = tasks.start(plane.run(), name="control plane")
        asked = tasks.start(stop.requested.wait(), name="word to stop")
        await asyncio.wait([broken, asked], return_when=asyncio.FIRST_COMPLETED)
        if broken.done():
            raise CannotRun("the control plane broke on a bug, see the log above; engines and streams go on")


# ---------------------------------------------------------------- what must be there first


def prepare_state_dir(folder: Path) -> None:
    """Make the state directory, for its owner only. Raises `CannotRun`."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise CannotRun(f"state_dir {folder}: {error.strerror}") from error


def read_or_create_token(path: Path) -> str:
    """The admin token, made at the first start (S2). Raises `CannotRun`."""
    try:
        with contextlib.suppress(FileNotFoundError):
            token = path.read_text().strip()
            if token:
                return token
        token = secrets.token_urlsafe(32)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(token + "\n")
    except OSError as error:
        raise CannotRun(f"admin token {path}: {error.strerror}") from error
    return token


def lease_owner(processes: LinuxProcesses, draw: random.Random, agents_listen: str) -> LeaseOwner:
    """This process, as a holder of the lease; its address by the name this machine has."""
    own = processes.own()
    _, port = split_address(agents_listen)
    address = f"{socket.gethostname()}:{port}"
    return LeaseOwner(f"{draw.getrandbits(64):016x}", processes.boot_id(), own.pid, own.start_time, address)


def holder_dead(processes: LinuxProcesses, holder: LeaseOwner) -> bool:
    """Whether the process that holds the lease on this machine is gone."""
    return not processes.alive(ProcessId(holder.boot_id, holder.pid, holder.start_time))


async def prepare_store(
    database: Database,
    store: SqlStore,
    owner: LeaseOwner,
    draw: random.Random,
    *,
    waiting: Stop | None = None,
) -> None:
    """Migrate, make the default project, take the lease. Raises `CannotRun`.

    With `waiting`, a lease that nobody renews is waited for until it expires, or until the word to stop.
    """
    try:
        await migrate(database, draw)
        await ensure_default_project(database, draw)
        lease = await store.take(owner, defaults.LEASE_S)
        while not lease.held:
            if waiting is None:
                raise _led_by(lease.holder)
            lease = await _look_again(store, owner, lease, waiting)
    except (StoreUnavailable, NewerDatabase) as error:
        raise CannotRun(f"store: {error}") from error


async def _look_again(store: SqlStore, owner: LeaseOwner, seen: Lease, stop: Stop) -> Lease:
    """The lease a little later. Raises `CannotRun` when it was renewed, so that its holder lives."""
    _LOG.info("waiting for the lease of %s, %.0f s at most", _holder(seen.holder), seen.expires_in_s)
    try:
        async with asyncio.timeout(min(LEASE_POLL_S, max(seen.expires_in_s, 0.05))):
            await stop.requested.wait()
        raise CannotRun("asked to stop while waiting for the lease of a server that ended")
    except TimeoutError:
        lease = await store.take(owner, defaults.LEASE_S)
    if not lease.held and (lease.term, lease.expires_in_s) > (seen.term, seen.expires_in_s):
        raise _led_by(lease.holder)
    return lease


def _led_by(holder: LeaseOwner) -> CannotRun:
    return CannotRun(
        f"store: {_holder(holder)} is a running llmgw server on the same database; stop it first"
    )


def _holder(holder: LeaseOwner) -> str:
    return f"pid {holder.pid}" + (f" at {holder.address}" if holder.address else "")


async def read_first_keys(plane: ControlPlane) -> None:
    """Have the keys before anybody is let in. Raises `CannotRun`."""
    try:
        await plane.keeper.read_keys()
    except StoreUnavailable as error:
        raise CannotRun(f"store: {error}") from error


# ---------------------------------------------------------------- settings


def plane_settings(config: ServerConfig) -> PlaneSettings:
    """What the control plane runs with."""
    control = config.control
    return PlaneSettings(
        fleet=FleetSettings(
            presence=control.presence,
            settling_s=control.settling_s,
            drain_grace_s=control.drain_grace_s,
            withdrawal_ack_s=defaults.WITHDRAWAL_ACK_S,
            ports=control.ports,
            foreign_memory_bytes=control.foreign_memory_bytes,
        ),
        agents_listen=config.agents.listen,
        watch_listen=f"unix:{watch_socket_path(config.state_dir)}",
        tick_s=control.tick_s,
        heartbeat_s=defaults.HEARTBEAT_S,
        stop_grace_s=defaults.STOP_GRACE_S,
        lease_s=defaults.LEASE_S,
        version=__version__,
    )


def router_plan(config: ServerConfig) -> RouterPlan:
    """Write the settings of the router processes, and say how to start them."""
    settings = router_settings.RouterSettings(
        watch=f"unix:{watch_socket_path(config.state_dir)}",
        listen=config.clients.listen,
        timeouts=config.router.timeouts,
        retries=config.router.retries,
        retry_budget=config.router.retry_budget,
        breaker=config.router.breaker,
        max_body_mb=config.clients.max_body_mb,
        drain_s=config.router.drain_s,
        usage_flush_s=config.usage.flush_s,
    )
    data = router_settings.dump(settings)
    path = config.state_dir.absolute() / "router.json"
    path.write_bytes(data)
    return RouterPlan(
        processes=config.router.processes,
        argv=(sys.executable, "-m", "llmgw", "router", "--child", str(path)),
        env=dict(os.environ),
        state_dir=str(config.state_dir.absolute()),
        log_path=str(config.state_dir.absolute() / "router.log"),
        version=__version__,
        settings_hash=router_settings.settings_hash(data),
        drain_s=settings.drain_s,
    )


# ---------------------------------------------------------------- listeners


async def check_address(what: str, listen: str, *, shared: bool) -> None:
    """Refuse an address that cannot be had, before anything depends on it. Raises `CannotRun`."""
    host, port = split_address(listen)
    loop = asyncio.get_running_loop()
    try:
        server = await loop.create_server(
            asyncio.Protocol, host, port, reuse_port=shared, start_serving=False
        )
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise CannotRun(f"{what} {listen} cannot be opened: {reason}") from error
    server.close()


def split_address(listen: str) -> tuple[str, int]:
    """Host and port of `host:port`; an IPv6 host stands in brackets."""
    host, _, port = listen.rpartition(":")
    return host.strip("[]"), int(port)


@contextlib.asynccontextmanager
async def admin_listener(config: ServerConfig, plane: ControlPlane) -> AsyncIterator[None]:
    """Serve the admin API and pages while the block runs. Raises `CannotRun` for a taken address."""
    token_path = admin_token_path(config.state_dir)
    options = AdminOptions(
        token=read_or_create_token(token_path),
        listen=config.admin.listen,
        clock=plane.clock,
        token_path=str(token_path),
        hosts=config.admin_hosts,
    )
    # Where `ctl` on this machine finds it, beside the token.
    (config.state_dir / ADMIN_ADDRESS).write_text(f"{config.admin.listen}\n")
    app = build_admin_app(Admin(plane), options)
    host, port = split_address(config.admin.listen)
    server = QuietServer(
        uvicorn.Config(
            app,
            host=host,
            port=port,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
    )
    async with Tasks() as tasks:
        serving = tasks.start(server.serve(), name="admin listener")
        await server.started_or_refused(serving)
        yield
        server.should_exit = True
        await serving


class QuietServer(uvicorn.Server):
    """uvicorn inside our loop: no signal handlers of its own, no exit of the process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals belong to the role."""
        yield

    async def started_or_refused(self, serving: "asyncio.Task[None]") -> None:
        """Wait until it listens. Raises `CannotRun` when it cannot."""
        while not self.started:
            if serving.done():
                raise CannotRun(f"admin.listen {self.config.host}:{self.config.port} cannot be opened")
            await asyncio.sleep(0.01)
