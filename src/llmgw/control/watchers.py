"""Holds the routers' streams: tells them what to serve, hears what they use (G17, R16a).

Laws: a router that joins gets the whole table, then only what differs, each with its revision; one that
serves from a table already keeps it until this server knows what runs, since a snapshot from a server
that has just begun would take endpoints away that nobody withdrew; a router that does not read is closed
and starts over with a snapshot; usage is stored off the owner's path and acknowledged only once it is in
the store.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec

from llmgw.aio.mailbox import Mailbox, MailboxClosed
from llmgw.aio.tasks import Tasks
from llmgw.control import translate
from llmgw.control.table import Table, snapshot, update
from llmgw.core import happenings as h
from llmgw.ports import MessageStream, StreamClosed
from llmgw.wire import watch_v1
from llmgw.wire.envelope import Unknown

_LOG = logging.getLogger("llmgw.control.watchers")

# Updates waiting for one router; more means that it does not read, and a snapshot is cheaper.
OUTBOX_MAX = 200
HELLO_S = 10.0

Tell = Callable[[h.Event], Awaitable[None]]
StoreUsage = Callable[[watch_v1.UsageBatch], Awaitable[bool]]
"""Stores a batch; false when the store is not there and the router must send it again."""


class Current(msgspec.Struct, frozen=True):
    """The table in force, with what identifies it."""

    table: Table
    revision: int
    cluster_id: str
    term: int


class _Link:
    """One router's stream."""

    def __init__(self, stream: MessageStream, hello: watch_v1.Hello) -> None:
        self.stream = stream
        self.hello = hello
        self.storing = False  # one batch at a time; the router repeats what was not acknowledged
        self.outbox: Mailbox[watch_v1.Down] = Mailbox(OUTBOX_MAX)


class RouterHub:
    """Every connected router, by its id."""

    def __init__(self, tell: Tell, store_usage: StoreUsage, tasks: Tasks) -> None:
        self._tell = tell
        self._store_usage = store_usage
        self._tasks = tasks
        self._links: dict[str, _Link] = {}
        self._current: Current | None = None
        self._on_news: list[Callable[[], None]] = []
        self.unknown_messages = 0

    def hellos(self) -> tuple[watch_v1.Hello, ...]:
        """Who is connected, as each introduced itself."""
        return tuple(link.hello for link in self._links.values())

    def heard_everybody(self) -> bool:
        """Whether the table is whole: no node is left whose engines this server cannot know."""
        return self._current is not None and not self._current.table.unheard

    def on_news(self, hear: Callable[[], None]) -> None:
        """Call `hear` whenever a router has connected or the table has changed."""
        self._on_news.append(hear)

    async def serve(self, stream: MessageStream) -> None:
        """One stream from its first message to its end."""
        try:
            async with asyncio.timeout(HELLO_S):
                hello = watch_v1.decode_up(await stream.receive())
        except TimeoutError:
            await stream.close(f"no first message within {HELLO_S:g} s")
            return
        except StreamClosed:
            return
        if not isinstance(hello, watch_v1.Hello):
            await stream.close("the first message of a router must say who it is")
            return
        link = _Link(stream, hello)
        self._replace(hello.router_id, link)
        writer = self._tasks.start(self._write(link), name=f"updates to router {hello.router_id}")
        try:
            await self._tell(h.RouterJoined(hello.router_id))
            self._say_news()
            while True:
                await self._hear(link, watch_v1.decode_up(await stream.receive()))
        except StreamClosed:
            pass
        finally:
            link.outbox.close()
            if self._links.get(hello.router_id) is link:
                del self._links[hello.router_id]
                await self._tell(h.RouterLeft(hello.router_id))
        await writer

    def _replace(self, router: str, link: _Link) -> None:
        old = self._links.get(router)
        if old is not None:  # its half-open stream; the process is the same
            self._drop(old, "replaced by a newer stream of the same router")
        self._links[router] = link
        if self._current is not None:
            self._send(link, _snapshot(self._current))

    async def _hear(self, link: _Link, message: watch_v1.Up | Unknown) -> None:
        router = link.hello.router_id
        match message:
            case watch_v1.Applied():
                await self._tell(h.RouterApplied(router, message.revision))
            case watch_v1.Use():
                await self._tell(h.UseReported(router, translate.endpoint_use(message.endpoints)))
            case watch_v1.UsageBatch():
                if not link.storing:
                    link.storing = True
                    self._tasks.start(self._keep(link, message), name="store usage")
            case watch_v1.Hello():
                _LOG.warning("router %s introduced itself twice", router)
            case Unknown():
                self.unknown_messages += 1

    async def _keep(self, link: _Link, batch: watch_v1.UsageBatch) -> None:
        try:
            if await self._store_usage(batch):
                self._send(link, watch_v1.UsageStored(batch.batch))
        finally:
            link.storing = False

    async def _write(self, link: _Link) -> None:
        try:
            while True:
                await link.stream.send(watch_v1.encode(await link.outbox.get()))
        except (MailboxClosed, StreamClosed):
            await link.stream.close()

    def _send(self, link: _Link, message: watch_v1.Down) -> None:
        try:
            if link.outbox.try_put(message):
                return
        except MailboxClosed:
            return
        _LOG.warning("router %s does not read its updates; its stream is closed", link.hello.router_id)
        self._drop(link, "updates are not being read")

    def _drop(self, link: _Link, reason: str) -> None:
        """End a stream also when its writer waits for an end that does not read."""
        link.outbox.close()
        self._tasks.start(link.stream.close(reason), name=f"close router {link.hello.router_id}")

    # ------------------------------------------------------------ used by the owner and the children

    def publish(self, current: Current) -> None:
        """This table is in force now; tell every router what differs."""
        old, self._current = self._current, current
        change = None if old is None else update(old.table, current.table, current.revision)
        for link in self._links.values():
            self._send(link, _snapshot(current) if change is None else change)
        self._say_news()

    def _say_news(self) -> None:
        for hear in self._on_news:
            hear()

    def drain(self, router: str, reason: str, bound_s: float) -> None:
        """Have a router finish and exit: another process took its place."""
        link = self._links.get(router)
        if link is not None:
            self._send(link, watch_v1.Drain(reason, bound_s))


def _snapshot(current: Current) -> watch_v1.Snapshot:
    return snapshot(current.table, current.revision, current.cluster_id, current.term)
