"""Runs one router: the client listener, the watch of its control plane, and an end that loses nothing.

Laws: it serves as soon as it listens and outlives its control plane; stopping first fails `/readyz`,
then closes the port, then lets streams end within the bound, then hands over the usage that is left.
"""

import asyncio
import contextlib
import logging
import random

import msgspec

from llmgw.aio.closing import Closing
from llmgw.aio.tasks import Tasks
from llmgw.core.exchange import Policy
from llmgw.gateway.desk import Desk, Patience
from llmgw.gateway.inference import InferenceMeans
from llmgw.gateway.models_page import ModelsPage
from llmgw.gateway.pages import Pages, read_files
from llmgw.gateway.relay import Means
from llmgw.gateway.serve import Gateway, Probes, handlers
from llmgw.gateway.state import Current
from llmgw.gateway.usage import UsageBuffer
from llmgw.gateway.verify import Verifier
from llmgw.gateway.watch import Watch, Watched, WatchSettings
from llmgw.ports import Clock, Dialer, ExchangeListener, HttpTimeouts, Serving, Upstream
from llmgw.wire.watch_v1 import Drain, Hello

_LOG = logging.getLogger("llmgw.gateway")

# For the rows of the requests that ended last; the store answers within milliseconds or not at all.
FLUSH_WITHIN_S = 1.0


class RouterPorts(msgspec.Struct, frozen=True):
    """The outside of a router."""

    listener: ExchangeListener
    upstream: Upstream
    dialer: Dialer
    clock: Clock
    draw: random.Random


class RouterIdentity(msgspec.Struct, frozen=True):
    """Who this router is, for its control plane."""

    version: str
    settings_hash: str
    pid: int
    start_time: int
    index: int = 0


class RouterOptions(msgspec.Struct, frozen=True):
    """What a router runs with. Durations in seconds."""

    listen: str
    watch: str
    timeouts: HttpTimeouts
    max_body_mb: int
    drain_s: float
    tick_s: float
    usage_flush_s: float
    chat_page: bool
    retries: int
    patience: Patience
    identity: RouterIdentity


class Router:
    """One router. `run` serves until `stop`; `aclose` ends everything at once."""

    def __init__(self, options: RouterOptions, ports: RouterPorts) -> None:
        self._options = options
        self._ports = ports
        self._current = Current()
        self._usage = UsageBuffer()
        self._router_id = f"router-{ports.draw.getrandbits(64):016x}"
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._drain_s = options.drain_s
        self._serving: Serving | None = None
        self._tasks = Tasks()
        self._opened = asyncio.Event()
        self._began_s = 0.0

    @property
    def address(self) -> str | None:
        """Where it listens, once it does."""
        return self._serving.address if self._serving is not None else None

    async def opened(self) -> str:
        """Wait until it listens; where."""
        await self._opened.wait()
        assert self._serving is not None, "opened means serving"
        return self._serving.address

    def stop(self, *, hurry: bool = False) -> None:
        """Ask for a graceful end; with `hurry` for one that gives streams no time. Repeatable."""
        self._stop.set()
        if hurry:
            self._hurry.set()

    async def run(self) -> None:
        """Listen and serve until asked to stop, then end in order. Raises `OSError` for a taken address."""
        options, ports = self._options, self._ports
        loop = asyncio.get_running_loop()
        self._began_s = loop.time()
        desk = Desk(loop.time, options.patience)
        desk.on_estranged = Verifier(desk, ports.upstream, self._tasks, ports.draw).doubt
        async with Closing() as closing:
            closing.add("upstream", ports.upstream.aclose)
            self._serving = await ports.listener.serve(options.listen, self._gateway(desk))
            closing.add("client listener", self._serving.aclose)
            self._opened.set()
            _LOG.info("clients: http://%s", self._serving.address)
            watch = self._watch(desk)
            closing.add("watch", self._tasks.aclose)
            self._tasks.start(watch.run(), name="watch of the control plane")
            await self._stop.wait()
            await self._drain(self._serving)
            await watch.flush(FLUSH_WITHIN_S)

    async def aclose(self) -> None:
        """End at once; `run` returns."""
        self.stop(hurry=True)

    async def _drain(self, serving: Serving) -> None:
        self._current.draining = True
        serving.stop_accepting()
        _LOG.info("stopping: %d requests have %g s to end", serving.in_flight, self._drain_s)
        async with Tasks() as tasks:
            ends = [
                tasks.start(serving.drained(self._drain_s), name="drain"),
                tasks.start(self._hurry.wait(), name="hurry"),
            ]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if serving.in_flight:
            _LOG.warning("%d requests are cut off", serving.in_flight)
            with contextlib.suppress(TimeoutError):
                await serving.aclose()

    def _gateway(self, desk: Desk) -> Gateway:
        options, ports = self._options, self._ports
        relay = Means(desk, ports.upstream, ports.draw, desk.time, Policy(retries=options.retries))
        means = InferenceMeans(relay, self._usage, ports.clock, options.max_body_mb)
        pages = Pages(read_files(), chat=options.chat_page)
        table = handlers(means, ModelsPage(desk), pages, Probes(self._current))
        return Gateway(table, self._current, ports.clock, ports.draw)

    def _watch(self, desk: Desk) -> Watch:
        options, ports = self._options, self._ports
        settings = WatchSettings(options.watch, options.timeouts, options.tick_s, options.usage_flush_s)
        watched = Watched(self._current, desk, self._usage, ports.upstream)
        return Watch(settings, watched, ports.dialer, ports.draw, self._hello, self._told_to_drain)

    def _hello(self) -> Hello:
        identity = self._options.identity
        return Hello(
            router_id=self._router_id,
            version=identity.version,
            settings_hash=identity.settings_hash,
            pid=identity.pid,
            start_time=identity.start_time,
            started_s=asyncio.get_running_loop().time() - self._began_s,
            address=self.address,
            index=identity.index,
        )

    def _told_to_drain(self, drain: Drain) -> None:
        self._drain_s = drain.bound_s
        self.stop()
