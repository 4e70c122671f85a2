"""Carries bytes between simulated hosts, with latency, arbitrary splits, cuts and resets under a seed.

Laws: bytes of one direction of a connection never overtake each other, and nothing arrives after the
end; a cut link holds bytes as TCP would and delivers them when it heals; a killed process's connections
are reset, a dead host's say nothing; who dials is known from the context the task was started in.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from random import Random
from typing import Any

import msgspec

from llmgw.sim.transport import SimServer, SimTransport

LOOPBACK = ("127.0.0.1", "localhost", "::1")

current_host: ContextVar[str] = ContextVar("current_host", default="")
current_process: ContextVar[str] = ContextVar("current_process", default="")

ProtocolFactory = Callable[[], asyncio.BaseProtocol]


class LinkOptions(msgspec.Struct, frozen=True):
    """How a network behaves; seconds, and the chance that one write arrives in several pieces."""

    latency_s: float = 0.0005
    jitter_s: float = 0.0005
    split_chance: float = 0.1


class SimNetwork:
    """All hosts, listeners and connections of one simulation."""

    def __init__(self, draw: Random, options: LinkOptions | None = None) -> None:
        self._draw = draw
        self._options = options or LinkOptions()
        self._listeners: dict[str, SimServer] = {}
        self._next_port: dict[str, int] = {}
        self._cut: set[tuple[str, str]] = set()
        self._down: set[str] = set()
        self._transports: set[SimTransport] = set()
        self._lingering: set[SimTransport] = set()  # closed, but something they sent waits on a cut link
        self._last_number = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._healed: asyncio.Future[None] | None = None
        self.dead: set[str] = set()  # processes that ended; nothing of theirs runs again
        self.pids: dict[str, int] = {}  # of processes, for peer credentials
        self.closed = False  # the simulation is over: nothing connects any more
        self.resets = 0
        self.bytes_carried = 0

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Called by the loop that runs on this network."""
        self._loop = loop

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop this network delivers on."""
        assert self._loop is not None, "a network is attached by its loop"
        return self._loop

    @contextlib.contextmanager
    def running_as(self, host: str, process: str) -> Iterator[None]:
        """Tasks started inside belong to this process on this host."""
        host_token, process_token = current_host.set(host), current_process.set(process)
        try:
            yield
        finally:
            current_host.reset(host_token)
            current_process.reset(process_token)

    # ------------------------------------------------------------ listening and dialling

    def listen(self, factory: ProtocolFactory, host: str | None, port: int) -> SimServer:
        """A listener on the current host, whatever `host` says. Raises `OSError` when the port is taken."""
        here = current_host.get()
        port = port or self._free_port(here)
        return self._add_listener(factory, f"{here}:{port}", (host or here, port))

    def listen_unix(self, factory: ProtocolFactory, path: str) -> SimServer:
        """A listener on a path of the current host."""
        return self._add_listener(factory, f"unix:{current_host.get()}:{path}", path)

    def port_taken(self, host: str, port: int) -> bool:
        """Whether something listens there."""
        return f"{host}:{port}" in self._listeners

    def ports_of(self, host: str) -> list[int]:
        """Ports of a host on which something listens."""
        return sorted(int(key.rpartition(":")[2]) for key in self._listeners if key.startswith(f"{host}:"))

    async def connect(
        self, factory: ProtocolFactory, address: str
    ) -> tuple[SimTransport, asyncio.BaseProtocol]:
        """Dial. Hangs while the link is cut, as a SYN without an answer does. Raises `OSError`."""
        here = current_host.get()
        target, key = self._resolve(here, address)
        if self.closed:
            raise OSError(101, "Network is unreachable")
        while self.is_cut(here, target) or self.is_cut(target, here):
            self._healed = self._healed or self.loop.create_future()
            await asyncio.shield(self._healed)
        await asyncio.sleep(self._delay())
        server = self._listeners.get(key)
        if server is None:
            raise _nobody(address)
        near, protocol = self._join(factory, server, here, target)
        if address.startswith("unix:"):
            server_pid, own_pid = self.pids.get(server.process), self.pids.get(current_process.get())
            near.tell(peer_pid=server_pid)
            near.other.tell(peer_pid=own_pid)
        return near, protocol

    def _resolve(self, here: str, address: str) -> tuple[str, str]:
        if address.startswith("unix:"):
            return here, f"unix:{here}:{address.removeprefix('unix:')}"
        host, _, port = address.rpartition(":")
        target = here if host in LOOPBACK else host
        return target, f"{target}:{port}"

    def _join(
        self, factory: ProtocolFactory, server: SimServer, here: str, target: str
    ) -> tuple[SimTransport, asyncio.BaseProtocol]:
        client_protocol, server_protocol = factory(), server.factory()
        near = SimTransport(self, client_protocol, (here, target), current_process.get())
        far = SimTransport(self, server_protocol, (target, here), server.process)
        near.pair(far, server)
        self._transports |= {near, far}
        # The accepting side runs in the context the listener was opened in, not in the dialler's.
        server.context.run(self.loop.call_soon, server_protocol.connection_made, far)
        client_protocol.connection_made(near)
        return near, client_protocol

    def _add_listener(self, factory: ProtocolFactory, key: str, shown: Any) -> SimServer:
        if key in self._listeners:
            raise OSError(98, f"address already in use: {key}")
        server = SimServer(factory, shown, current_process.get(), lambda: self._listeners.pop(key, None))
        self._listeners[key] = server
        return server

    def _free_port(self, host: str) -> int:
        port = self._next_port.get(host, 40000)
        self._next_port[host] = port + 1
        return port

    # ------------------------------------------------------------ how bytes travel

    def _delay(self) -> float:
        return self._options.latency_s + self._draw.random() * self._options.jitter_s

    def pieces(self, data: bytes) -> list[tuple[float, bytes]]:
        """How one write arrives: pieces with their extra delay."""
        self.bytes_carried += len(data)
        if len(data) > 1 and self._draw.random() < self._options.split_chance:
            cut = self._draw.randrange(1, len(data))
            return [(self._delay(), data[:cut]), (self._delay(), data[cut:])]
        return [(self._delay(), data)]

    def is_cut(self, source: str, target: str) -> bool:
        """Whether bytes from `source` do not reach `target`."""
        if source == target:
            return False
        return (source, target) in self._cut or source in self._down or target in self._down

    def forget(self, transport: SimTransport) -> None:
        """A transport is closed."""
        self._transports.discard(transport)
        if transport.holds:
            self._lingering.add(transport)

    def next_number(self) -> int:
        """A number no other transport of this network has."""
        self._last_number += 1
        return self._last_number

    def open_transports(self) -> list[SimTransport]:
        """Every open end, oldest first; for faults and for the leak check."""
        return sorted(self._transports, key=_number)

    def listening(self) -> list[str]:
        """Every address something listens on; for the leak check."""
        return sorted(self._listeners)

    # ------------------------------------------------------------ faults

    def cut(self, source: str, target: str) -> None:
        """Cut one direction between two hosts."""
        self._cut.add((source, target))

    def isolate(self, host: str, others: list[str]) -> None:
        """Cut both directions between a host and the others."""
        for other in others:
            self.cut(host, other)
            self.cut(other, host)

    def heal(self) -> None:
        """Mend every cut; held bytes are delivered."""
        self._cut.clear()
        self._reconnect()

    def mend(self, source: str, target: str) -> None:
        """Mend one cut direction."""
        self._cut.discard((source, target))
        self._reconnect()

    def host_down(self, host: str) -> None:
        """A machine lost power: its connections and listeners are gone, and nobody is told."""
        self._down.add(host)
        for key in [key for key in self._listeners if _host_of(key) == host]:
            self._listeners[key].close()
        for transport in sorted(self._transports | self._lingering, key=_number):
            if transport.host == host:
                transport.vanish(silently=True)

    def host_up(self, host: str) -> None:
        """A machine answers again; what still speaks to its old connections is reset."""
        self._down.discard(host)
        self._reconnect()

    def _reconnect(self) -> None:
        healed, self._healed = self._healed, None
        if healed is not None:
            healed.set_result(None)
        for transport in sorted(self._transports | self._lingering, key=_number):
            transport.release_held()
        self._lingering = {one for one in self._lingering if one.holds}

    def reset_some(self, count: int) -> int:
        """Reset that many connections between different hosts; how many there were."""
        candidates = [one for one in self.open_transports() if one.crosses_hosts()]
        chosen = self._draw.sample(candidates, min(count, len(candidates)))
        for transport in chosen:
            transport.break_now()
        self.resets += len(chosen)
        return len(chosen)

    def process_died(self, process: str) -> None:
        """Run nothing of this process again; close its listeners and reset its connections (kill -9)."""
        self.dead.add(process)
        for server in [one for one in self._listeners.values() if one.process == process]:
            server.close()
        for transport in self.open_transports():
            if transport.process == process:
                transport.vanish()


def _nobody(address: str) -> OSError:
    # A path nobody listens on has no file here: the simulated disk keeps no stale sockets.
    if address.startswith("unix:"):
        return FileNotFoundError(2, "No such file or directory")
    return ConnectionRefusedError(111, f"Connect call failed ({address})")


def _host_of(key: str) -> str:
    return key.removeprefix("unix:").partition(":")[0]


def _number(transport: SimTransport) -> int:
    return transport.number
