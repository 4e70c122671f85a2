"""Endpoints that fail are left alone, proved again and tried again; fallback models go on meanwhile."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from llmgw.core.breaker import Limits
from llmgw.wire import watch_v1 as wire
from tests.gateway.toolkit import (
    HEAD,
    KEY_ENTRY,
    MODEL,
    Engine,
    Rig,
    Script,
    Talk,
    answers,
    completion,
    endpoint,
    event,
    hangs,
    rig,
    says,
    snapshot,
)

FAILS = says(500, {"error": {"message": "CUDA error"}})
QUICK = Limits(in_row=3, open_first_s=0.3, open_cap_s=0.3)
Table = Callable[[list[Engine]], wire.Snapshot]


def code_of(answer: httpx.Response) -> str:
    code: str = answer.json()["error"]["code"]
    return code


# ---------------------------------------------------------------- the breaker


async def test_an_endpoint_that_keeps_failing_is_left_alone_and_the_client_told_at_once(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path, FAILS, breaker=Limits(in_row=3), retries=0) as served:
        for _ in range(3):
            assert (await served.chat()).status_code == 502
        answer = await served.chat()
        assert (answer.status_code, code_of(answer)) == (503, "no_endpoint")
        assert 1 <= int(answer.headers["retry-after"]) <= 5
        assert "keeps failing" in answer.json()["error"]["message"]
        assert len(served.engines[0].asked) == 3


async def test_after_a_while_one_request_tries_it_and_opens_it_to_all(tmp_path: Path) -> None:
    async with rig(tmp_path, FAILS, breaker=QUICK, retries=0) as served:
        for _ in range(3):
            await served.chat()
        served.engines[0].script = answers("well again")
        async with asyncio.timeout(10):
            while (await served.chat()).status_code == 503:
                pass
        assert {(await served.chat()).status_code for _ in range(5)} == {200}


async def test_while_one_request_tries_it_the_others_do_not_wait_for_it(tmp_path: Path) -> None:
    async with rig(tmp_path, FAILS, breaker=QUICK, retries=0) as served:
        for _ in range(3):
            await served.chat()
        served.engines[0].script = hangs
        asking = served.tasks.start(_until_not(503, served), name="probe")
        await served.control.until(lambda: len(served.engines[0].asked) == 4)
        assert (await served.chat()).status_code == 503
        asking.cancel()
        await served.settled()
        served.engines[0].script = answers()
        assert (await served.chat()).status_code == 200, "a probe whose client left is no probe"


async def _until_not(status: int, served: Rig) -> None:
    while (await served.chat()).status_code == status:
        pass


async def test_an_endpoint_that_fails_fast_does_not_draw_the_traffic(tmp_path: Path) -> None:
    async with rig(tmp_path, FAILS, answers("good"), breaker=Limits(in_row=3)) as served:
        for _ in range(20):
            assert (await served.chat()).status_code == 200
        assert len(served.engines[0].asked) == 3


async def test_failures_after_text_count_too(tmp_path: Path) -> None:
    async with rig(tmp_path, _dies_after_text, breaker=Limits(in_row=2), retries=0) as served:
        for _ in range(2):
            with pytest.raises(httpx.RemoteProtocolError):
                await served.chat(stream=True)
        assert (await served.chat(stream=True)).status_code == 503


async def _dies_after_text(talk: Talk) -> None:
    await talk.send(HEAD)
    await talk.chunk(event("a"))
    talk.reset()


async def test_a_clients_own_mistakes_never_open_it(tmp_path: Path) -> None:
    bad = says(400, {"error": {"message": "temperature must be below 2"}})
    async with rig(tmp_path, bad, breaker=Limits(in_row=2)) as served:
        assert {(await served.chat()).status_code for _ in range(6)} == {400}


# ---------------------------------------------------------------- retries


async def test_retries_are_as_many_as_configured(tmp_path: Path) -> None:
    for retries, attempts in ((0, 1), (1, 2), (2, 3)):
        folder = tmp_path / str(retries)
        folder.mkdir()
        async with rig(folder, FAILS, FAILS, FAILS, retries=retries) as served:
            assert (await served.chat()).status_code == 502
            assert (await served.control.row()).attempts == attempts


async def test_an_outage_is_not_multiplied_by_retries(tmp_path: Path) -> None:
    limits = Limits(in_row=1000, window=1000)
    async with rig(tmp_path, FAILS, FAILS, breaker=limits, retry_budget=0.0) as served:
        for _ in range(30):
            assert (await served.chat()).status_code == 502
        assert sum(len(one.asked) for one in served.engines) == 30 + 10, "a quiet time saves up ten"


async def test_a_pause_an_engine_asks_for_is_given_to_it(tmp_path: Path) -> None:
    busy = says(503, {"error": {"message": "busy"}}, {"retry-after": "30"})
    async with rig(tmp_path, busy) as served:
        first, second = await served.chat(), await served.chat()
        assert [code_of(first), code_of(second)] == ["server_is_overloaded"] * 2
        assert 28 <= int(second.headers["retry-after"]) <= 30
        assert len(served.engines[0].asked) == 1


# ---------------------------------------------------------------- endpoints that are something else


@pytest.mark.parametrize(
    "script", [says(401, {}), says(404, {"detail": "Not Found"}), says(200, completion(model="other"))]
)
async def test_an_endpoint_that_is_not_what_we_think_is_out_until_it_proves_itself(
    tmp_path: Path, script: Script
) -> None:
    async with rig(tmp_path, script, answers("good")) as served:
        for _ in range(6):
            assert (await served.chat()).status_code == 200
        assert len(served.engines[0].asked) <= 1
        served.engines[0].script, served.engines[0].models = answers("it is me"), ("m",)
        async with asyncio.timeout(10):
            while "it is me" not in (await served.chat()).text:
                pass
        assert served.engines[0].verified >= 2


async def test_one_that_proves_itself_at_once_misses_nothing(tmp_path: Path) -> None:
    async with rig(tmp_path, says(404, {})) as served:
        served.engines[0].models = ("m",)
        assert (await served.chat()).status_code == 502
        served.engines[0].script = answers("good")
        async with asyncio.timeout(0.9):
            while (await served.chat()).status_code != 200:
                pass
        assert served.engines[0].verified == 1


# ---------------------------------------------------------------- fallback models


def falling_back(*on: str, key_models: tuple[str, ...] | None = None, **main: Any) -> Table:
    """The first engine serves m, the second its fallback."""
    fallback = wire.FallbackEntry("big", on or ("unavailable",))

    def table(engines: list[Engine]) -> wire.Snapshot:
        first = msgspec.structs.replace(MODEL, fallbacks=(fallback,), **main)
        return snapshot(
            engines,
            models=(first, wire.ModelEntry("big", "always", context_length=100_000)),
            endpoints=(endpoint(engines[0]), endpoint(engines[1], 1, model="big")),
            keys=(msgspec.structs.replace(KEY_ENTRY, models=key_models),),
        )

    return table


def big() -> Script:
    return says(200, completion("from the big one", model="big"))


async def test_a_fallback_answers_when_the_model_cannot_and_is_named(tmp_path: Path) -> None:
    async with rig(tmp_path, FAILS, big(), table=falling_back()) as served:
        answer = await served.chat()
        assert answer.status_code == 200 and answer.json()["model"] == "big"
        assert answer.headers["x-llmgw-model"] == "big"
        assert served.engines[1].asked[0].json()["model"] == "big"
        row = await served.control.row()
        assert (row.model_asked, row.model_answered, row.replica) == ("m", "big", "m-1")
        assert (row.completion_tokens, row.status) == (3, 200)
        await served.settled()


async def test_a_model_without_an_endpoint_falls_back_at_once(tmp_path: Path) -> None:
    async with rig(tmp_path, answers(), big(), table=falling_back(mode="off")) as served:
        await served.control.publish(wire.Update(2, gone_endpoints=("m-0",)))
        assert (await served.chat()).json()["model"] == "big"
        assert (await served.control.row()).attempts == 1


async def test_a_fallback_the_key_may_not_use_is_none(tmp_path: Path) -> None:
    async with rig(tmp_path, FAILS, big(), table=falling_back(key_models=("m",))) as served:
        assert (await served.chat()).status_code == 502
        assert served.engines[1].asked == []


async def test_a_clients_mistake_never_falls_back(tmp_path: Path) -> None:
    bad = says(400, {"error": {"message": "temperature must be below 2"}})
    async with rig(tmp_path, bad, big(), table=falling_back("unavailable", "context")) as served:
        assert (await served.chat()).status_code == 400
        assert served.engines[1].asked == []


LONG = [{"role": "user", "content": "word" * 20_000}]
TOO_LONG = says(400, {"error": {"message": "x", "type": "exceed_context_size_error"}})


@pytest.mark.parametrize("context", [4096, None])
async def test_too_long_a_prompt_goes_to_a_fallback_that_is_for_it(
    tmp_path: Path, context: int | None
) -> None:
    table = falling_back("context", context_length=context)
    async with rig(tmp_path, TOO_LONG, big(), table=table) as served:
        answer = await served.chat(messages=LONG)
        assert answer.status_code == 200 and answer.json()["model"] == "big"
        assert len(served.engines[0].asked) == (context is None), "what is sure is not asked"
        assert (await served.control.row()).model_answered == "big"


async def test_too_long_a_prompt_does_not_go_to_a_fallback_for_other_cases(tmp_path: Path) -> None:
    async with rig(tmp_path, TOO_LONG, big(), table=falling_back()) as served:
        assert code_of(await served.chat(messages=LONG)) == "context_length_exceeded"
        assert served.engines[1].asked == []
