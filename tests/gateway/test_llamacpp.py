"""Every route that engines answer, through the official client, with a real llama.cpp behind the router."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import openai
import pytest

from tests.gateway.real_engine import ENGINE_KEY, MODEL, llama_cpp, table_of
from tests.gateway.test_openai_client import client_of
from tests.gateway.toolkit import rig
from tests.support.tiny_gguf import ANSWER

pytest.importorskip("xllamacpp")


@pytest.fixture(scope="module")
def embedding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with llama_cpp(tmp_path_factory.mktemp("embedding"), "--embeddings", "--pooling", "mean") as port:
        yield port


@pytest.fixture(scope="module")
def generating(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with llama_cpp(tmp_path_factory.mktemp("generating")) as port:
        yield port


async def test_a_plain_completion_and_its_usage(tmp_path: Path, generating: int) -> None:
    async with rig(tmp_path, table=table_of(generating)) as served, client_of(served) as client:
        answer = await client.completions.create(model="tiny", prompt="hello", temperature=0, max_tokens=5)
        assert ANSWER.startswith(answer.choices[0].text) and answer.choices[0].text
        row = await served.control.row()
        assert answer.usage is not None
        assert (row.prompt_tokens, row.completion_tokens) == (answer.usage.prompt_tokens, 5)
        assert (row.endpoint, row.stream, row.estimated) == ("/v1/completions", False, False)


async def test_a_streamed_completion_is_counted_and_its_usage_withheld(
    tmp_path: Path, generating: int
) -> None:
    async with rig(tmp_path, table=table_of(generating)) as served, client_of(served) as client:
        stream = await client.completions.create(
            model="tiny", prompt="hello", temperature=0, max_tokens=5, stream=True
        )
        chunks = [chunk async for chunk in stream]
        assert ANSWER.startswith("".join(chunk.choices[0].text for chunk in chunks))
        assert all(chunk.choices and chunk.usage is None for chunk in chunks)
        row = await served.control.row()
        assert (row.prompt_tokens, row.completion_tokens, row.estimated) == (5, 5, False)
        assert (row.endpoint, row.stream) == ("/v1/completions", True)


async def test_a_streamed_completion_that_asks_for_usage_gets_it_once_and_last(
    tmp_path: Path, generating: int
) -> None:
    async with rig(tmp_path, table=table_of(generating)) as served, client_of(served) as client:
        stream = await client.completions.create(
            model="tiny", prompt="hello", max_tokens=5, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        assert [chunk for chunk in chunks if chunk.usage] == chunks[-1:]
        assert chunks[-1].choices == [] and chunks[-1].usage is not None
        assert chunks[-1].usage.completion_tokens == 5


async def test_embeddings_and_their_usage(tmp_path: Path, embedding: int) -> None:
    async with rig(tmp_path, table=table_of(embedding)) as served, client_of(served) as client:
        answer = await client.embeddings.create(model="tiny", input=["hello", "b"])
        assert [len(one.embedding) for one in answer.data] == [256, 256]
        row = await served.control.row()
        assert (row.prompt_tokens, row.completion_tokens, row.estimated) == (6, 0, False)
        assert (row.endpoint, row.model_answered) == ("/v1/embeddings", "tiny")


async def test_a_large_answer_of_embeddings_has_its_figures_at_the_front(
    tmp_path: Path, embedding: int
) -> None:
    async with rig(tmp_path, table=table_of(embedding)) as served, client_of(served) as client:
        answer = await client.embeddings.create(model="tiny", input=["a"] * 100, encoding_format="float")
        assert len(answer.data) == 100
        row = await served.control.row()
        assert (row.prompt_tokens, row.completion_tokens, row.estimated) == (100, 0, False)


async def test_a_model_without_embeddings_says_so_and_keeps_serving(tmp_path: Path, generating: int) -> None:
    async with rig(tmp_path, table=table_of(generating)) as served, client_of(served) as client:
        with pytest.raises(openai.BadRequestError) as refused:
            await client.embeddings.create(model="tiny", input="hello")
        assert refused.value.code == "unsupported_parameter"
        row = await served.control.row()
        assert (row.status, row.attempts, row.prompt_tokens) == (400, 1, None)
        assert (await served.chat(model="tiny", max_tokens=1)).status_code == 200


async def test_text_becomes_tokens_and_tokens_text_at_no_charge(tmp_path: Path, generating: int) -> None:
    async with rig(tmp_path, table=table_of(generating)) as served:
        tokens = await served.client.post("/tokenize", json={"model": "tiny", "content": "hey"})
        assert tokens.json() == {"tokens": [104, 101, 121]}
        text = await served.client.post("/detokenize", json={"model": "tiny", "tokens": [104, 105]})
        assert text.json() == {"content": "hi"}
        await served.control.until(lambda: len(served.control.rows) == 2)
        assert {row.endpoint for row in served.control.rows} == {"/tokenize", "/detokenize"}
        assert all(
            (row.status, row.prompt_tokens, row.completion_tokens, row.estimated) == (200, None, None, False)
            for row in served.control.rows
        )


async def test_a_client_that_leaves_a_long_completion_ends_it(tmp_path: Path, generating: int) -> None:
    async with rig(tmp_path, table=table_of(generating)) as served:
        body = {"model": "tiny", "prompt": "x", "max_tokens": 200, "ignore_eos": True, "stream": True}
        async with served.client.stream("POST", "/v1/completions", json=body) as answer:
            async for _ in answer.aiter_raw():
                break
        row = await served.control.row()
        assert row.status == 499 and row.completion_tokens
        headers = {"authorization": f"Bearer {ENGINE_KEY}"}
        async with asyncio.timeout(10), httpx.AsyncClient(headers=headers) as direct:
            url = f"http://127.0.0.1:{generating}/slots"
            while any(slot["is_processing"] for slot in (await direct.get(url)).json()):
                pass


@pytest.mark.parametrize("context", [None, 256, 100_000])
async def test_too_long_a_conversation_is_told_as_such_whoever_finds_it(
    tmp_path: Path, generating: int, context: int | None
) -> None:
    model = msgspec.structs.replace(MODEL, context_length=context)
    async with rig(tmp_path, table=table_of(generating, model)) as served, client_of(served) as client:
        for words in (350, 2000):  # near the limit a token is about four bytes for others, here it is one
            with pytest.raises(openai.BadRequestError) as refused:
                await client.chat.completions.create(
                    model="tiny", messages=[{"role": "user", "content": "w " * words}]
                )
            assert (refused.value.code, refused.value.param) == ("context_length_exceeded", "messages")
            assert "256" in refused.value.message


async def test_too_long_an_input_of_embeddings_is_the_clients_mistake(tmp_path: Path, embedding: int) -> None:
    async with rig(tmp_path, table=table_of(embedding)) as served, client_of(served) as client:
        with pytest.raises(openai.BadRequestError) as refused:
            await client.embeddings.create(model="tiny", input="word " * 300)
        assert (refused.value.code, refused.value.param) == ("context_length_exceeded", "input")
