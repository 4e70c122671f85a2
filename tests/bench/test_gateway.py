"""The measurement of the gateway: its pieces run, count and say what they must. Never how fast."""

import http.client
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bench import gateway, report
from bench.rig.instrument import CannotMeasure, Instrument, Load, build, instrument
from bench.rig.subjects import nginx_binary
from tests.conftest import tool as installed


@pytest.fixture(scope="module", autouse=True)
def compiler() -> str:
    """The instrument is C: without a compiler these tests are skipped, and fail in CI."""
    return installed("gcc", "cc")


CORES = frozenset(os.sched_getaffinity(0))
CHUNKS = 5
CHAT = "/v1/chat/completions"
BRIEF = gateway.Plan(
    rounds=1,
    plain=Load(4, 0, warm_up_s=0.1, measured_s=0.2),
    streams=Load(4, gateway.EVENTS, warm_up_s=0.1, measured_s=1.5),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("instruments")
    build(where)
    return where


@pytest.fixture
async def tool(folder: Path) -> AsyncIterator[Instrument]:
    async with instrument(folder, CORES, chunks=CHUNKS, pace_s=0.005) as running:
        yield running


def ask(connection: http.client.HTTPConnection, body: dict[str, object]) -> bytes:
    text = json.dumps(body, separators=(",", ":"))
    connection.request("POST", CHAT, text, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    assert answer.status == 200
    return answer.read()


async def test_the_mock_engine_answers_plain_and_streams_on_one_connection(tool: Instrument) -> None:
    for port in tool.engine.ports:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        assert json.loads(ask(connection, {"model": "mock"}))["model"] == "mock"
        events = ask(connection, {"model": "mock", "stream": True}).split(b"\n\n")
        assert len(events) == tool.engine.events + 1  # after the last comes nothing
        assert events[-2:] == [b"data: [DONE]", b""]
        assert json.loads(events[0].removeprefix(b"data: "))["choices"][0]["delta"]["content"]
        assert json.loads(events[-3].removeprefix(b"data: "))["usage"]["completion_tokens"] == 64
        assert json.loads(ask(connection, {"model": "mock"}))["usage"]["total_tokens"] == 84
        connection.close()


async def test_the_load_generator_counts_answers_and_events(tool: Instrument) -> None:
    port = tool.engine.ports[0]
    plain = await tool.run(port, Load(3, 0, 0.05, 0.2), "any")
    assert plain.requests > 0 and plain.events == 0 and plain.errors == 0
    assert plain.latency_p50_s is not None and plain.first_event_p50_s is None
    streams = await tool.run(port, Load(3, tool.engine.events, 0.05, 0.4), "any", (os.getpid(),))
    assert streams.requests > 0 and streams.events >= streams.requests * CHUNKS
    assert streams.gap_p50_s is not None and streams.first_event_p50_s is not None
    assert 0 < streams.engine_busy_s + streams.load_busy_s < streams.seconds
    again = await tool.run(tool.engine.ports[1], Load(2, 0, 0.05, 0.1), "any")
    assert again.requests > 0 and again.events == 0


async def test_a_stream_that_is_not_whole_is_no_measurement(tool: Instrument) -> None:
    with pytest.raises(CannotMeasure, match="wrong number of events"):
        await tool.run(tool.engine.ports[0], Load(3, tool.engine.events + 1, 0.05, 0.4), "any")


async def test_a_refused_key_is_no_measurement(tmp_path: Path) -> None:
    async with gateway.stand(tmp_path) as on:
        router = on.subjects[-1]
        router.wake()
        with pytest.raises(CannotMeasure, match="401"):
            await on.instrument.run(router.port, BRIEF.plain, "sk-unknown", router.pids)


async def test_one_brief_round_has_every_figure(tmp_path: Path) -> None:
    async with gateway.stand(tmp_path) as on:
        found = await gateway.measure(on, BRIEF)
        assert on.feeder.rows_lost == 0
    result = gateway.summary(found)
    subjects = ["direct", "nginx", "router"] if nginx_binary() else ["direct", "router"]
    assert sorted(result["subjects"]) == subjects
    assert result["ratio_vllm_router"] is None and result["ratio_sglang_router"] is None
    assert (result["ratio_nginx"] is None) == (nginx_binary() is None)
    assert (result["chunk_cpu_ratio_nginx"] is None) == (nginx_binary() is None)
    assert result["first_chunk_added_p50_s"] is not None
    assert len(result["samples"]) == 2 * len(subjects)
    assert {measured.saturated for measured in found} <= {"subject", "instrument", "others", "nobody"}
    assert json.loads(json.dumps(result)) == result


@pytest.mark.parametrize(
    ("subject", "instrument_share", "others", "who"),
    [
        (0.97, 0.5, 0.0, "subject"),
        (0.5, 0.98, 0.0, "instrument"),
        (0.5, 0.5, 0.48, "others"),
        (0.5, 0.5, 0.1, "nobody"),
    ],
)
def test_whoever_has_no_time_left_saturated(
    subject: float, instrument_share: float, others: float, who: str
) -> None:
    assert gateway.who_saturated(subject, instrument_share, others) == who


def test_the_page_says_what_the_file_says(tmp_path: Path) -> None:
    about = {
        "requests_per_s": 12345, "request_cpu_us": 67.8, "latency_p50_s": 0.004, "chunk_cpu_us": 23.4,
        "first_chunk_p50_s": 0.0005, "first_chunk_added_p50_s": 0.00034, "gap_p99_s": 0.021, "rss_mb": 38.0,
        "saturated_plain": "subject", "saturated_streams": "nobody",
    }  # fmt: skip
    result = {
        "commit": "abc", "measured": "today", "rounds": 3, "connections": 64, "streams": 200, "pace_s": 0.02,
        "machine": {"processor": "P", "cores": 2, "memory_gb": 8.0, "kernel": "K", "python": "3"},
        "ratio_nginx": 0.41, "chunk_cpu_ratio_nginx": 1.25, "usage_rows": {"stored": 9, "lost": 0},
        "subjects": {"router": about}, "load_average_before": 0.1,
    }  # fmt: skip
    (tmp_path / "gateway.json").write_text(json.dumps(result))
    page = report.render(tmp_path)
    for figure in ("12,345", "67.8", "23.4", "0.34 ms", "0.41", "1.25", "38"):
        assert figure in page
