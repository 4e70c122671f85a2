"""What a model cannot take is refused before an engine works on it; near the limit an engine is asked."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from llmgw.wire import watch_v1 as wire
from tests.gateway.toolkit import MODEL, Engine, Script, Talk, answers, endpoint, rig, says, snapshot, streams

Table = Callable[[list[Engine]], wire.Snapshot]


def with_model(engine: str = "", **changes: Any) -> Table:
    def table(engines: list[Engine]) -> wire.Snapshot:
        return snapshot(
            engines,
            models=(msgspec.structs.replace(MODEL, **changes),),
            endpoints=tuple(
                msgspec.structs.replace(endpoint(one, index), engine=engine)
                for index, one in enumerate(engines)
            ),
        )

    return table


def said(characters: int) -> list[dict[str, Any]]:
    return [{"role": "user", "content": "word" * (characters // 4)}]


def counts(tokens: int, log: list[bytes]) -> Script:
    """An engine that counts so many tokens in anything, and answers well."""

    async def script(talk: Talk) -> None:
        if talk.asked.line.startswith("POST /tokenize"):
            log.append(talk.asked.body)
            await says(200, {"tokens": [1] * tokens})(talk)
        else:
            await answers("fine")(talk)

    return script


@pytest.mark.parametrize(
    ("path", "more", "capability", "param"),
    [
        ("/v1/chat/completions", {"messages": [], "tools": [{"type": "function"}]}, "tools", "tools"),
        ("/v1/completions", {"prompt": "x"}, "completions", "model"),
        ("/v1/embeddings", {"input": "x"}, "embeddings", "model"),
    ],
)
async def test_a_capability_that_is_not_in_the_written_list_is_refused_with_both_named(
    tmp_path: Path, path: str, more: dict[str, Any], capability: str, param: str
) -> None:
    async with rig(tmp_path, table=with_model(capabilities=("chat", "vision"))) as served:
        answer = await served.client.post(path, json={"model": "m"} | more)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["param"]) == (400, "unsupported_parameter", param)
        assert f"'{capability}'" in error["message"] and "chat, vision" in error["message"]
        row = await served.control.row()
        assert (row.status, row.error, row.attempts) == (400, "unsupported_parameter", 0)
        assert served.engines[0].asked == []


async def test_no_list_refuses_nothing(tmp_path: Path) -> None:
    async with rig(tmp_path, table=with_model(capabilities=None)) as served:
        assert (await served.chat(tools=[{"type": "function"}])).status_code == 200


async def test_far_above_the_context_is_refused_without_asking_anyone(tmp_path: Path) -> None:
    async with rig(tmp_path, table=with_model(context_length=100)) as served:
        answer = await served.chat(messages=said(1000))
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (400, "context_length_exceeded")
        assert error["param"] == "messages"
        assert "about 250 tokens" in error["message"] and "100" in error["message"]
        assert served.engines[0].asked == []
        assert (await served.control.row()).error == "context_length_exceeded"


async def test_near_the_context_the_engine_counts_the_decoded_text(tmp_path: Path) -> None:
    log: list[bytes] = []
    table = with_model(engine="llama.cpp", context_length=100)
    async with rig(tmp_path, counts(101, log), table=table) as served:
        answer = await served.chat(messages=said(400))
        assert answer.status_code == 400 and "has 101 tokens" in answer.json()["error"]["message"]
        assert log == [msgspec.json.encode({"model": "m", "content": "word" * 100})]


async def test_what_the_engine_counts_as_short_enough_is_served(tmp_path: Path) -> None:
    log: list[bytes] = []
    table = with_model(engine="llama.cpp", context_length=100)
    async with rig(tmp_path, counts(100, log), table=table) as served:
        assert (await served.chat(messages=said(400))).status_code == 200
        assert len(log) == 1
        assert (await served.chat(messages=said(300))).status_code == 200
        assert len(log) == 1, "what surely fits is not counted"
        await served.settled()


@pytest.mark.parametrize(("engine", "asked"), [("", 1), ("llama.cpp", 2)])
async def test_where_no_engine_can_count_the_engine_decides(tmp_path: Path, engine: str, asked: int) -> None:
    async def script(talk: Talk) -> None:
        if talk.asked.line.startswith("POST /tokenize"):
            await says(500, {})(talk)
        else:
            await answers("fine")(talk)

    async with rig(tmp_path, script, table=with_model(engine=engine, context_length=100)) as served:
        assert (await served.chat(messages=said(400))).status_code == 200
        assert len(served.engines[0].asked) == asked


async def test_base64_and_escapes_are_no_text(tmp_path: Path) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 50_000}}
    async with rig(tmp_path, table=with_model(context_length=600)) as served:
        assert (await served.chat(messages=[{"role": "user", "content": [image]}])).status_code == 200
        escaped = b'{"model":"m","messages":[{"role":"user","content":"%b"}]}' % (b"\\u0041" * 2000)
        answer = await served.client.post("/v1/chat/completions", content=escaped)
        assert answer.status_code == 200


LLAMA = {
    "error": {
        "code": 400,
        "message": "request (3608 tokens) exceeds the available context size (256 tokens), try increasing it",
        "type": "exceed_context_size_error",
    }
}


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    "script", [says(400, LLAMA), streams(b"data: " + msgspec.json.encode(LLAMA) + b"\n\n")]
)
async def test_an_engines_own_refusal_of_too_long_a_prompt_has_our_code(
    tmp_path: Path, script: Script, streaming: bool
) -> None:
    if not streaming and script is not None:
        script = says(400, LLAMA)
    async with rig(tmp_path, script, answers("never")) as served:
        bad = [
            one for one in [await served.chat(stream=streaming) for _ in range(2)] if one.status_code != 200
        ]
        assert len(bad) == 1, "a client's mistake is not tried elsewhere"
        error = bad[0].json()["error"]
        assert (bad[0].status_code, error["code"], error["param"]) == (
            400, "context_length_exceeded", "messages",
        )  # fmt: skip
        assert "3608" in error["message"] and "256" in error["message"]
