"""The official OpenAI client against a whole installation with a real llama.cpp."""

from collections.abc import Iterator

import openai
import pytest
from openai.types.chat import ChatCompletionChunk

from tests.e2e.installation import Installation

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

HELLO = [openai.types.chat.ChatCompletionUserMessageParam(role="user", content="hello")]


@pytest.fixture
def client(shared_installation: Installation) -> Iterator[openai.OpenAI]:
    base_url = f"http://127.0.0.1:{shared_installation.port}/v1"
    with openai.OpenAI(base_url=base_url, api_key=shared_installation.key(), max_retries=0) as one:
        yield one


def test_models_lists_the_model_by_its_file_stem(client: openai.OpenAI) -> None:
    models = client.models.list().data
    assert [model.id for model in models] == ["tiny"]
    assert models[0].owned_by == "llmgw"
    assert client.models.retrieve("tiny").id == "tiny"


def test_a_plain_answer_has_text_and_the_engines_usage(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="tiny", messages=HELLO, temperature=0, max_tokens=20)
    assert answer.model == "tiny"
    assert answer.choices[0].message.content
    assert answer.usage is not None
    assert 0 < answer.usage.completion_tokens <= 20
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_a_stream_gives_the_same_text_and_no_usage_that_was_not_asked_for(client: openai.OpenAI) -> None:
    plain = client.chat.completions.create(model="tiny", messages=HELLO, temperature=0, max_tokens=20)
    stream = client.chat.completions.create(
        model="tiny", messages=HELLO, temperature=0, max_tokens=20, stream=True
    )
    chunks = list(stream)
    assert _text(chunks) == plain.choices[0].message.content
    assert all(chunk.usage is None for chunk in chunks)
    assert all(chunk.choices for chunk in chunks), "the usage chunk was not withheld"
    assert chunks[-1].choices[0].finish_reason in ("stop", "length")


def test_a_stream_that_asks_for_usage_gets_it_once_and_last(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="tiny",
        messages=HELLO,
        temperature=0,
        max_tokens=20,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    with_usage = [chunk for chunk in chunks if chunk.usage is not None]
    assert with_usage == chunks[-1:]
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens > 0


def test_explicit_nulls_are_taken_as_absent(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="tiny", messages=HELLO, temperature=None, max_tokens=None, stop=None
    )
    assert answer.choices[0].message.content


def test_a_wrong_key_is_401_and_is_not_repeated_in_the_answer(shared_installation: Installation) -> None:
    wrong = "sk-llmgw-0123456789abcdef-" + "x" * 43
    base_url = f"http://127.0.0.1:{shared_installation.port}/v1"
    with (
        openai.OpenAI(base_url=base_url, api_key=wrong, max_retries=0) as client,
        pytest.raises(openai.AuthenticationError) as refused,
    ):
        client.models.list()
    assert refused.value.code == "invalid_api_key"
    assert wrong not in refused.value.response.text
    assert refused.value.response.headers["x-request-id"]


def test_an_unknown_model_is_404_with_near_names(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as refused:
        client.chat.completions.create(model="tinny", messages=HELLO)
    assert refused.value.code == "model_not_found"
    assert refused.value.param == "model"
    assert "tiny" in refused.value.message


def test_malformed_json_is_400_and_says_so(shared_installation: Installation) -> None:
    status, body = shared_installation.request("POST", "/v1/chat/completions", b'{"model": "tiny", ')
    assert status == 400
    assert b'"error"' in body
    assert b"JSON" in body


def _text(chunks: list[ChatCompletionChunk]) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
