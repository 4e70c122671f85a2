"""Odd but lawful engines and clients, each plain and streaming, through a router on real sockets."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from llmgw.ports import HttpTimeouts
from tests.gateway.toolkit import (
    DONE,
    HEAD,
    KEY,
    LAST,
    Rig,
    Script,
    Talk,
    answers,
    ask,
    completion,
    event,
    hangs,
    rig,
    streams,
    whole,
)

BOTH = pytest.mark.parametrize("streaming", [False, True])
ENGINES = pytest.mark.parametrize("engines", [1, 2])
BODY = json.dumps(completion("good")).encode()
EVENTS = event("good") + LAST + DONE


def good(streaming: bool) -> bytes:
    """A whole answer on one connection, without its head."""
    return EVENTS if streaming else BODY


def by_length(streaming: bool, version: bytes = b"1.1") -> bytes:
    body = good(streaming)
    return b"HTTP/%b 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (version, len(body), body)


def odd(kind: str) -> Script:
    async def script(talk: Talk) -> None:
        streaming = bool(talk.asked.json().get("stream"))
        body = good(streaming)
        if kind == "1xx first":
            await talk.send(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + by_length(streaming))
        elif kind == "trailers":
            await talk.send(HEAD)
            await talk.chunk(body)
            await talk.send(b"0\r\nx-checksum: 1\r\n\r\n")
        elif kind == "bytes after the end":
            await talk.send(by_length(streaming) + b"HTTP/1.1 200 OK\r\n\r\nnobody asked for this")
        elif kind == "HTTP/1.0 only":
            await talk.send(b"HTTP/1.0 200 OK\r\n\r\n" + body)
            talk.close()
        elif kind == "closes after each answer":
            await talk.send(by_length(streaming))
            talk.close()
        else:
            await talk.send(HEAD)
            for at in range(0, len(body), 7):
                await talk.chunk(body[at : at + 7])
            await talk.send(b"0\r\n\r\n")

    return script


ODD = [
    "1xx first",
    "trailers",
    "bytes after the end",
    "HTTP/1.0 only",
    "closes after each answer",
    "in pieces",
]


@BOTH
@ENGINES
@pytest.mark.parametrize("kind", ODD)
async def test_an_odd_but_whole_answer_is_a_right_one_every_time(
    tmp_path: Path, kind: str, streaming: bool, engines: int
) -> None:
    async with rig(tmp_path, *[odd(kind)] * engines) as served:
        for _ in range(4):
            answer = await served.chat(stream=streaming)
            assert answer.status_code == 200
            assert answer.content == good(streaming)
        await served.settled()
        await served.control.until(lambda: len(served.control.rows) == 4)
        assert {(row.status, row.error) for row in served.control.rows} == {(200, None)}


@BOTH
@ENGINES
async def test_a_trickle_is_bounded_by_the_time_of_the_whole_request(
    tmp_path: Path, streaming: bool, engines: int
) -> None:
    async def trickles(talk: Talk) -> None:
        await talk.send(HEAD)
        try:
            while True:
                await talk.chunk(b":")
                await asyncio.sleep(0.05)
        except OSError:
            talk.asked.gone.set()

    patience = HttpTimeouts(connect=1, first_byte=1, idle=1, total=0.5)
    async with rig(tmp_path, *[trickles] * engines, timeouts=patience) as served:
        answer = await served.chat(stream=streaming)
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "upstream_timeout")
        assert (await served.control.row()).attempts == 1
        await served.settled()


@BOTH
async def test_silence_is_tried_elsewhere_when_there_is_an_elsewhere(tmp_path: Path, streaming: bool) -> None:
    patience = HttpTimeouts(connect=1, first_byte=0.2, idle=0.2, total=5)
    async with rig(tmp_path, hangs, answers("good"), timeouts=patience) as served:
        for _ in range(2):
            answer = await served.chat(stream=streaming)
            assert answer.status_code == 200 and "good" in answer.text
        await served.settled()


@BOTH
async def test_a_refused_connection_is_tried_elsewhere(tmp_path: Path, streaming: bool) -> None:
    async with rig(tmp_path, answers("x"), answers("good")) as served:
        await served.engines[0].close()
        for _ in range(2):
            answer = await served.chat(stream=streaming)
            assert answer.status_code == 200 and "good" in answer.text
        await served.settled()


@BOTH
@pytest.mark.parametrize(("status", "headers"), [(429, {}), (503, {"retry-after": "9"}), (503, {})])
@ENGINES
async def test_a_busy_engine_is_overload_with_its_own_patience(
    tmp_path: Path, status: int, headers: dict[str, str], streaming: bool, engines: int
) -> None:
    async def busy(talk: Talk) -> None:
        await talk.send(whole(status, b'{"error":{"message":"busy"}}', headers))

    async with rig(tmp_path, *[busy] * engines) as served:
        answer = await served.chat(stream=streaming)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "server_is_overloaded")
        assert answer.headers["retry-after"] == headers.get("retry-after", "2")
        await served.settled()


# ---------------------------------------------------------------- clients


async def raw(served: Rig, data: bytes, *, half_close: bool = False, pieces: int = 0) -> bytes:
    """What comes back for these bytes, until the router closes."""
    host, _, port = served.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    for at in range(0, len(data), pieces or len(data)):
        writer.write(data[at : at + (pieces or len(data))])
        await writer.drain()
        await asyncio.sleep(0)
    if half_close:
        writer.write_eof()
    async with asyncio.timeout(10):
        got = await reader.read()
    writer.close()
    return got


def request(body: bytes | None = None, *more: str, version: str = "1.1", length: bool = True) -> bytes:
    content = json.dumps(ask()).encode() if body is None else body
    lines = [f"POST /v1/chat/completions HTTP/{version}", "host: x", f"authorization: Bearer {KEY.text}"]
    lines += [f"content-length: {len(content)}"] if length else []
    return "\r\n".join([*lines, *more, "", ""]).encode() + content


STREAM = json.dumps(ask(stream=True)).encode()
BODIES = pytest.mark.parametrize("body", [json.dumps(ask()).encode(), STREAM])
CLOSE = "connection: close"


@BODIES
async def test_a_body_in_single_bytes_is_a_body(tmp_path: Path, body: bytes) -> None:
    async with rig(tmp_path) as served:
        got = await raw(served, request(body, CLOSE), pieces=1)
        assert got.startswith(b"HTTP/1.1 200 ") and served.engines[0].asked[0].json()["model"] == "m"


@BODIES
async def test_a_chunked_body_is_a_body(tmp_path: Path, body: bytes) -> None:
    chunked = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    async with rig(tmp_path) as served:
        head = request(b"", CLOSE, "transfer-encoding: chunked", length=False)
        assert (await raw(served, head + chunked)).startswith(b"HTTP/1.1 200 ")
        assert json.loads(served.engines[0].asked[0].body)["messages"] == ask()["messages"]


@BODIES
async def test_expect_100_continue_is_answered(tmp_path: Path, body: bytes) -> None:
    async with rig(tmp_path) as served:
        host, _, port = served.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        whole_request = request(body, CLOSE, "expect: 100-continue")
        writer.write(whole_request[: -len(body)])
        async with asyncio.timeout(5):
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(body)
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        writer.close()


@BODIES
async def test_pipelined_requests_are_answered_in_their_order(tmp_path: Path, body: bytes) -> None:
    async with rig(tmp_path) as served:
        got = await raw(served, request(body) + request(b'{"model":"nobody"}') + request(body, CLOSE))
        assert [int(one[:3]) for one in got.split(b"HTTP/1.1 ")[1:]] == [200, 404, 200]


@BODIES
async def test_a_connection_serves_on_after_an_error(tmp_path: Path, body: bytes) -> None:
    async with rig(tmp_path) as served:
        got = await raw(served, request(b"{") + request(body, CLOSE))
        assert [int(one[:3]) for one in got.split(b"HTTP/1.1 ")[1:]] == [400, 200]


@BODIES
async def test_http_1_0_gets_its_answer_until_the_connection_closes(tmp_path: Path, body: bytes) -> None:
    async with rig(tmp_path) as served:
        got = await raw(served, request(body, version="1.0"))
        head, _, content = got.partition(b"\r\n\r\n")
        assert b" 200 " in head and b"transfer-encoding" not in head.lower()
        assert content.endswith(DONE) if body is STREAM else json.loads(content)["model"] == "m"


@BODIES
async def test_an_offer_of_http_2_is_passed_over(tmp_path: Path, body: bytes) -> None:
    offer = ("upgrade: h2c", "http2-settings: AAMAAABkAAQAAP__", "connection: Upgrade, HTTP2-Settings, close")
    async with rig(tmp_path) as served:
        assert (await raw(served, request(body, *offer))).startswith(b"HTTP/1.1 200 ")


@BODIES
async def test_a_client_that_half_closes_still_has_its_answer_or_has_left(
    tmp_path: Path, body: bytes
) -> None:
    async with rig(tmp_path) as served:
        got = await raw(served, request(body, CLOSE), half_close=True)
        assert got == b"" or got.startswith(b"HTTP/1.1 200 ")
        row = await served.control.row()
        assert row.status == (200 if got else 499)
        await served.settled()


@BOTH
async def test_a_client_that_leaves_while_an_engine_is_dialled_leaves_nothing_behind(
    tmp_path: Path, streaming: bool
) -> None:
    async with rig(tmp_path, hangs) as served:
        asking = served.tasks.start(served.chat(stream=streaming), name="client")
        await served.control.until(lambda: served.control.use().endpoints["m-0"].in_flight == 1)
        asking.cancel()
        assert (await served.control.row()).status == 499
        await served.settled()


@BOTH
async def test_a_large_image_reaches_the_engine_whole_and_holds_up_no_other_stream(
    tmp_path: Path, streaming: bool
) -> None:
    image: dict[str, Any] = {
        "type": "image_url",
        "image_url": {"url": "data:image/png;base64," + "A" * 10_000_000},
    }
    messages = [{"role": "user", "content": [image, {"type": "text", "text": "what?"}]}]
    async with rig(tmp_path, max_body_mb=32) as served:
        answer = await served.chat(messages=messages, stream=streaming)
        assert answer.status_code == 200
        assert served.engines[0].asked[0].json()["messages"] == messages
        assert (await served.control.row()).status == 200


async def test_a_stream_is_passed_on_event_by_event(tmp_path: Path) -> None:
    """No event waits for the next: the engine sends it only when the client has the one before."""
    got = asyncio.Event()

    async def script(talk: Talk) -> None:
        await talk.send(HEAD)
        for text in ("a", "b", "c"):
            await talk.chunk(event(text))
            async with asyncio.timeout(5):
                await got.wait()
            got.clear()
        await talk.chunk(LAST + DONE)
        await talk.send(b"0\r\n\r\n")

    async with rig(tmp_path, script) as served:
        async with served.client.stream("POST", "/v1/chat/completions", json=ask(stream=True)) as answer:
            seen = []
            async for line in answer.aiter_lines():
                if line.startswith("data: {"):
                    seen.append(line)
                    got.set()
        assert len(seen) == 4


async def test_every_stream_of_very_many_ends(tmp_path: Path) -> None:
    limits = httpx.Limits(max_connections=80)
    async with (
        rig(tmp_path, streams(event("a"), LAST, DONE), streams(event("a"), LAST, DONE)) as served,
        httpx.AsyncClient(
            base_url=served.client.base_url, headers=served.client.headers, limits=limits
        ) as many,
    ):
        found = await asyncio.gather(
            *(many.post("/v1/chat/completions", json=ask(stream=True), timeout=40) for _ in range(80))
        )
        assert {(one.status_code, one.content[-14:]) for one in found} == {(200, DONE)}
        await served.settled()
