"""Carries one request to an engine and its answer back; does what `core.exchange` decides.

Laws: one permit an attempt, given back on every way out; one deadline a request, whatever the number
of attempts; every accepted request ends in exactly one usage row; a client that leaves cancels this
task, and with it the engine.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Final, assert_never

import msgspec

from llmgw.core import exchange as ex
from llmgw.core.demands import too_long
from llmgw.core.refusal import EngineWords
from llmgw.core.text import printable
from llmgw.gateway.call import JSON, Call
from llmgw.gateway.desk import Desk, Seat
from llmgw.gateway.record import Record
from llmgw.gateway.served_routes import Relayed
from llmgw.gateway.sinks import EventSink, PlainSink, SinkStopped
from llmgw.gateway.state import Header, Served
from llmgw.ports import HttpTimeouts, Stage, Upstream, UpstreamBroke, UpstreamRequest, UpstreamResponse
from llmgw.wire.errors import error_frame
from llmgw.wire.openai import Answer, Ask, body_for_engine, parse_engine_error
from llmgw.wire.prompt import Overflow, overflow_in
from llmgw.wire.sse import StreamFault, StreamScanner

_LOG = logging.getLogger("llmgw.gateway.relay")

OK = 200
# Of an engine's error; the message inside is clipped further.
ERROR_BODY_MAX = 64 * 1024
# Patience with the end of a message whose [DONE] has come; then its connection is not reused.
TAIL_WAIT_S = 1.0
DETAIL_MAX = 300  # characters of an engine's words in our log
CLOCK_SLACK_S = 0.01  # a timer may fire that much early

_STREAM_HEADERS: tuple[Header, ...] = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)

_STREAM_FAULTS: Final = {
    StreamFault.MALFORMED: ex.Fault.MALFORMED,
    StreamFault.ERROR_FRAME: ex.Fault.ERROR_FRAME,
    StreamFault.ABORTED: ex.Fault.ABORTED,
    StreamFault.TRUNCATED: ex.Fault.TRUNCATED,
    StreamFault.WRONG_MODEL: ex.Fault.ESTRANGED,
}


_CLIENTS_OWN: Final = frozenset({ex.Fault.MISTAKEN, ex.Fault.OVERFLOW, ex.Fault.LACKING})


class Spare(msgspec.Struct, frozen=True):
    """A fallback model that the key may use and that can take the request, and what it is for."""

    model: Served
    cases: frozenset[ex.Case]


class Job(msgspec.Struct, frozen=True):
    """What is to be relayed."""

    call: Call
    ask: Ask
    model: Served
    route: Relayed
    target: bytes  # the engine's path
    body: bytes  # as the engine gets it
    asked: bytes  # as the client sent it
    spare: tuple[Spare, ...] = ()


class Means(msgspec.Struct, frozen=True):
    """What relaying needs of the outside."""

    desk: Desk
    upstream: Upstream
    draw: random.Random
    time: Callable[[], float]  # the loop's; asking for the loop itself costs a request a system call
    policy: ex.Policy = ex.Policy()


class Relay:
    """One request, from the first choice of an endpoint to the last byte."""

    # How every request begins; on the class, because one is made for each.
    _life = ex.Life()
    _seat: Seat | None = None
    _response: UpstreamResponse | None = None
    _tail_bound: asyncio.Timeout | None = None

    def __init__(self, job: Job, means: Means, record: Record) -> None:
        self._job = job
        self._means = means
        self._record = record
        self._deadline = record.began_s + job.model.timeouts.total
        if job.spare:
            self._life = ex.Life(spare=tuple(one.cases for one in job.spare))

    async def run(self) -> None:
        """Relay until the end, whichever it is."""
        try:
            outcome = self._advance(ex.Asked())
            while isinstance(outcome, ex.Dial | ex.Switch):
                outcome = await self._dial(outcome if isinstance(outcome, ex.Dial) else self._switch(outcome))
            self._end(outcome)
        except asyncio.CancelledError:
            if self._life.phase is not ex.Phase.ENDED:
                self._advance(ex.ClientLeft())
                self._record.client_left()
                if self._seat is not None:
                    self._means.desk.abandoned(self._seat)
            raise

    def _advance(self, event: ex.Event) -> ex.Outcome:
        self._life, outcome = ex.step(self._life, event, self._means.policy, self._means.draw)
        return outcome

    def _switch(self, switch: ex.Switch) -> ex.Dial:
        """Another model from here on; the time of the request is what is left of it."""
        job = self._job
        spare, left = job.spare[switch.places - 1], job.spare[switch.places :]
        name = spare.model.entry.name
        _LOG.info("%s: %s instead of %s", job.call.request_id, name, job.model.entry.name)
        body = body_for_engine(job.asked, job.ask, name)
        self._job = msgspec.structs.replace(job, model=spare.model, body=body, spare=left)
        self._record.fell_back(name)
        self._seat = None
        return ex.Dial()

    # ------------------------------------------------------------ one attempt

    async def _dial(self, dial: ex.Dial) -> ex.Outcome:
        means, job = self._means, self._job
        again = len(dial.barred) < len(dial.tried)  # one that failed may be asked once more
        if again and not means.desk.has_other(job.model, dial.tried):
            await asyncio.sleep(dial.pause_s)
        chosen = means.desk.choose(job.model, dial)
        if not isinstance(chosen, Seat):
            return self._advance(ex.NoneLeft(chosen))
        with means.desk.permit(chosen) as seat:
            self._advance(ex.Chosen(seat.id))
            self._seat = seat
            means.desk.began(seat)
            self._record.attempt(seat.id)
            try:
                async with await means.upstream.send(self._request(seat)) as response:
                    return await self._answered(response)
            except UpstreamBroke as broke:
                late = broke.timed_out and means.time() >= self._deadline - CLOCK_SLACK_S
                fault = ex.Fault.OVERDUE if late else _fault_of(broke)
                if fault is ex.Fault.REFUSED:
                    seat.trouble = broke.reason
                return self._faulted(fault, broke.reason)

    def _request(self, seat: Seat) -> UpstreamRequest:
        job, entry = self._job, seat.entry
        accept = b"text/event-stream" if job.ask.stream else b"application/json"
        timeouts = job.model.timeouts
        left_s = max(0.001, self._deadline - self._means.time())
        return UpstreamRequest(
            entry.host,
            entry.port,
            "POST",
            job.target,
            (JSON, (b"accept", accept), job.call.id_header, *seat.headers),
            job.body,
            HttpTimeouts(timeouts.connect, timeouts.first_byte, timeouts.idle, left_s),
        )

    async def _answered(self, response: UpstreamResponse) -> ex.Outcome:
        status = response.status
        if status != OK:
            fault = ex.fault_of_status(status, optional=not self._job.route.everywhere)
            if fault is not None:
                return await self._refused(response, fault)
        if self._seat is not None:
            self._seat.trouble = None
        self._advance(ex.HeadArrived())
        self._response = response
        try:
            if self._job.ask.stream:
                return await self._stream(response)
            return await self._plain(response)
        finally:
            self._response = None

    async def _refused(self, response: UpstreamResponse, fault: ex.Fault) -> ex.Outcome:
        """The engine answered with an error status."""
        try:
            body = await response.read(ERROR_BODY_MAX)
        except UpstreamBroke:
            body = b""  # the status says enough
        said = parse_engine_error(body)
        overflow = overflow_in(said) if said is not None else None
        if overflow is not None:
            return self._overflowed(overflow)
        if fault is ex.Fault.ESTRANGED and self._seat is not None:
            self._seat.trouble = f"answered with status {response.status}"
        event = ex.Faulted(
            fault,
            detail=f"status {response.status}: {said.message if said else ''}",
            retry_after_s=_retry_after(response.headers),
            message=said.message if said else None,
            param=said.param if said else None,
            engine=EngineWords(response.status, said.type if said else None, said.code if said else None),
        )
        return self._fail(event)

    def _overflowed(self, overflow: Overflow) -> ex.Outcome:
        """The engine found the prompt too long."""
        job = self._job
        counted, allowed = overflow.counted, overflow.allowed or job.model.entry.context_length
        said = None
        if counted is not None and allowed is not None:
            said = too_long(job.model.entry.name, job.route.param, counted, allowed).message
        return self._fail(ex.Faulted(ex.Fault.OVERFLOW, message=said, param=job.route.param))

    # ------------------------------------------------------------ streams

    async def _stream(self, response: UpstreamResponse) -> ex.Outcome:
        ask = self._job.ask
        scanner = StreamScanner(
            usage_asked=ask.usage_asked,
            usage_continuous=ask.usage_continuous,
            model=self._job.model.entry.name,
        )
        self._record.scanner = scanner
        sink = EventSink(scanner, self._begin_stream, self._job.call.exchange.write, self._whole)
        try:
            async with asyncio.timeout(None) as self._tail_bound:
                await response.stream(sink)
        except SinkStopped:
            assert scanner.fault is not None, "a sink stops at a fault"
            return self._stream_fault(scanner.fault, scanner.fault_data)
        except (UpstreamBroke, TimeoutError):
            if not scanner.done:
                raise
        fault = sink.end()
        return ex.GoOn() if fault is None else self._stream_fault(fault, scanner.fault_data)

    def _begin_stream(self) -> None:
        self._begin(_STREAM_HEADERS)

    def _begin(self, headers: tuple[Header, ...]) -> None:
        """The first bytes are here: from now on the client has a 200."""
        self._advance(ex.FirstOut())
        self._record.first_byte()
        response, exchange = self._response, self._job.call.exchange
        assert response is not None, "bytes come from a response"
        exchange.start(200, (*headers, *self._answer_headers()))
        exchange.watch_pressure(response.pause, response.resume)

    def _whole(self) -> None:
        """`[DONE]` went out: the client has all, whatever the engine's connection does now."""
        self._advance(ex.Completed())
        self._well()
        self._job.call.exchange.finish()
        assert self._tail_bound is not None, "a stream has its bound"
        self._tail_bound.reschedule(self._means.time() + TAIL_WAIT_S)

    def _stream_fault(self, fault: StreamFault, data: bytes) -> ex.Outcome:
        said = parse_engine_error(data) if fault is StreamFault.ERROR_FRAME else None
        overflow = overflow_in(said) if said is not None else None
        if overflow is not None:
            return self._overflowed(overflow)
        status = said.status if said else None
        kind = ex.fault_of_status(status) if status else None
        detail = f"{fault.value}: {said.message if said else data[:100]!r}"
        if kind is not ex.Fault.MISTAKEN or said is None or status is None:
            return self._faulted(_STREAM_FAULTS[fault], detail)
        # Some engines answer 200 and say in the first event that the request is wrong.
        words = EngineWords(status, said.type, said.code)
        return self._fail(
            ex.Faulted(kind, detail, message=said.message, param=said.param, engine=words),
        )

    # ------------------------------------------------------------ plain answers

    async def _plain(self, response: UpstreamResponse) -> ex.Outcome:
        exchange = self._job.call.exchange
        sink = PlainSink(lambda: self._begin((JSON,)), exchange.write)
        await response.stream(sink)
        if sink.passing:
            self._record.usage = sink.usage()
            self._well()
            return self._advance(ex.Completed())
        answer = sink.answer()
        fault = self._judge(answer)
        if fault is not None or answer is None:
            return self._faulted(fault or ex.Fault.MALFORMED, "plain answer")
        self._record.usage = answer.usage
        self._advance(ex.FirstOut())
        self._record.first_byte()
        self._advance(ex.Completed())
        self._well()
        exchange.respond(200, (JSON, *self._answer_headers()), sink.body())
        return ex.GoOn()

    def _judge(self, answer: Answer | None) -> ex.Fault | None:
        if answer is None:
            return ex.Fault.MALFORMED
        if answer.error:
            return ex.Fault.ERROR_FRAME
        if answer.aborted:
            return ex.Fault.ABORTED
        if answer.model not in (None, "", self._job.model.entry.name):
            return ex.Fault.ESTRANGED
        return None

    # ------------------------------------------------------------ ends

    def _well(self) -> None:
        """The engine gave a whole answer."""
        self._record.completed()
        if self._seat is not None:
            self._means.desk.succeeded(self._seat)

    def _faulted(self, fault: ex.Fault, detail: str) -> ex.Outcome:
        return self._fail(ex.Faulted(fault, detail))

    def _fail(self, event: ex.Faulted) -> ex.Outcome:
        job = self._job
        if self._seat is not None:
            self._means.desk.failed(self._seat, event.fault, event.retry_after_s)
        if event.fault not in _CLIENTS_OWN:
            what = f"{event.fault.value} ({printable(event.detail[:DETAIL_MAX])})"
            model = job.model.entry.name
            _LOG.warning("%s: %s at %s: %s", job.call.request_id, model, self._life.endpoint, what)
        return self._advance(event)

    def _end(self, outcome: ex.Outcome) -> None:
        call = self._job.call
        match outcome:
            case ex.GoOn() | ex.Vanish() | ex.Dial() | ex.Switch():
                pass  # a whole answer was sent already
            case ex.Reject(refuse):
                self._record.failed(refuse)
                call.refuse(refuse)
            case ex.Break(refuse):
                self._record.failed(refuse)
                if self._job.ask.stream:
                    call.exchange.write(error_frame(refuse))
                call.exchange.abort()
            case ex.Finish():
                self._record.completed()
                call.exchange.finish()
            case _:
                assert_never(outcome)

    def _answer_headers(self) -> tuple[Header, ...]:
        assert self._seat is not None, "an answer comes from somewhere"
        return (self._job.call.id_header, self._job.model.header, self._seat.replica)


def _fault_of(broke: UpstreamBroke) -> ex.Fault:
    match broke.stage:
        case Stage.CONNECT:
            return ex.Fault.REFUSED
        case Stage.HEAD:
            return ex.Fault.SILENT if broke.timed_out else ex.Fault.CUT
        case Stage.BODY:
            return ex.Fault.STALLED if broke.timed_out else ex.Fault.CUT
        case _:
            assert_never(broke.stage)


def _retry_after(headers: tuple[tuple[bytes, bytes], ...]) -> float | None:
    for name, value in headers:
        if name == b"retry-after":
            return float(value) if value.isdigit() and len(value) < 6 else None
    return None
