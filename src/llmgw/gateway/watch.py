"""Follows the control plane: takes tables, acknowledges them, reports use and usage (G17, R16a).

Laws: dials for ever, and serving goes on with what is known meanwhile; a revision is acknowledged only
once nothing new can go to what it withdrew; usage is sent again until it is stored; what this version
does not know is counted and ignored.
"""

import asyncio
import logging
import random
from collections.abc import Callable

import msgspec

from llmgw.aio.backoff import Backoff
from llmgw.aio.every import every
from llmgw.aio.tasks import Tasks
from llmgw.gateway.desk import Desk
from llmgw.gateway.state import Current, from_snapshot, updated
from llmgw.gateway.usage import UsageBuffer
from llmgw.ports import Dialer, HttpTimeouts, MessageStream, StreamClosed, Upstream
from llmgw.wire import watch_v1
from llmgw.wire.envelope import Unknown

_LOG = logging.getLogger("llmgw.gateway.watch")

PATH = "/watch"
# The usual control plane is on this machine and back within a second or two; a starting server keeps the
# routers that greet it within a second, so that none may wait longer than half of that.
REDIAL = Backoff(first=0.1, cap=0.5)
STEADY_S = 10.0  # a stream that lived this long did not end because of its beginning


class WatchSettings(msgspec.Struct, frozen=True):
    """Where the control plane is and how often it hears from here. Seconds."""

    address: str
    timeouts: HttpTimeouts  # of models that set none
    tick_s: float
    usage_flush_s: float


class Watched(msgspec.Struct, frozen=True):
    """What the watch keeps up to date."""

    current: Current
    desk: Desk
    usage: UsageBuffer
    upstream: Upstream


class Watch:
    """The router's end of the watch stream."""

    def __init__(
        self,
        settings: WatchSettings,
        watched: Watched,
        dialer: Dialer,
        draw: random.Random,
        hello: Callable[[], watch_v1.Hello],
        on_drain: Callable[[watch_v1.Drain], None],
    ) -> None:
        self._settings = settings
        self._watched = watched
        self._dialer = dialer
        self._draw = draw
        self._hello = hello
        self._on_drain = on_drain
        self._stored = asyncio.Event()
        self._began = 0.0
        self._stream: MessageStream | None = None
        self.unknown_messages = 0

    async def run(self) -> None:
        """Follow for ever."""
        loop = asyncio.get_running_loop()
        self._began = loop.time()
        failures = 0
        while True:
            dialled = loop.time()
            why = await self._once()
            failures = 1 if loop.time() - dialled >= STEADY_S else failures + 1
            current = self._watched.current
            if current.connected or failures == 1:
                _LOG.warning("control plane not connected: %s", why)
            current.connected, current.trouble = False, why
            await asyncio.sleep(REDIAL.delay(failures, self._draw))

    async def flush(self, within_s: float) -> bool:
        """Send what is left and wait until it is stored; whether nothing is left."""
        usage = self._watched.usage
        try:
            async with asyncio.timeout(within_s):
                while len(usage):
                    self._stored.clear()
                    if self._stream is None:
                        return False
                    await self._send_usage(self._stream)
                    await self._stored.wait()
        except (TimeoutError, StreamClosed):
            return False
        return True

    # ------------------------------------------------------------ one stream

    async def _once(self) -> str:
        """Dial and follow one stream to its end; why it ended."""
        settings = self._settings
        try:
            stream = await self._dialer.dial(settings.address, PATH)
        except StreamClosed as closed:
            return closed.reason
        self._stream = stream
        try:
            await stream.send(watch_v1.encode(self._hello()))
            async with Tasks() as tasks:
                use = every(settings.tick_s, lambda: self._send_use(stream), name="report use")
                rows = every(settings.usage_flush_s, lambda: self._send_usage(stream), name="send usage")
                tasks.start(use, name="report use")
                tasks.start(rows, name="send usage")
                return await self._follow(stream)
        except StreamClosed as closed:
            return closed.reason
        finally:
            self._stream = None
            self._watched.usage.stream_ended()
            await stream.close()

    async def _follow(self, stream: MessageStream) -> str:
        while True:
            message = watch_v1.decode_down(await stream.receive())
            match message:
                case watch_v1.Snapshot():
                    self._take_snapshot(message)
                    await self._acknowledge(stream, message.revision)
                case watch_v1.Update():
                    if not self._take_update(message):
                        return "an update came before a snapshot"
                    await self._acknowledge(stream, message.revision)
                case watch_v1.UsageStored():
                    self._watched.usage.stored(message.batch)
                    self._stored.set()
                case watch_v1.Drain():
                    _LOG.info("asked to drain: %s", message.reason)
                    self._on_drain(message)
                case watch_v1.Refused():
                    return f"refused: {message.reason}"
                case Unknown():
                    self.unknown_messages += 1
                    if message.error is not None:
                        _LOG.warning("a message of the control plane cannot be read: %s", message.error)

    def _take_snapshot(self, snapshot: watch_v1.Snapshot) -> None:
        watched = self._watched
        watched.current.table = from_snapshot(snapshot, self._settings.timeouts, watched.current.table)
        watched.current.connected = True
        _LOG.info("serving revision %d of cluster %s", snapshot.revision, snapshot.cluster_id)
        self._put_in_force()

    def _take_update(self, update: watch_v1.Update) -> bool:
        current = self._watched.current
        if current.table is None or not current.connected:
            return False
        current.table = updated(current.table, update, self._settings.timeouts)
        self._put_in_force()
        return True

    def _put_in_force(self) -> None:
        """From here on nothing new goes to a withdrawn endpoint: choosing and dialling see one desk."""
        table = self._watched.current.table
        assert table is not None, "a table was just taken"
        for gone in self._watched.desk.adopt(table):
            self._watched.upstream.close_idle(gone.host, gone.port)

    async def _acknowledge(self, stream: MessageStream, revision: int) -> None:
        # Use first: whoever hears that an endpoint is withdrawn knows what it still has in flight.
        await self._send_use(stream)
        await stream.send(watch_v1.encode(watch_v1.Applied(revision)))

    async def _send_use(self, stream: MessageStream) -> None:
        desk = self._watched.desk
        known_s = asyncio.get_running_loop().time() - self._began
        await _send(stream, watch_v1.Use(desk.use(), desk.demand(), known_s))

    async def _send_usage(self, stream: MessageStream) -> None:
        for batch in self._watched.usage.due(asyncio.get_running_loop().time()):
            await _send(stream, batch)


async def _send(stream: MessageStream, message: watch_v1.Up) -> None:
    """Send; a stream that ended is noticed by the one who reads it, and is no failure here."""
    try:
        await stream.send(watch_v1.encode(message))
    except StreamClosed:
        return
