"""The official OpenAI client, unmodified, against a router."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import openai
import pytest
from openai.types.chat import ChatCompletionUserMessageParam

from tests.gateway.toolkit import DONE, KEY, Rig, Script, answers, event, rig, says, streams

HELLO = [ChatCompletionUserMessageParam(role="user", content="hello")]


@asynccontextmanager
async def client_of(served: Rig, key: str = KEY.text) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=f"http://{served.address}/v1", api_key=key, max_retries=0, timeout=20
    ) as client:
        yield client


async def test_models_are_listed_and_retrieved(tmp_path: Path) -> None:
    async with rig(tmp_path) as served, client_of(served) as client:
        assert [model.id async for model in client.models.list()] == ["m"]
        assert (await client.models.retrieve("m")).owned_by == "llmgw"


async def test_a_plain_chat(tmp_path: Path) -> None:
    async with rig(tmp_path, answers("Hel", "lo")) as served, client_of(served) as client:
        answer = await client.chat.completions.create(
            model="m", messages=HELLO, max_tokens=None, temperature=None, stop=None
        )
        assert answer.choices[0].message.content == "Hello"
        assert answer.usage is not None and answer.usage.prompt_tokens == 9


async def test_a_streamed_chat_without_usage(tmp_path: Path) -> None:
    async with rig(tmp_path, answers("Hel", "lo")) as served, client_of(served) as client:
        stream = await client.chat.completions.create(model="m", messages=HELLO, stream=True)
        chunks = [chunk async for chunk in stream]
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Hello"
        assert all(chunk.usage is None and chunk.choices for chunk in chunks)


async def test_a_streamed_chat_with_usage(tmp_path: Path) -> None:
    async with rig(tmp_path, answers("Hel", "lo")) as served, client_of(served) as client:
        stream = await client.chat.completions.create(
            model="m", messages=HELLO, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        assert [chunk for chunk in chunks if chunk.usage] == chunks[-1:]
        assert chunks[-1].choices == [] and chunks[-1].usage is not None
        assert chunks[-1].usage.completion_tokens == 3


async def test_a_wrong_key(tmp_path: Path) -> None:
    async with rig(tmp_path) as served, client_of(served, "sk-nonsense") as client:
        with pytest.raises(openai.AuthenticationError) as refused:
            await client.chat.completions.create(model="m", messages=HELLO)
        assert refused.value.code == "invalid_api_key"
        assert refused.value.request_id is not None


async def test_an_unknown_model(tmp_path: Path) -> None:
    async with rig(tmp_path) as served, client_of(served) as client:
        with pytest.raises(openai.NotFoundError) as refused:
            await client.chat.completions.create(model="mm", messages=HELLO)
        assert (refused.value.code, refused.value.param) == ("model_not_found", "model")


@pytest.mark.parametrize(
    "script",
    [
        streams(event("a"), end=b""),
        streams(event("a")),
        streams(event("a"), b'data: {"error": {"message": "x"}}\n\n', DONE),
        streams(event("a"), event("").replace(b"null}", b'"abort"}'), DONE),
    ],
)
async def test_a_stream_that_breaks_raises_in_the_client(tmp_path: Path, script: Script) -> None:
    async with rig(tmp_path, script) as served, client_of(served) as client:
        stream = await client.chat.completions.create(model="m", messages=HELLO, stream=True)
        with pytest.raises(openai.APIError) as broken:
            async for _ in stream:
                pass
        assert broken.value.code == "upstream_error"


async def test_an_overloaded_engine_is_retried_by_the_client_after_what_it_was_told(tmp_path: Path) -> None:
    busy = says(503, {"error": {"message": "busy"}}, {"retry-after": "3"})
    async with rig(tmp_path, busy) as served, client_of(served) as client:
        with pytest.raises(openai.InternalServerError) as refused:
            await client.chat.completions.create(model="m", messages=HELLO)
        assert refused.value.code == "server_is_overloaded"
        assert refused.value.response.headers["retry-after"] == "3"
