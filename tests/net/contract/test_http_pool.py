"""What the pool of connections to engines promises, against engines that do what they must not."""

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmgw.aio.tasks import Tasks
from llmgw.net.http1.limits import PoolLimits
from llmgw.ports import HttpTimeouts, Stage, UpstreamBroke, UpstreamRequest
from tests.net.toolkit import PATIENT, Script, Wire, engine, pool, until

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


async def serve_ok(wire: Wire, number: int) -> None:
    while True:
        await wire.request()
        await wire.send(OK)


def says(raw: bytes, *, then_close: bool = True) -> Script:
    async def script(wire: Wire, number: int) -> None:
        await wire.request()
        await wire.send(raw)
        if not then_close:
            await wire.closed()

    return script


# ---------------------------------------------------------------- whole exchanges


async def test_a_request_is_sent_whole_and_its_answer_read() -> None:
    seen: list[tuple[bytes, bytes]] = []

    async def script(wire: Wire, number: int) -> None:
        seen.append(await wire.request())
        await wire.send(b"HTTP/1.1 201 Created\r\nX-A: 1\r\nX-A: 2\r\nContent-Length: 5\r\n\r\nhello")
        await wire.closed()

    async with engine(script) as running, pool() as upstream:
        fetched = await upstream.fetch(running.request(b"prompt"), 100)
        assert (fetched.status, fetched.body) == (201, b"hello")
        assert [value for name, value in fetched.headers if name == b"x-a"] == [b"1", b"2"]
    head, body = seen[0]
    assert head == (
        b"POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1:%d\r\ncontent-type: text/plain\r\n"
        b"content-length: 6\r\n\r\n" % running.port
    )
    assert body == b"prompt"


async def test_the_connection_used_last_is_used_first() -> None:
    served: list[int] = []

    async def script(wire: Wire, number: int) -> None:
        while True:
            await wire.request()
            served.append(number)
            await wire.send(OK)

    async with engine(script) as running, pool() as upstream:
        first = await upstream.send(running.request())
        second = await upstream.send(running.request())
        for response in (first, second):
            async with response:
                assert await response.read(10) == b"ok"
        for _ in range(3):
            await upstream.fetch(running.request(), 10)
    assert served == [0, 1, 1, 1, 1]
    assert running.connections == 2


async def test_a_stream_arrives_piece_by_piece() -> None:
    step = asyncio.Event()

    async def script(wire: Wire, number: int) -> None:
        await wire.request()
        await wire.send(CHUNKED + b"3\r\none\r\n")
        await step.wait()
        await wire.send(b"3\r\ntwo\r\n0\r\n\r\n")
        await wire.closed()

    pieces: list[bytes] = []

    def sink(piece: bytes) -> None:
        pieces.append(piece)
        step.set()

    async with (
        engine(script) as running,
        pool() as upstream,
        await upstream.send(running.request()) as response,
    ):
        assert response.status == 200
        await response.stream(sink)
    assert pieces == [b"one", b"two"]


async def test_a_large_request_is_sent_whole() -> None:
    got: list[int] = []

    async def script(wire: Wire, number: int) -> None:
        _, body = await wire.request()
        got.append(len(body))
        await wire.send(OK)
        await wire.closed()

    async with engine(script) as running, pool() as upstream:
        assert (await upstream.fetch(running.request(bytes(10_000_000)), 10)).body == b"ok"
    assert got == [10_000_000]


@pytest.mark.parametrize(
    ("method", "raw", "body", "reused"),
    [
        ("POST", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b"", True),
        ("POST", b"HTTP/1.1 204 No Content\r\n\r\n", b"", True),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n", b"", True),
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n", b"", True),
        ("HEAD", CHUNKED, b"", True),
        ("POST", CHUNKED + b"2\r\nok\r\n0\r\n\r\n", b"ok", True),
        ("POST", CHUNKED + b"2\r\nok\r\n0\r\nX-Trailer: 1\r\n\r\n", b"ok", False),
        ("POST", b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n" + OK, b"ok", True),
        ("POST", b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", b"ok", False),
        ("POST", b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", b"ok", False),
        ("POST", b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", b"ok", True),
        ("POST", OK + b"extra", b"ok", False),
        ("POST", OK + OK, b"ok", False),
        ("POST", CHUNKED + b"2\r\nok\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n", b"ok", False),
        ("POST", CHUNKED + b"2\r\nok\r\n0\r\n\r\n\r\n", b"ok", False),
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", b"", False),
        ("POST", b"HTTP/1.1 204 No Content\r\n\r\nsurprise", b"", False),
    ],
)
async def test_an_answer_ends_where_http_says_and_only_then_is_its_connection_reused(
    method: str, raw: bytes, body: bytes, reused: bool
) -> None:
    async def script(wire: Wire, number: int) -> None:
        while True:
            await wire.request()
            await wire.send(raw)

    async with engine(script) as running, pool() as upstream:
        for _ in range(2):
            fetched = await upstream.fetch(running.request(method=method), 100)
            assert fetched.body == body
    assert running.connections == (1 if reused else 2)


async def test_bytes_that_come_later_than_the_end_close_the_connection() -> None:
    late = asyncio.Event()

    async def script(wire: Wire, number: int) -> None:
        await wire.request()
        await wire.send(OK)
        if number == 0:
            await late.wait()
            await wire.send(OK)  # a second answer nobody asked for
        await wire.closed()

    async with engine(script) as running, pool(PoolLimits(idle_s=60)) as upstream:
        await upstream.fetch(running.request(), 10)
        late.set()
        await until(lambda: running.open == 0)
        await upstream.fetch(running.request(), 10)
    assert running.connections == 2


async def test_a_body_until_close_ends_cleanly_only_where_no_length_was_announced() -> None:
    async with engine(says(b"HTTP/1.0 200 OK\r\n\r\nall of it")) as running, pool() as upstream:
        assert (await upstream.fetch(running.request(), 100)).body == b"all of it"


# ---------------------------------------------------------------- broken answers

HEAD_BREAKS = {
    "nothing": b"",
    "half a head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "malformed head": b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
    "not http": b"SSH-2.0-OpenSSH_9.6\r\n",
    "bare line feeds": b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
    "only an interim answer": b"HTTP/1.1 100 Continue\r\n\r\n",
    "switched protocols": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    "length and chunked": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nok",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok!",
    "gzip coding": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "endless head": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000,
}
BODY_BREAKS = {
    "short of its length": b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
    "no last chunk": CHUNKED + b"5\r\nshort\r\n",
    "half a chunk": CHUNKED + b"a\r\nshort",
    "half a last chunk": CHUNKED + b"5\r\nshort\r\n0\r\n",
    "malformed chunk": CHUNKED + b"5\r\nshort\r\nzz\r\n",
}


@pytest.mark.parametrize("case", HEAD_BREAKS)
async def test_what_breaks_before_the_head_is_complete_says_so(case: str) -> None:
    async with engine(says(HEAD_BREAKS[case])) as running, pool() as upstream:
        with pytest.raises(UpstreamBroke) as broke:
            await upstream.send(running.request(b"x"))
    assert broke.value.stage is Stage.HEAD
    assert not broke.value.timed_out
    assert running.connections == 1  # a fresh connection is never retried


@pytest.mark.parametrize("case", BODY_BREAKS)
async def test_a_body_that_breaks_off_is_never_a_clean_end(case: str) -> None:
    async with engine(says(BODY_BREAKS[case])) as running, pool() as upstream:
        response = await upstream.send(running.request(b"x"))
        pieces: list[bytes] = []
        async with response:
            with pytest.raises(UpstreamBroke) as broke:
                await response.stream(pieces.append)
    assert b"".join(pieces) == b"short"  # what had come is given out all the same
    assert broke.value.stage is Stage.BODY


async def test_a_reset_ends_a_body_until_close_as_broken() -> None:
    received = asyncio.Event()

    async def script(wire: Wire, number: int) -> None:
        await wire.request()
        await wire.send(b"HTTP/1.0 200 OK\r\n\r\npart")
        await received.wait()
        wire.reset()

    async with engine(script) as running, pool() as upstream:
        response = await upstream.send(running.request())
        async with response:
            with pytest.raises(UpstreamBroke) as broke:
                await response.stream(lambda piece: received.set())
    assert broke.value.stage is Stage.BODY


async def test_an_address_that_refuses_is_stage_connect() -> None:
    async with engine(serve_ok) as running:
        pass
    async with pool() as upstream:
        with pytest.raises(UpstreamBroke) as broke:
            await upstream.send(running.request())
    assert broke.value.stage is Stage.CONNECT
    assert "cannot connect" in broke.value.reason


async def test_a_head_without_end_is_given_up_at_the_limit() -> None:
    endless = b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000
    async with engine(says(endless, then_close=False)) as running, pool() as upstream:
        with pytest.raises(UpstreamBroke, match="larger than 65536"):
            await upstream.send(running.request())


async def test_an_answer_above_the_limit_breaks_off() -> None:
    async with (
        engine(says(CHUNKED + b"64\r\n" + b"x" * 100 + b"\r\n0\r\n\r\n")) as running,
        pool() as upstream,
    ):
        with pytest.raises(UpstreamBroke, match="longer than 99"):
            await upstream.fetch(running.request(), 99)
        assert len((await upstream.fetch(running.request(), 100)).body) == 100


async def test_a_request_that_would_split_is_an_error_of_the_caller() -> None:
    async with engine(serve_ok) as running, pool() as upstream:
        for headers, target in (
            (((b"a", b"b\r\nc: d"),), b"/"),
            (((b"host", b"evil"),), b"/"),
            ((), b"/ HTTP/1.1\r\nx: y\r\n"),
            ((), b"/a b"),
        ):
            request = UpstreamRequest(running.host, running.port, "GET", target, headers, b"")
            with pytest.raises(ValueError, match=r"header|target"):
                await upstream.send(request)
    assert running.connections == 0


# ---------------------------------------------------------------- the reuse race


async def test_a_reused_connection_that_died_at_once_is_replaced_by_a_fresh_one() -> None:
    async def script(wire: Wire, number: int) -> None:
        await wire.request()
        await wire.send(OK)
        if number == 0:
            await wire.request()  # takes the second request and dies without a byte

    async with engine(script) as running, pool() as upstream:
        for _ in range(2):
            assert (await upstream.fetch(running.request(b"p"), 10)).body == b"ok"
    assert running.connections == 2


async def test_it_is_replaced_once_only() -> None:
    async def script(wire: Wire, number: int) -> None:
        await wire.request()
        if number == 0:
            await wire.send(OK)
            await wire.request()

    async with engine(script) as running, pool() as upstream:
        await upstream.fetch(running.request(), 10)
        with pytest.raises(UpstreamBroke) as broke:
            await upstream.fetch(running.request(), 10)
    assert broke.value.stage is Stage.HEAD
    assert running.connections == 2


@pytest.mark.parametrize("how", ["after a byte", "after working"])
async def test_a_reused_connection_that_had_begun_is_not_retried(how: str) -> None:
    async def script(wire: Wire, number: int) -> None:
        await wire.request()
        await wire.send(OK)
        await wire.request()
        if how == "after a byte":
            await wire.send(b"H")
        else:
            await asyncio.sleep(0.05)

    async with engine(script) as running, pool(PoolLimits(race_s=0.02)) as upstream:
        await upstream.fetch(running.request(), 10)
        with pytest.raises(UpstreamBroke) as broke:
            await upstream.fetch(running.request(), 10)
    assert broke.value.stage is Stage.HEAD
    assert running.connections == 1


async def test_a_connection_the_engine_closed_while_idle_is_not_used() -> None:
    async def script(wire: Wire, number: int) -> None:
        await wire.request()
        await wire.send(OK)

    async with engine(script) as running, pool() as upstream:
        for _ in range(3):
            await upstream.fetch(running.request(), 10)
            await until(lambda: running.open == 0)
    assert running.connections == 3


# ---------------------------------------------------------------- timeouts


async def test_silence_before_the_head_times_out() -> None:
    patience = HttpTimeouts(connect=5, first_byte=0.05, idle=20, total=50)
    async with engine(says(b"", then_close=False)) as running, pool() as upstream:
        with pytest.raises(UpstreamBroke, match=r"no answer within 0\.05 s") as broke:
            await upstream.send(running.request(timeouts=patience))
    assert (broke.value.stage, broke.value.timed_out) == (Stage.HEAD, True)


async def test_silence_within_the_body_times_out_after_the_last_piece() -> None:
    patience = HttpTimeouts(connect=5, first_byte=20, idle=0.06, total=50)

    async def script(wire: Wire, number: int) -> None:
        await wire.request()
        await wire.send(CHUNKED)
        for _ in range(4):
            await asyncio.sleep(0.03)  # each within `idle`, together beyond it
            await wire.send(b"1\r\nx\r\n")
        await wire.closed()

    pieces: list[bytes] = []
    async with engine(script) as running, pool() as upstream:
        response = await upstream.send(running.request(timeouts=patience))
        async with response:
            with pytest.raises(UpstreamBroke, match=r"silent for 0\.06 s") as broke:
                await response.stream(pieces.append)
    assert (broke.value.stage, broke.value.timed_out) == (Stage.BODY, True)
    assert len(pieces) == 4


async def test_a_trickle_is_ended_by_the_total() -> None:
    patience = HttpTimeouts(connect=5, first_byte=20, idle=20, total=0.1)

    async def script(wire: Wire, number: int) -> None:
        await wire.request()
        await wire.send(CHUNKED)
        while True:
            await wire.send(b"1\r\nx\r\n")
            await asyncio.sleep(0.01)

    async with engine(script) as running, pool() as upstream:
        response = await upstream.send(running.request(timeouts=patience))
        async with response:
            with pytest.raises(UpstreamBroke, match=r"not complete within 0\.1 s") as broke:
                await response.stream(lambda piece: None)
    assert broke.value.timed_out


async def test_a_reader_that_paused_does_not_time_the_engine_out() -> None:
    patience = HttpTimeouts(connect=5, first_byte=20, idle=0.05, total=50)

    async def script(wire: Wire, number: int) -> None:
        await wire.request()
        await wire.send(CHUNKED + b"1\r\nx\r\n")
        await wire.closed()

    async with engine(script) as running, pool() as upstream, Tasks() as tasks:
        response = await upstream.send(running.request(timeouts=patience))
        async with response:
            response.pause()
            streaming = tasks.start(response.stream(lambda piece: None), name="stream")
            await asyncio.sleep(0.15)
            assert not streaming.done()
            response.resume()
            with pytest.raises(UpstreamBroke, match="silent"):
                await streaming


async def test_idle_connections_are_closed_in_time_and_bounded_in_number() -> None:
    async with engine(serve_ok) as running, pool(PoolLimits(idle_s=0.05, idle_per_address=2)) as upstream:
        responses = [await upstream.send(running.request()) for _ in range(4)]
        for response in responses:
            async with response:
                await response.read(10)
        assert running.connections == 4
        await until(lambda: running.open == 2)
        await until(lambda: running.open == 0)


async def test_a_connection_that_is_being_closed_is_passed_over() -> None:
    async with engine(serve_ok) as running, pool() as upstream:
        await upstream.fetch(running.request(), 10)
        upstream._idle[running.host, running.port][0].abort()  # the loop reports it in its next turn
        assert (await upstream.fetch(running.request(), 10)).body == b"ok"
    assert running.connections == 2


async def test_connections_to_a_withdrawn_address_are_forgotten() -> None:
    async with engine(serve_ok) as running, pool() as upstream:
        await upstream.fetch(running.request(), 10)
        upstream.close_idle(running.host, running.port)
        await upstream.fetch(running.request(), 10)
        upstream.close_idle("10.9.9.9", 1)
    assert running.connections == 2


# ---------------------------------------------------------------- pressure, cancelling, closing


async def test_an_answer_nobody_reads_yet_stays_in_the_kernel() -> None:
    sent = 0

    async def script(wire: Wire, number: int) -> None:
        nonlocal sent
        await wire.request()
        await wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 30000000\r\n\r\n")
        for _ in range(3000):
            await wire.send(b"x" * 10_000)
            sent += 10_000
        await wire.closed()

    async with engine(script) as running, pool() as upstream:
        response = await upstream.send(running.request())
        async with response:
            before = -1
            while before != sent:
                before = sent
                await asyncio.sleep(0.05)
            assert sent < 15_000_000
            assert len(await response.read(30_000_000)) == 30_000_000


@pytest.mark.parametrize("stage", ["head", "body"])
async def test_cancelling_closes_the_connection_so_that_the_engine_stops(stage: str) -> None:
    arrived = asyncio.Event()
    left = asyncio.Event()

    async def script(wire: Wire, number: int) -> None:
        await wire.request()
        if stage == "body":
            await wire.send(CHUNKED + b"1\r\nx\r\n")
        arrived.set()
        await wire.closed()
        left.set()

    async with engine(script) as running, pool() as upstream, Tasks() as tasks:

        async def exchange() -> None:
            response = await upstream.send(running.request())
            async with response:
                await response.stream(lambda piece: None)

        task = tasks.start(exchange(), name="exchange")
        await arrived.wait()
        await asyncio.sleep(0.02)
        task.cancel()
        await left.wait()


async def test_a_response_left_unread_is_not_reused() -> None:
    async with engine(says(CHUNKED + b"1\r\nx\r\n", then_close=False)) as running, pool() as upstream:
        for _ in range(2):
            response = await upstream.send(running.request())
            async with response:
                assert response.status == 200
    assert running.connections == 2


@pytest.mark.parametrize("buffered", [True, False])
async def test_a_sink_that_raises_ends_the_stream_with_its_error(buffered: bool) -> None:
    go_on = asyncio.Event()

    async def script(wire: Wire, number: int) -> None:
        await wire.request()
        await wire.send(CHUNKED + (b"1\r\nx\r\n1\r\ny\r\n0\r\n\r\n" if buffered else b""))
        await go_on.wait()
        await wire.send(b"1\r\nx\r\n1\r\ny\r\n")
        await wire.closed()

    pieces: list[bytes] = []

    def sink(piece: bytes) -> None:
        pieces.append(piece)
        raise LookupError("the scanner failed")

    async with engine(script) as running, pool() as upstream:
        response = await upstream.send(running.request())
        async with response:
            if buffered:
                await asyncio.sleep(0.02)
            go_on.set()
            with pytest.raises(LookupError):
                await response.stream(sink)
        assert pieces == [b"xy"]  # both chunks came at once; the sink is not called again
        with pytest.raises(UpstreamBroke):
            await upstream.fetch(running.request(), 0)
    assert running.connections == 2


async def test_closing_the_pool_ends_what_is_in_use() -> None:
    arrived = asyncio.Event()

    async def script(wire: Wire, number: int) -> None:
        await wire.request()
        arrived.set()
        await wire.closed()

    async with engine(script) as running, pool() as upstream, Tasks(lambda what, why: None) as tasks:
        waiting = tasks.start(upstream.send(running.request()), name="send")
        await arrived.wait()
        await upstream.aclose()
        with pytest.raises(UpstreamBroke, match="closed by the gateway"):
            await waiting
        with pytest.raises(UpstreamBroke):
            await upstream.send(running.request())


# ---------------------------------------------------------------- splits


@given(
    st.lists(st.binary(min_size=1, max_size=30), max_size=4),
    st.sampled_from(["length", "chunked", "close"]),
    st.booleans(),
    st.data(),
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_any_split_of_an_answer_reads_the_same(
    pieces: list[bytes], framing: str, interim: bool, data: st.DataObject
) -> None:
    body = b"".join(pieces)
    raw = b"HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n" if interim else b""
    match framing:
        case "length":
            raw += b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        case "chunked":
            raw += (
                CHUNKED + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
            )
        case _:
            raw += b"HTTP/1.1 200 OK\r\n\r\n" + body
    cuts = sorted(data.draw(st.sets(st.integers(1, len(raw) - 1), max_size=6)))
    parts = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]

    async def script(wire: Wire, number: int) -> None:
        while True:
            await wire.request()
            for part in parts:
                await wire.send(part)
                await asyncio.sleep(0)
            if framing == "close":
                return

    async def main() -> int:
        async with engine(script) as running, pool() as upstream:
            for _ in range(2):
                assert (await upstream.fetch(running.request(timeouts=PATIENT), 1000)).body == body
            return running.connections

    assert asyncio.run(main()) == (2 if framing == "close" else 1)
