"""What a client sees of every way an engine can answer, through a real router on real sockets (G4, G10)."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from llmgw.ports import HttpTimeouts
from llmgw.wire import watch_v1 as wire
from tests.gateway.toolkit import (
    DONE,
    FIGURES,
    HEAD,
    LAST,
    USAGE,
    Rig,
    Script,
    Talk,
    answers,
    begins_and_hangs,
    completion,
    event,
    hangs,
    rig,
    says,
    streams,
    whole,
)


def error_of(answer: httpx.Response) -> dict[str, Any]:
    error: dict[str, Any] = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert answer.headers["x-request-id"].startswith("req-")
    return error


async def stream_of(served: Rig, **more: Any) -> tuple[bytes, bool]:
    """The bytes of a streamed answer, and whether it ended cleanly."""
    got = b""
    body = {"model": "m", "messages": [], "stream": True} | more
    try:
        async with served.client.stream("POST", "/v1/chat/completions", json=body) as answer:
            assert answer.status_code == 200
            assert answer.headers["x-accel-buffering"] == "no"
            async for piece in answer.aiter_raw():
                got += piece
    except httpx.RemoteProtocolError:
        return got, False
    return got, True


async def refuses(talk: Talk) -> None:
    talk.reset()


async def half_a_head(talk: Talk) -> None:
    await talk.send(b"HTTP/1.1 200 OK\r\ncontent-le")
    talk.reset()


async def head_then_dies(talk: Talk) -> None:
    await talk.send(HEAD)
    talk.reset()


async def short_of_its_length(talk: Talk) -> None:
    await talk.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{}")
    talk.reset()


# ---------------------------------------------------------------- answers that are good


async def test_a_plain_answer_passes_byte_for_byte_with_our_headers(tmp_path: Path) -> None:
    body = json.dumps(completion(odd=1.0), indent=1).encode()

    async def script(talk: Talk) -> None:
        await talk.send(whole(200, body, {"server": "engine", "access-control-allow-origin": "*"}))

    async with rig(tmp_path, script) as served:
        answer = await served.chat()
        assert answer.status_code == 200
        assert answer.content == body
        assert answer.headers["x-llmgw-model"] == "m"
        assert len(answer.headers["x-llmgw-replica"]) == 12
        assert "server" not in answer.headers and "access-control-allow-origin" not in answer.headers
        row = await served.control.row()
        assert (row.prompt_tokens, row.completion_tokens, row.cached_tokens) == (9, 3, 2)
        assert (row.status, row.error, row.attempts, row.estimated) == (200, None, 1, False)
        assert (row.key_id, row.project, row.team, row.org, row.user) == (
            "key-1", "acme/web", "acme/research", "acme", "ann",
        )  # fmt: skip
        assert (row.model_asked, row.model_answered, row.replica, row.endpoint, row.stream) == (
            "m", "m", "m-0", "/v1/chat/completions", False,
        )  # fmt: skip
        assert row.request_id == answer.headers["x-request-id"]
        assert row.latency_s is not None and row.first_byte_s is not None


async def test_a_stream_passes_without_the_usage_nobody_asked_for(tmp_path: Path) -> None:
    async with rig(tmp_path, answers("Hel", "lo")) as served:
        got, clean = await stream_of(served)
        assert clean
        assert got == event("Hel") + event("lo") + LAST + DONE
        assert served.engines[0].asked[0].json()["stream_options"] == {"include_usage": True}
        row = await served.control.row()
        assert (row.prompt_tokens, row.completion_tokens, row.stream) == (9, 3, True)


async def test_a_stream_that_asks_for_usage_gets_it(tmp_path: Path) -> None:
    async with rig(tmp_path, answers("Hel", "lo")) as served:
        got, clean = await stream_of(served, stream_options={"include_usage": True})
        assert clean and got == event("Hel") + event("lo") + LAST + USAGE + DONE


async def test_the_engine_gets_its_own_key_and_never_the_clients(tmp_path: Path) -> None:
    async with rig(tmp_path) as served:
        await served.client.post(
            "/v1/chat/completions?x=1",
            json={"model": "m"},
            headers={"cookie": "a=b", "x-data-parallel-rank": "3", "accept-encoding": "gzip"},
        )
        asked = served.engines[0].asked[0]
        assert asked.line == "POST /v1/chat/completions HTTP/1.1"
        assert asked.headers["authorization"] == "Bearer engine-secret"
        assert not {"cookie", "x-data-parallel-rank", "accept-encoding"} & set(asked.headers)
        assert "sk-llmgw" not in repr(asked)


async def test_a_body_reaches_the_engine_byte_for_byte(tmp_path: Path) -> None:
    body = b'{ "model" :"m", "temperature": 1.50, "max_tokens":null, "seed":1e2 }'
    async with rig(tmp_path) as served:
        await served.client.post("/v1/chat/completions", content=body)
        assert served.engines[0].asked[0].body == body


async def test_connections_to_the_engine_are_reused(tmp_path: Path) -> None:
    async with rig(tmp_path) as served:
        for _ in range(3):
            await stream_of(served)
            await served.chat()
        assert served.engines[0].connections == 1


async def test_a_large_plain_answer_passes_in_pieces_and_its_usage_is_found(tmp_path: Path) -> None:
    body = json.dumps(completion("x" * 600_000)).encode()

    async def script(talk: Talk) -> None:
        await talk.send(whole(200, body))

    async with rig(tmp_path, script) as served:
        answer = await served.chat()
        assert answer.content == body
        row = await served.control.row()
        assert (row.prompt_tokens, row.completion_tokens, row.estimated) == (9, 3, False)


async def test_a_stream_without_figures_is_estimated_and_marked(tmp_path: Path) -> None:
    async with rig(tmp_path, streams(event("a"), event("b"), LAST, DONE)) as served:
        await stream_of(served)
        row = await served.control.row()
        assert row.estimated and row.completion_tokens == 3 and row.prompt_tokens


async def test_an_engine_that_does_not_end_after_done_does_not_hold_the_client(tmp_path: Path) -> None:
    async with rig(tmp_path, begins_and_hangs(event("a"), DONE)) as served:
        async with asyncio.timeout(0.9):
            got, clean = await stream_of(served)
        assert clean and got.endswith(DONE)
        await asyncio.wait_for(served.engines[0].asked[0].gone.wait(), 3)
        assert (await served.control.row()).status == 200


# ---------------------------------------------------------------- failures before the first byte

BROKEN: dict[str, tuple[Script, int, str]] = {
    "resets before headers": (refuses, 502, "upstream_error"),
    "half a header": (half_a_head, 502, "upstream_error"),
    "headers, then dies": (head_then_dies, 502, "upstream_error"),
    "shorter than its length": (short_of_its_length, 502, "upstream_error"),
    "500": (says(500, {"error": {"message": "CUDA on 10.0.0.7"}}), 502, "upstream_error"),
    "401": (says(401, {"error": "Unauthorized"}), 502, "upstream_error"),
    "404": (says(404, {"detail": "Not Found"}), 502, "upstream_error"),
    "429": (says(429, {}, {"retry-after": "7"}), 503, "server_is_overloaded"),
    "503": (says(503, {"error": {"message": "Loading model"}}), 503, "server_is_overloaded"),
    "plain: another model": (says(200, completion(model="other")), 502, "upstream_error"),
    "plain: aborted": (
        says(200, completion(choices=[{"index": 0, "finish_reason": "abort"}])), 502, "upstream_error",
    ),
    "plain: not JSON": (says(200, "text"), 502, "upstream_error"),
    "stream: another model": (streams(event("a", model="other"), DONE), 502, "upstream_error"),
    "stream: error first": (
        streams(b'data: {"error": {"message": "boom"}}\n\n', DONE), 502, "upstream_error",
    ),
    "stream: garbage first": (streams(b"data: <html>\n\n", DONE), 502, "upstream_error"),
    "stream: empty": (streams(), 502, "upstream_error"),
}  # fmt: skip


def cases(streaming: bool) -> list[str]:
    other = "plain:" if streaming else "stream:"
    return [name for name in BROKEN if not name.startswith(other)]


@pytest.mark.parametrize(
    ("name", "streaming"), [(n, True) for n in cases(True)] + [(n, False) for n in cases(False)]
)
async def test_a_failure_before_the_first_byte_is_a_real_status(
    tmp_path: Path, name: str, streaming: bool
) -> None:
    script, status, code = BROKEN[name]
    async with rig(tmp_path, script) as served:
        answer = await served.chat(stream=streaming)
        error = error_of(answer)
        assert (answer.status_code, error["code"]) == (status, code)
        assert "10.0.0.7" not in answer.text
        if name == "429":
            assert answer.headers["retry-after"] == "7"
        row = await served.control.row()
        assert (row.status, row.error) == (status, code)
        assert (row.prompt_tokens, row.completion_tokens) == (None, None)
        assert 1 <= row.attempts <= 2
        assert row.attempts == len(served.engines[0].asked)
        await served.settled()


@pytest.mark.parametrize(
    ("name", "streaming"), [(n, True) for n in cases(True)] + [(n, False) for n in cases(False)]
)
async def test_with_a_second_engine_the_client_sees_a_right_answer(
    tmp_path: Path, name: str, streaming: bool
) -> None:
    async with rig(tmp_path, BROKEN[name][0], answers("good")) as served:
        for _ in range(2):  # whichever comes first
            answer = await served.chat(stream=streaming)
            assert answer.status_code == 200 and "good" in answer.text
        await served.settled()
        await served.control.until(lambda: len(served.control.rows) == 2)
        assert sorted(row.attempts for row in served.control.rows) == [1, 2]
        assert all(row.status == 200 and row.replica == "m-1" for row in served.control.rows)


async def test_an_engine_that_refuses_the_connection_is_502_and_reported(tmp_path: Path) -> None:
    async with rig(tmp_path) as served:
        await served.engines[0].close()
        answer = await served.chat()
        assert (answer.status_code, error_of(answer)["code"]) == (502, "upstream_error")
        use = await served.settled()
        trouble = use.endpoints["m-0"].unreachable
        assert trouble is not None and "connect" in trouble
        assert (await served.control.row()).attempts == 2


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("script", [hangs, begins_and_hangs()])
async def test_silence_is_504_and_is_not_tried_again(tmp_path: Path, script: Script, streaming: bool) -> None:
    patience = HttpTimeouts(connect=1, first_byte=0.2, idle=0.2, total=5)
    async with rig(tmp_path, script, timeouts=patience) as served:
        answer = await served.chat(stream=streaming)
        assert (answer.status_code, error_of(answer)["code"]) == (504, "upstream_timeout")
        assert (await served.control.row()).attempts == 1
        await asyncio.wait_for(served.engines[0].asked[0].gone.wait(), 5)


async def test_the_whole_time_of_a_request_bounds_all_its_attempts(tmp_path: Path) -> None:
    patience = HttpTimeouts(connect=1, first_byte=10, idle=10, total=0.3)
    async with rig(tmp_path, hangs, hangs, timeouts=patience) as served:
        answer = await served.chat()
        assert answer.status_code == 504
        assert (await served.control.row()).attempts == 1


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_clients_own_mistake_is_relayed_in_our_shape_and_not_retried(
    tmp_path: Path, streaming: bool
) -> None:
    said = {
        "object": "error",
        "message": "temperature must be below 2",
        "type": "BadRequestError",
        "code": 400,
    }
    async with rig(tmp_path, says(400, said), answers()) as served:
        answers_ = [await served.chat(stream=streaming) for _ in range(2)]
        bad = [answer for answer in answers_ if answer.status_code != 200]
        assert len(bad) == 1 and bad[0].status_code == 400
        error = error_of(bad[0])
        assert error["message"] == "temperature must be below 2"
        assert (error["type"], error["code"]) == ("BadRequestError", "invalid_request")


async def test_a_mistake_told_inside_a_stream_is_the_clients_status_too(tmp_path: Path) -> None:
    frame = b'data: {"error": {"message": "too long", "type": "BadRequestError", "code": 400}}\n\n'
    async with rig(tmp_path, streams(frame, DONE)) as served:
        answer = await served.chat(stream=True)
        assert (answer.status_code, error_of(answer)["message"]) == (400, "too long")


# ---------------------------------------------------------------- failures after text was sent


def ends(*pieces: bytes, end: bytes = b"0\r\n\r\n") -> Script:
    return streams(event("a"), event("b"), *pieces, end=end)


CUT_SHORT: dict[str, Script] = {
    "dies mid-stream": ends(end=b""),
    "dies mid-chunk": ends(end=b"ff\r\nda"),
    "ends without [DONE]": ends(LAST),
    "ends inside an event": ends(event("c")[:-3]),
    "error frame then [DONE]": ends(b'data: {"error": {"message": "boom"}}\n\n', DONE),
    "abort then [DONE]": ends(LAST.replace(b'"stop"', b'"abort"'), USAGE, DONE),
    "garbage": ends(b"data: oops\n\n", DONE),
    "invalid UTF-8": ends(b'data: {"choices":[{"delta":{"content":"\xff"}}]}\n\n', DONE),
    "a line without end": ends(b"data: {" + b"x" * 1_100_000),
}


@pytest.mark.parametrize("name", list(CUT_SHORT))
@pytest.mark.parametrize("engines", [1, 2])
async def test_a_failure_after_text_is_an_error_event_and_never_a_clean_end(
    tmp_path: Path, name: str, engines: int
) -> None:
    async def script(talk: Talk) -> None:
        await CUT_SHORT[name](talk)
        if name == "dies mid-chunk":
            talk.reset()

    async with rig(tmp_path, *([script] * engines)) as served:
        got, clean = await stream_of(served)
        assert not clean, "the connection ended as if all were well"
        before, _, frame = got.rpartition(b"data: ")
        assert before == event("a") + event("b") + (LAST if name == "ends without [DONE]" else b"")
        assert json.loads(frame)["error"]["code"] == "upstream_error"
        assert b"[DONE]" not in got
        row = await served.control.row()
        assert (row.status, row.error, row.attempts) == (200, "upstream_error", 1)
        assert row.completion_tokens is not None and row.completion_tokens >= 2
        await served.settled()


@pytest.mark.parametrize("bad", [b"data: oops\n\n", b'data: {"error": {"message": "boom"}}\n\n'])
async def test_a_fault_ends_the_engines_work_at_once(tmp_path: Path, bad: bytes) -> None:
    async with rig(tmp_path, begins_and_hangs(event("a"), bad)) as served:
        async with asyncio.timeout(3):
            got, clean = await stream_of(served)
            await served.engines[0].asked[0].gone.wait()
        assert not clean and b"upstream_error" in got


async def test_a_stall_after_text_is_an_error_event(tmp_path: Path) -> None:
    patience = HttpTimeouts(connect=1, first_byte=5, idle=0.2, total=5)
    async with rig(tmp_path, begins_and_hangs(event("a")), timeouts=patience) as served:
        got, clean = await stream_of(served)
        assert not clean and b"upstream_timeout" in got
        assert (await served.control.row()).error == "upstream_timeout"


async def test_a_large_plain_answer_that_breaks_is_no_whole_answer(tmp_path: Path) -> None:
    async def script(talk: Talk) -> None:
        await talk.send(b"HTTP/1.1 200 OK\r\ncontent-length: 900000\r\n\r\n" + b"x" * 500_000)
        await asyncio.sleep(0)
        talk.reset()

    async with rig(tmp_path, script) as served:
        try:
            answer = await served.chat()
        except httpx.RemoteProtocolError:
            return
        # The reset may overtake what was sent: then nothing reached the client and it is a status.
        assert answer.status_code == 502


# ---------------------------------------------------------------- clients that leave


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_client_that_leaves_while_waiting_ends_the_engines_request(
    tmp_path: Path, streaming: bool
) -> None:
    async with rig(tmp_path, hangs) as served:
        asking = served.tasks.start(served.chat(stream=streaming), name="client")
        await served.engines[0].has_been_asked()
        asking.cancel()
        await asyncio.wait_for(served.engines[0].asked[0].gone.wait(), 5)
        row = await served.control.row()
        assert (row.status, row.completion_tokens, row.attempts) == (499, None, 1)
        await served.settled()


async def test_a_client_that_leaves_mid_stream_ends_the_engine_and_pays_for_what_it_got(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path, begins_and_hangs(event("a"), event("b"))) as served:
        body = {"model": "m", "stream": True}
        async with served.client.stream("POST", "/v1/chat/completions", json=body) as answer:
            async for _ in answer.aiter_raw():
                break
        await asyncio.wait_for(served.engines[0].asked[0].gone.wait(), 5)
        row = await served.control.row()
        assert (row.status, row.estimated) == (499, True)
        assert row.completion_tokens in (1, 2) and row.prompt_tokens
        await served.settled()


async def test_a_client_that_does_not_read_holds_the_engine_up_and_not_our_memory(tmp_path: Path) -> None:
    piece, pieces = event("x" * 100_000), 300
    blocked = asyncio.Event()

    async def script(talk: Talk) -> None:
        await talk.send(HEAD)
        for _ in range(pieces):
            try:
                async with asyncio.timeout(0.5):
                    await talk.chunk(piece)
            except TimeoutError:  # the piece is on its way all the same: only the wait was given up
                blocked.set()
        await talk.chunk(DONE)
        await talk.send(b"0\r\n\r\n")

    async with rig(tmp_path, script, max_body_mb=1) as served:
        body = {"model": "m", "stream": True}
        async with served.client.stream("POST", "/v1/chat/completions", json=body) as answer:
            async with asyncio.timeout(20):
                await blocked.wait()
            size = 0
            async for part in answer.aiter_raw():
                size += len(part)
        assert size == len(piece) * pieces + len(DONE)
        await served.settled()


# ---------------------------------------------------------------- choosing


async def test_requests_are_spread_by_what_is_in_flight(tmp_path: Path) -> None:
    async with rig(tmp_path, hangs, hangs, hangs) as served:
        asking = [served.tasks.start(served.chat(), name=f"client {i}") for i in range(6)]
        await served.control.until(lambda: sum(len(engine.asked) for engine in served.engines) == 6)
        assert [len(engine.asked) for engine in served.engines] == [2, 2, 2]
        await served.control.until(
            lambda: [one.in_flight for one in served.control.use().endpoints.values()] == [2, 2, 2]
        )
        for one in asking:
            one.cancel()
        await served.settled()


async def test_figures_are_the_engines(tmp_path: Path) -> None:
    zero = FIGURES | {"completion_tokens": 0}
    async with rig(tmp_path, says(200, completion(usage=zero))) as served:
        await served.chat()
        row = await served.control.row()
        assert row.completion_tokens == 0 and not row.estimated


async def test_a_withdrawn_endpoint_gets_nothing_after_the_acknowledgement(tmp_path: Path) -> None:
    async with rig(tmp_path, answers(), answers()) as served:
        await served.control.publish(wire.Update(2, gone_endpoints=("m-0",)))
        seen = len(served.engines[0].asked)
        for _ in range(6):
            assert (await served.chat()).status_code == 200
        assert len(served.engines[0].asked) == seen
