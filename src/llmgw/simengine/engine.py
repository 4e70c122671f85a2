"""Answers requests as an engine would, in time: waits for a slot, prefills, decodes word by word.

Laws: a slot and its tokens are given back on every way out, a client that leaves included; words come at
the set rate, late ones at once; a slow reader holds up its own words only; failures happen on purpose,
where the options say.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from llmgw.ports import BodyTooLarge, BodyTooSlow, Clock, Exchange
from llmgw.simengine.answers import GARBAGE, Answer, Counters, metrics, models, refusal
from llmgw.simengine.ask import BadAsk, Work, read_ask
from llmgw.simengine.options import BODY_MAX, SimOptions

CRASH_AT_WORD = 3
_JSON = (b"content-type", b"application/json")
_TEXT = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")
_EVENTS = ((b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store"))


class SimEngine:
    """One simulated engine; `handle` is its `ExchangeHandler`, `die` ends the process when it crashes."""

    def __init__(
        self, options: SimOptions, clock: Clock, draw: random.Random, die: Callable[[], None]
    ) -> None:
        self._options = options
        self._clock = clock
        self._draw = draw
        self._die = die
        self._slots = asyncio.Semaphore(options.slots)
        self._born = asyncio.get_running_loop().time()
        self._asked = 0
        self.counters = Counters()

    async def handle(self, exchange: Exchange) -> None:
        """Answer one request."""
        path = exchange.head.target.partition(b"?")[0]
        match exchange.head.method, path:
            case "GET", b"/health":
                exchange.respond(200 if self._started() else 503, (), b"")
            case _ if not self._allowed(exchange):
                exchange.respond(401, (_JSON,), b'{"error":"Unauthorized"}')
            case "GET", b"/v1/models":
                exchange.respond(200, (_JSON,), models(self._options, int(self._clock.now())))
            case "GET", b"/metrics":
                exchange.respond(200, (_TEXT,), metrics(self._options, self.counters))
            case "POST", (b"/v1/chat/completions" | b"/v1/completions"):
                await self._complete(exchange, chat=path == b"/v1/chat/completions")
            case _:
                missing = BadAsk(f"the simulated engine has no {path.decode(errors='replace')}", status=404)
                exchange.respond(404, (_JSON,), refusal(missing))

    def _started(self) -> bool:
        return asyncio.get_running_loop().time() - self._born >= self._options.startup_s

    def _allowed(self, exchange: Exchange) -> bool:
        key = self._options.key
        return not key or exchange.head.header(b"authorization") == b"Bearer " + key.encode()

    async def _complete(self, exchange: Exchange, *, chat: bool) -> None:
        try:
            body = await exchange.read_body(BODY_MAX)
        except BodyTooLarge:
            exchange.respond(413, (_JSON,), refusal(BadAsk("the request is too large", status=413)))
            return
        except BodyTooSlow:
            exchange.respond(408, (_JSON,), refusal(BadAsk("the request came too slowly", status=408)))
            return
        work = read_ask(body, self._options, chat=chat)
        if isinstance(work, BadAsk):
            exchange.respond(work.status, (_JSON,), refusal(work))
            return
        self._asked += 1
        if _reached(self._options.hang_after, self._asked):
            await asyncio.get_running_loop().create_future()  # until the client gives up
        if _reached(self._options.garbage_after, self._asked):
            exchange.respond(200, (_JSON,), GARBAGE)
            return
        async with self._slot(work):
            await self._answer(exchange, work)

    @asynccontextmanager
    async def _slot(self, work: Work) -> AsyncIterator[None]:
        counters = self.counters
        counters.waiting += 1
        try:
            await self._slots.acquire()
        finally:
            counters.waiting -= 1
        held = work.prompt_tokens + work.answer_tokens
        counters.running += 1
        counters.held_tokens += held
        counters.prompt_tokens += work.prompt_tokens
        try:
            yield
            counters.finished += 1
        except asyncio.CancelledError:
            counters.aborted += 1
            raise
        finally:
            counters.running -= 1
            counters.held_tokens -= held
            self._slots.release()

    async def _answer(self, exchange: Exchange, work: Work) -> None:
        crash = self._options.crash_after > 0 and self._asked >= self._options.crash_after
        prefix = "chatcmpl" if work.chat else "cmpl"
        id = f"{prefix}-{self._draw.getrandbits(96):024x}"
        answer = Answer(id, int(self._clock.now()), self._options.model, work)
        await asyncio.sleep(work.prompt_tokens / self._options.prefill_rate)
        if work.ask.stream:
            await self._stream(exchange, answer, crash)
            return
        began = asyncio.get_running_loop().time()
        for number in range(work.answer_tokens):
            await self._due(began, number)
            if crash and number == CRASH_AT_WORD:
                self._die()
        exchange.respond(200, (_JSON,), answer.plain())

    async def _stream(self, exchange: Exchange, answer: Answer, crash: bool) -> None:
        flowing = asyncio.Event()
        flowing.set()
        exchange.watch_pressure(flowing.clear, flowing.set)
        exchange.start(200, _EVENTS)
        opening = answer.opening()
        if opening:
            exchange.write(opening)
        began = asyncio.get_running_loop().time()
        for number in range(answer.work.answer_tokens):
            await self._due(began, number)
            if crash and number == CRASH_AT_WORD:
                self._die()
            await flowing.wait()
            exchange.write(answer.piece(number))
        exchange.write(answer.ending())
        exchange.finish()

    async def _due(self, began: float, number: int) -> None:
        """Wait until a word has been decoded; one that is late is there at once."""
        due = began + (number + 1) / self._options.decode_rate
        await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
        self.counters.answer_tokens += 1


def _reached(limit: int, asked: int) -> bool:
    return 0 < limit <= asked
