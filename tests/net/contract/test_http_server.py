"""What the client listener promises, seen from raw bytes."""

import asyncio
import contextlib
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmgw.aio.tasks import Tasks
from llmgw.net.http1.limits import ServerLimits
from llmgw.ports import BodyTooLarge, BodyTooSlow, Exchange
from tests.net.contract.conftest import Dial
from tests.net.toolkit import Wire, echo, get, post, serving

SPLIT_RUNS = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])


# ---------------------------------------------------------------- ordinary requests


async def test_a_request_is_answered_with_length_date_and_the_connection_kept(dial: Dial) -> None:
    async with serving(echo) as listener:
        wire = await dial(listener.address)
        for body in (b"first", b"", b"x" * 200_000):
            await wire.send(post(body, "/v1/x?y=%31"))
            answer = await wire.answer()
            assert (answer.status, answer.body) == (200, body)
            assert answer.headers["x-target"] == "/v1/x?y=%31"
            assert answer.headers["date"] == "Tue, 01 Dec 2026 12:00:00 GMT"
            assert "connection" not in answer.headers


async def test_a_streamed_answer_arrives_piece_by_piece_and_ends_with_its_terminator(dial: Dial) -> None:
    step = asyncio.Event()

    async def stream(exchange: Exchange) -> None:
        exchange.start(200, [(b"content-type", b"text/event-stream")])
        for piece in (b"data: 1\n\n", b"data: 2\n\n"):
            exchange.write(piece)
            await step.wait()
            step.clear()
        exchange.write(b"")
        exchange.finish()

    async with serving(stream) as listener:
        wire = await dial(listener.address)
        await wire.send(get())
        head = await wire.head()
        assert b"transfer-encoding: chunked\r\n" in head
        assert await wire.reader.readexactly(14) == b"9\r\ndata: 1\n\n\r\n"
        step.set()
        assert await wire.reader.readexactly(14) == b"9\r\ndata: 2\n\n\r\n"
        step.set()
        assert await wire.reader.readexactly(5) == b"0\r\n\r\n"
        await wire.send(get())
        await wire.head()


async def test_a_streamed_head_travels_at_once_when_no_piece_follows(dial: Dial) -> None:
    go_on = asyncio.Event()

    async def stream(exchange: Exchange) -> None:
        exchange.start(200, [])
        await go_on.wait()
        exchange.finish()

    async with serving(stream) as listener:
        wire = await dial(listener.address)
        await wire.send(get())
        await wire.head()
        go_on.set()
        assert await wire.reader.readexactly(5) == b"0\r\n\r\n"


async def test_head_and_bodiless_answers_carry_no_body(dial: Dial) -> None:
    async def answer(exchange: Exchange) -> None:
        if exchange.head.target == b"/204":
            exchange.respond(204, [], b"")
        elif exchange.head.target == b"/stream":
            exchange.start(200, [])
            exchange.write(b"never sent")
            exchange.finish()
        else:
            exchange.respond(200, [], b"12345")

    async with serving(answer) as listener:
        wire = await dial(listener.address)
        await wire.send(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await wire.answer("HEAD")).headers["content-length"] == "5"
        await wire.send(b"HEAD /stream HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await wire.answer("HEAD")).status == 200
        await wire.send(get("/204"))
        answer_204 = await wire.answer()
        assert answer_204.status == 204
        assert "content-length" not in answer_204.headers
        await wire.send(get("/"))
        assert (await wire.answer()).body == b"12345"


async def test_http_1_0_is_answered_in_kind(dial: Dial) -> None:
    async def answer(exchange: Exchange) -> None:
        if exchange.head.target == b"/stream":
            exchange.start(200, [])
            exchange.write(b"until ")
            exchange.write(b"close")
            exchange.finish()
        else:
            exchange.respond(200, [], b"plain")

    async with serving(answer) as listener:
        wire = await dial(listener.address)
        await wire.send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        kept = await wire.answer()
        assert (kept.body, kept.headers["connection"]) == (b"plain", "keep-alive")
        await wire.send(b"GET / HTTP/1.0\r\n\r\n")
        last = await wire.answer()
        assert (last.body, last.headers["connection"]) == (b"plain", "close")
        assert await wire.closed() == b""
        wire = await dial(listener.address)
        await wire.send(b"GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        streamed = await wire.answer()
        assert (streamed.body, streamed.clean) == (b"until close", True)
        assert "transfer-encoding" not in streamed.headers


async def test_connection_close_is_obeyed_after_the_answer(dial: Dial) -> None:
    async with serving(echo) as listener:
        wire = await dial(listener.address)
        await wire.send(post(b"x" * 100_000, extra="Connection: close\r\n"))
        answer = await wire.answer()
        assert (len(answer.body), answer.headers["connection"]) == (100_000, "close")
        assert await wire.closed() == b""


async def test_an_upgrade_to_h2c_is_ignored_and_the_body_kept(dial: Dial) -> None:
    upgrade = (
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n"
    )
    async with serving(echo) as listener:
        wire = await dial(listener.address)
        await wire.send(post(b"kept", extra=upgrade))
        assert (await wire.answer()).body == b"kept"
        chunked = f"POST / HTTP/1.1\r\nHost: a\r\n{upgrade}Transfer-Encoding: chunked\r\n\r\n".encode()
        await wire.send(chunked + b"4\r\nkept\r\n0\r\n\r\n")
        assert (await wire.answer()).body == b"kept"


async def test_empty_lines_before_a_request_are_skipped(dial: Dial) -> None:
    async with serving(echo) as listener:
        wire = await dial(listener.address)
        for prefix in (b"\r\n", b"\r\n\r\n", b""):
            await wire.send(prefix + post(b"x"))
            assert (await wire.answer()).body == b"x"


# ---------------------------------------------------------------- bodies


async def test_chunked_bodies_and_trailers(dial: Dial) -> None:
    async with serving(echo) as listener:
        wire = await dial(listener.address)
        head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        await wire.send(head + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
        assert (await wire.answer()).body == b"abcde"
        await wire.send(head + b"3\r\nabc\r\n0\r\nHost: evil\r\nAuthorization: x\r\n\r\n")
        answer = await wire.answer()
        assert answer.body == b"abc"
        assert await wire.closed() == b""


async def test_a_malformed_chunked_body_is_answered_400_and_the_handler_cancelled(dial: Dial) -> None:
    entered = asyncio.Event()
    cancelled = asyncio.Event()

    async def wait(exchange: Exchange) -> None:
        entered.set()
        try:
            await exchange.read_body(1000)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with serving(wait) as listener:
        wire = await dial(listener.address)
        await wire.send(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        await entered.wait()
        await wire.send(b"zz\r\n")
        assert (await wire.answer()).status == 400
        assert await wire.closed() == b""
        await cancelled.wait()


async def test_expect_100_continue_is_answered_when_the_body_is_asked_for(dial: Dial) -> None:
    asked = asyncio.Event()

    async def late(exchange: Exchange) -> None:
        await asked.wait()
        exchange.respond(200, [], await exchange.read_body(100))

    async with serving(late) as listener:
        wire = await dial(listener.address)
        request = post(b"body", extra="Expect: 100-continue\r\n")
        await wire.send(request[:-4])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await wire.reader.readexactly(1)
        asked.set()
        assert await wire.head() == b"HTTP/1.1 100 Continue\r\n\r\n"
        await wire.send(b"body")
        assert (await wire.answer()).body == b"body"


async def test_an_answer_without_reading_the_body_reaches_a_client_that_is_still_sending(dial: Dial) -> None:
    async def refuse(exchange: Exchange) -> None:
        exchange.respond(401, [], b"no")

    async with serving(refuse) as listener:
        wire = await dial(listener.address)
        await wire.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n")
        for _ in range(10):
            await wire.send(b"x" * 100_000)
        answer = await wire.answer()
        assert (answer.status, answer.body, answer.headers["connection"]) == (401, b"no", "close")
        assert await wire.closed() == b""


@pytest.mark.parametrize("announced", [True, False])
async def test_a_body_above_the_limit_is_refused_announced_or_counted(dial: Dial, announced: bool) -> None:
    async def bounded(exchange: Exchange) -> None:
        try:
            await exchange.read_body(1000)
        except BodyTooLarge:
            exchange.respond(413, [], b"too large")

    async with serving(bounded) as listener:
        wire = await dial(listener.address)
        if announced:
            await wire.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n")
        else:
            await wire.send(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
            for _ in range(11):
                await wire.send(b"64\r\n" + b"x" * 100 + b"\r\n")
        assert (await wire.answer()).status == 413
        assert await wire.closed() == b""


async def test_a_body_nobody_asked_for_is_not_taken_from_the_socket(dial: Dial) -> None:
    asked = asyncio.Event()
    taken = 0

    async def late(exchange: Exchange) -> None:
        nonlocal taken
        await asked.wait()
        taken = len(await exchange.read_body(30_000_000))
        exchange.respond(200, [], b"")

    async with serving(late) as listener, Tasks() as tasks:
        wire = await dial(listener.address)
        sending = tasks.start(wire.send(post(bytes(20_000_000))), name="send")
        done, _ = await asyncio.wait([sending], timeout=0.3)
        assert not done  # stuck in the kernel's buffers
        asked.set()
        assert (await wire.answer()).status == 200
        assert taken == 20_000_000


async def test_a_slow_body_is_told_so(dial: Dial) -> None:
    async def bounded(exchange: Exchange) -> None:
        try:
            await exchange.read_body(100_000)
        except BodyTooSlow:
            exchange.respond(408, [], b"too slow")

    limits = ServerLimits(body_grace_s=0.05, body_rate=10_000_000)
    async with serving(bounded, limits=limits) as listener:
        wire = await dial(listener.address)
        await wire.send(post(b"x" * 50_000)[:-1])
        answer = await wire.answer()
        assert (answer.status, answer.headers["connection"]) == (408, "close")
        assert await wire.closed() == b""


# ---------------------------------------------------------------- smuggling and pipelining

MALFORMED = {
    "cl and te": (
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    ),
    "two lengths": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 30\r\n\r\n",
    "gzip, chunked": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "obs-fold": b"GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "absolute": b"GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "nonsense": b"hello?\r\n\r\n",
}


@pytest.mark.parametrize("case", MALFORMED)
async def test_a_malformed_request_gets_an_error_and_nothing_after_it_is_served(
    dial: Dial, case: str
) -> None:
    served: list[bytes] = []

    async def count(exchange: Exchange) -> None:
        served.append(exchange.head.target)
        exchange.respond(200, [], b"")

    async with serving(count) as listener:
        wire = await dial(listener.address)
        await wire.send(MALFORMED[case] + get("/smuggled"))
        answer = await wire.answer()
        assert 400 <= answer.status < 600
        error = json.loads(answer.body)["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert answer.headers["x-request-id"].startswith("req-")
        assert answer.headers["connection"] == "close"
        assert await wire.closed() == b""
    assert served == []


async def test_pipelined_requests_are_served_in_order_one_at_a_time(dial: Dial) -> None:
    running = 0

    async def one(exchange: Exchange) -> None:
        nonlocal running
        running += 1
        assert running == 1
        await asyncio.sleep(0)
        running -= 1
        exchange.respond(200, [], exchange.head.target)

    async with serving(one) as listener:
        wire = await dial(listener.address)
        await wire.send(b"".join(post(b"b" * (n % 7), f"/{n}") for n in range(500)))
        for n in range(500):
            assert (await wire.answer()).body == f"/{n}".encode()


async def test_a_flood_of_pipelined_requests_is_held_in_the_kernel(dial: Dial) -> None:
    served = 0
    go_on = asyncio.Event()

    async def slow(exchange: Exchange) -> None:
        nonlocal served
        served += 1
        await go_on.wait()
        exchange.respond(200, [], b"")

    flood = get() * 400_000
    async with serving(slow) as listener, Tasks() as tasks:
        wire = await dial(listener.address)
        sending = tasks.start(wire.send(flood), name="flood")
        done, _ = await asyncio.wait([sending], timeout=0.3)
        assert not done
        assert served == 1
        sending.cancel()


async def test_a_second_request_is_served_after_an_error_on_the_first(dial: Dial) -> None:
    async def fail_first(exchange: Exchange) -> None:
        if exchange.head.target == b"/first":
            raise LookupError("broken")
        exchange.respond(200, [], b"fine")

    failures: list[str] = []
    async with serving(fail_first, failures=failures) as listener:
        wire = await dial(listener.address)
        await wire.send(post(b"x", "/first") + post(b"y", "/second"))
        first = await wire.answer()
        assert (first.status, json.loads(first.body)["error"]["code"]) == (500, "internal_error")
        assert (await wire.answer()).body == b"fine"
    assert failures == ["answering POST b'/first': LookupError('broken')"]


@given(st.lists(st.tuples(st.binary(max_size=30), st.booleans()), min_size=1, max_size=3), st.data())
@SPLIT_RUNS
def test_any_split_of_the_bytes_gives_the_same_answers(
    requests: list[tuple[bytes, bool]], data: st.DataObject
) -> None:
    raw = b""
    for body, chunked in requests:
        if chunked:
            raw += b"POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
            raw += (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + b"0\r\n\r\n"
        else:
            raw += post(body)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(raw) - 1), max_size=8)))
    parts = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]

    async def main() -> None:
        async with serving(echo) as listener:
            wire = await Wire.dial(listener.address)
            for part in parts:
                with contextlib.suppress(ConnectionError):  # it may have closed already, see below
                    await wire.send(part)
                await asyncio.sleep(0)
            for index, (body, _) in enumerate(requests):
                answer = await wire.answer()
                assert (answer.status, answer.body) == (200, body)
                if answer.headers.get("connection") == "close":
                    # Only where a chunked body and what follows came in one piece.
                    assert requests[index][1]
                    break
            await wire.gone()

    asyncio.run(main())
