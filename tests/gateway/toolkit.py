"""A router on real sockets between a scripted engine and a scripted control plane.

The engine speaks raw TCP, so that it can misbehave in every way; the control plane is a real message
stream over a Unix socket; the router is the one `llmgw router` runs.
"""

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import msgspec

from llmgw.aio.tasks import Tasks
from llmgw.core.accounts import make_key
from llmgw.entry.router import build_router, production_ports
from llmgw.entry.router_settings import RouterSettings
from llmgw.gateway.router import Router, RouterIdentity
from llmgw.net.streams import StreamListening, WebSocketListener
from llmgw.ports import HttpTimeouts, MessageStream
from llmgw.wire import watch_v1 as wire
from llmgw.wire.envelope import Unknown

KEY = make_key(random.Random(7))
KEY_ENTRY = wire.KeyEntry(
    KEY.public_id, KEY.secret_sha256, "key-1", "acme/web", "acme/research", "acme", "ann"
)
IDENTITY = RouterIdentity("0.0-test", "abc", 1, 2)
MODEL = wire.ModelEntry("m", "always", created=5, context_length=4096)
FIGURES = {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}


class Asked(msgspec.Struct):
    """One request as an engine received it."""

    line: str
    headers: dict[str, str]
    body: bytes
    gone: asyncio.Event  # the router closed the connection while the answer was not whole

    def json(self) -> Any:
        return json.loads(self.body)


class Talk:
    """One request an engine is answering."""

    def __init__(self, asked: Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked = asked
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    def reset(self) -> None:
        self._writer.transport.abort()

    def close(self) -> None:
        """End the connection once everything is sent."""
        self._writer.close()

    async def wait_gone(self) -> None:
        """Say nothing more until the router closes the connection."""
        with contextlib.suppress(OSError):
            while await self._reader.read(1024):
                pass
        self.asked.gone.set()


Script = Callable[[Talk], Awaitable[None]]


class Engine:
    """An engine that does what its script says; by default it answers well."""

    def __init__(self, script: Script | None = None) -> None:
        self.script: Script = script or answers()
        self.asked: list[Asked] = []
        self.models: tuple[str, ...] = ()  # what it lists when it is asked who it is
        self.verified = 0  # how often it was asked that
        self.port = 0
        self.connections = 0
        self._arrived = asyncio.Event()
        self.open_connections = 0
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def has_been_asked(self) -> Asked:
        """Wait until there was a request; the first."""
        async with asyncio.timeout(10):
            await self._arrived.wait()
        return self.asked[0]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open_connections += 1
        try:
            while True:
                asked = await _read_request(reader)
                if asked.line.startswith("GET /v1/models"):
                    self.verified += 1
                    listed = {"data": [{"id": name} for name in self.models]}
                    await says(200, listed)(Talk(asked, reader, writer))
                    continue
                self.asked.append(asked)
                self._arrived.set()
                await self.script(Talk(asked, reader, writer))
                if writer.transport.is_closing():
                    return
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open_connections -= 1
            writer.close()


async def _read_request(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:-2])}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Asked(head[0], headers, body, asyncio.Event())


# ---------------------------------------------------------------- what engines say


def event(text: str | None = "x", **more: Any) -> bytes:
    """One chunk of a streamed chat."""
    choices = [] if text is None else [{"index": 0, "delta": {"content": text}, "finish_reason": None}]
    body = {"id": "c1", "object": "chat.completion.chunk", "created": 5, "model": "m", "choices": choices}
    return b"data: " + json.dumps(body | more).encode() + b"\n\n"


LAST = event("").replace(b'"finish_reason": null', b'"finish_reason": "stop"')
USAGE = event(None, usage=FIGURES)
DONE = b"data: [DONE]\n\n"
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def completion(text: str = "Hello", **more: Any) -> dict[str, Any]:
    """A plain answer."""
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    body = {"id": "c1", "object": "chat.completion", "created": 5, "model": "m", "choices": [choice]}
    return body | {"usage": FIGURES} | more


def whole(status: int, body: bytes, headers: Mapping[str, str] | None = None) -> bytes:
    """A whole answer as bytes."""
    fields = {"content-type": "application/json", "content-length": str(len(body))} | dict(headers or {})
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status} X\r\n{lines}\r\n".encode() + body


def says(status: int, body: Any, headers: Mapping[str, str] | None = None) -> Script:
    """Answer every request with this."""

    async def script(talk: Talk) -> None:
        await talk.send(whole(status, json.dumps(body).encode(), headers))

    return script


def streams(*pieces: bytes, end: bytes = END) -> Script:
    """Answer with these pieces of a stream, then `end`; an empty one resets the connection."""

    async def script(talk: Talk) -> None:
        await talk.send(HEAD)
        for piece in pieces:
            await talk.chunk(piece)
        if end:
            await talk.send(end)
        else:
            talk.reset()

    return script


def answers(*texts: str) -> Script:
    """Answer well, plain or streamed as asked, with usage in streams that ask for it."""
    words = texts or ("Hel", "lo")

    async def script(talk: Talk) -> None:
        asked = talk.asked.json()
        if not asked.get("stream"):
            await says(200, completion("".join(words)))(talk)
            return
        usage = [USAGE] if (asked.get("stream_options") or {}).get("include_usage") else []
        await streams(*(event(word) for word in words), LAST, *usage, DONE)(talk)

    return script


async def hangs(talk: Talk) -> None:
    """Say nothing until the router leaves."""
    await talk.wait_gone()


def begins_and_hangs(*pieces: bytes) -> Script:
    """Stream these pieces, then say nothing until the router leaves."""

    async def script(talk: Talk) -> None:
        await talk.send(HEAD)
        for piece in pieces:
            await talk.chunk(piece)
        await talk.wait_gone()

    return script


# ---------------------------------------------------------------- the control plane


class Control:
    """A control plane that says what it is told to, and remembers what it hears."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.heard: list[wire.Up] = []
        self.rows: list[wire.UsageRow] = []
        self.streams: list[MessageStream] = []
        self.stores = True
        self.snapshot: wire.Snapshot | None = None
        self._news = asyncio.Condition()
        self._listening: StreamListening | None = None

    async def open(self) -> None:
        self._listening = await WebSocketListener().listen(self.address, {"/watch": self._serve})

    async def close(self) -> None:
        if self._listening is not None:
            await self._listening.aclose()
            self._listening = None

    async def _serve(self, stream: MessageStream) -> None:
        self.streams.append(stream)
        try:
            while True:
                message = wire.decode_up(await stream.receive())
                assert not isinstance(message, Unknown), message
                await self._hear(stream, message)
        finally:
            self.streams.remove(stream)
            async with self._news:
                self._news.notify_all()

    async def _hear(self, stream: MessageStream, message: wire.Up) -> None:
        if isinstance(message, wire.Hello) and self.snapshot is not None:
            await stream.send(wire.encode(self.snapshot))
        if isinstance(message, wire.UsageBatch) and self.stores:
            self.rows.extend(message.rows)
            await stream.send(wire.encode(wire.UsageStored(message.batch)))
        async with self._news:
            self.heard.append(message)
            self._news.notify_all()

    async def say(self, message: wire.Down) -> None:
        for stream in self.streams:
            await stream.send(wire.encode(message))

    async def until(self, happened: Callable[[], bool]) -> None:
        """Wait until what was heard makes this true."""
        async with asyncio.timeout(10), self._news:
            await self._news.wait_for(happened)

    async def publish(self, update: wire.Update) -> None:
        """Send an update and wait until it is acknowledged."""
        await self.say(update)
        await self.until(lambda: wire.Applied(update.revision) in self.heard)

    async def row(self) -> wire.UsageRow:
        """The one usage row there is; waits for it and for one more report, lest there be two."""
        await self.until(lambda: bool(self.rows))
        seen = len(self.heard)
        await self.until(lambda: any(isinstance(one, wire.Use) for one in self.heard[seen:]))
        assert len(self.rows) == 1, self.rows
        return self.rows[0]

    def use(self) -> wire.Use:
        """The last report of use."""
        return next(one for one in reversed(self.heard) if isinstance(one, wire.Use))


# ---------------------------------------------------------------- the whole


class Rig(msgspec.Struct):
    """A running router with its engines, its control plane and a client that has a key."""

    router: Router
    address: str
    control: Control
    engines: list[Engine]
    client: httpx.AsyncClient
    tasks: Tasks

    async def chat(self, **more: Any) -> httpx.Response:
        """Ask for a chat; the answer is read whole."""
        return await self.client.post("/v1/chat/completions", json=ask(**more))

    async def settled(self) -> wire.Use:
        """Wait until nothing is in flight anywhere; the report that says so."""

        def quiet() -> bool:
            last = self.control.use()
            return all(one.in_flight == 0 for one in last.endpoints.values())

        seen = len(self.control.heard)
        await self.control.until(
            lambda: any(isinstance(one, wire.Use) for one in self.control.heard[seen:]) and quiet()
        )
        return self.control.use()


def ask(**more: Any) -> dict[str, Any]:
    """The body of a chat request."""
    return {"model": "m", "messages": [{"role": "user", "content": "hi"}]} | more


def endpoint(engine: Engine, index: int = 0, **more: Any) -> wire.EndpointEntry:
    """Where an engine is."""
    entry = wire.EndpointEntry(f"m-{index}", "m", "127.0.0.1", engine.port, engine_key="engine-secret")
    return msgspec.structs.replace(entry, **more)


def snapshot(engines: list[Engine], **more: Any) -> wire.Snapshot:
    """Everything served: one model on these engines, one key."""
    whole = wire.Snapshot(
        revision=1,
        cluster_id="c",
        term=1,
        models=(MODEL,),
        endpoints=tuple(endpoint(engine, index) for index, engine in enumerate(engines)),
        keys=(KEY_ENTRY,),
    )
    return msgspec.structs.replace(whole, **more)


def settings(watch: str, **more: Any) -> RouterSettings:
    """Settings with short patience."""
    defaults: dict[str, Any] = {
        "watch": watch,
        "listen": "127.0.0.1:0",
        "timeouts": HttpTimeouts(connect=1.0, first_byte=5.0, idle=5.0, total=20.0),
        "max_body_mb": 1,
        "drain_s": 3.0,
        "tick_s": 0.05,
        "usage_flush_s": 0.05,
    }
    return RouterSettings(**(defaults | more))


@contextlib.asynccontextmanager
async def rig(
    tmp_path: Path,
    *scripts: Script,
    table: Callable[[list[Engine]], wire.Snapshot] = snapshot,
    **more: Any,
) -> AsyncIterator[Rig]:
    """A router with one engine a script (none: one that answers well), ready to serve."""
    engines = [Engine(script) for script in scripts] or [Engine()]
    control = Control(f"unix:{tmp_path}/watch.sock")
    async with contextlib.AsyncExitStack() as stack:
        for engine in engines:
            await engine.open()
            stack.push_async_callback(engine.close)
        control.snapshot = table(engines)
        await control.open()
        stack.push_async_callback(control.close)
        tasks = await stack.enter_async_context(Tasks())
        router = build_router(settings(control.address, **more), IDENTITY, production_ports())
        running = tasks.start(router.run(), name="router")
        stack.push_async_callback(_end, router, running)
        opened = tasks.start(router.opened(), name="opened")
        await asyncio.wait([opened, running], return_when=asyncio.FIRST_COMPLETED)
        address = opened.result() if opened.done() else await _failed(running)
        await control.until(lambda: wire.Applied(1) in control.heard)
        client = httpx.AsyncClient(
            base_url=f"http://{address}", headers={"authorization": f"Bearer {KEY.text}"}, timeout=20
        )
        await stack.enter_async_context(client)
        yield Rig(router, address, control, engines, client, tasks)


async def _failed(running: "asyncio.Task[None]") -> str:
    await running
    raise AssertionError("the router ended before it listened")


async def _end(router: Router, running: "asyncio.Task[None]") -> None:
    await router.aclose()
    await running
