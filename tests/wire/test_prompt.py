"""How long a prompt is, what it needs, and how engines say that it is too long."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.wire.openai import EngineError
from llmgw.wire.prompt import (
    IMAGE_TOKENS,
    Need,
    Overflow,
    most_tokens,
    needs_of,
    overflow_in,
    prompt_of,
    tokenize_body,
    tokenized,
)


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "m"} | fields).encode()


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def test_the_whole_conversation_counts_as_decoded_text() -> None:
    call = {"function": {"name": "look", "arguments": "{}"}}
    read = prompt_of(
        body(messages=[user("äöü"), user([{"type": "text", "text": "two"}]), {"tool_calls": [call]}])
    )
    assert read.text == "äöü\ntwo\nlook\n{}"
    assert prompt_of(b'{"messages":[{"content":"\\u00e4\\n"}]}').text == "ä\n"


def test_an_image_counts_a_fixed_figure_however_long_its_base64() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}}
    read = prompt_of(body(messages=[user([image, {"type": "text", "text": "what?"}])]))
    assert (read.images, read.tokens()) == (1, IMAGE_TOKENS + 2)


def test_tools_are_part_of_what_is_read() -> None:
    assert "look_up" in prompt_of(body(messages=[], tools=[{"function": {"name": "look_up"}}])).text


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [("abcdefgh", 2), (["a" * 40, "b" * 80], 20), ([1, 2, 3], 3), ([[1, 2], [3]], 2), ([], 0), (7, 0),
     ([None], 0)],
)  # fmt: skip
@pytest.mark.parametrize("field", ["prompt", "input"])
def test_prompts_of_every_form_count_and_of_several_the_longest(field: str, prompt: Any, tokens: int) -> None:
    assert prompt_of(body(**{field: prompt})).tokens() == tokens


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 99) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["content", "type", "text", "role", "image_url"]), inner, max_size=3
        )
    ),
    max_leaves=12,
)


@given(st.fixed_dictionaries({}, optional={"messages": JSON, "prompt": JSON, "input": JSON, "tools": JSON}))
def test_no_shape_raises_and_the_quick_bound_holds(fields: dict[str, Any]) -> None:
    raw = body(**fields)
    assert 0 <= prompt_of(raw).tokens() <= most_tokens(raw)
    needs_of(raw)


@given(st.binary(max_size=80))
def test_no_bytes_raise(raw: bytes) -> None:
    assert prompt_of(raw).images == 0
    needs_of(raw)
    tokenized(raw)


@pytest.mark.parametrize(
    ("fields", "needs"),
    [
        ({"messages": [user("hi")]}, []),
        ({"tools": [], "functions": None, "reasoning_effort": None, "response_format": None}, []),
        ({"tools": [{}]}, [Need("tools", "tools")]),
        ({"functions": [{}]}, [Need("tools", "functions")]),
        ({"response_format": {"type": "json_schema"}}, [Need("json_schema", "response_format")]),
        ({"response_format": {"type": "json_object"}}, []),
        ({"reasoning_effort": "high"}, [Need("reasoning", "reasoning_effort")]),
        ({"reasoning_effort": "none"}, []),
        ({"messages": [user([{"type": "image_url"}])]}, [Need("vision", "messages")]),
        ({"messages": [user([{"type": "input_audio"}])]}, [Need("audio", "messages")]),
        ({"messages": [user("an image_url of mine")]}, []),
    ],
)
def test_what_a_request_cannot_do_without(fields: dict[str, Any], needs: list[Need]) -> None:
    assert list(needs_of(body(**fields))) == needs


def test_engines_are_asked_to_count_in_their_own_words() -> None:
    assert json.loads(tokenize_body("llama.cpp", "m", "x") or b"") == {"model": "m", "content": "x"}
    assert json.loads(tokenize_body("vllm", "m", "x") or b"") == {"model": "m", "prompt": "x"}
    assert tokenize_body("sim", "m", "x") is None
    assert tokenized(b'{"tokens":[1,2]}') == 2
    assert tokenized(b'{"count":3,"max_model_len":9,"tokens":[1]}') == 3
    assert tokenized(b'{"error":"no"}') is None


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (
            EngineError("request (3608 tokens) exceeds the available context size (256 tokens), try it",
                        "exceed_context_size_error"),
            Overflow(3608, 256),
        ),
        (
            EngineError("input (3600 tokens) is too large to process. increase the physical batch size "
                        "(current batch size: 256)", "server_error"),
            Overflow(3600, 256),
        ),
        (
            EngineError("This model's maximum context length is 4096 tokens. However, you requested 5000 "
                        "tokens (4900 in the messages, 100 in the completion).", "BadRequestError"),
            Overflow(5000, 4096),
        ),
        (
            EngineError("This model's maximum context length is 4096 tokens. However, your request has 5000 "
                        "input tokens. Please reduce the length.", "BadRequestError"),
            Overflow(5000, 4096),
        ),
        (
            EngineError("The input (5000 tokens) is longer than the model's context length (4096 tokens)."),
            Overflow(5000, 4096),
        ),
        (EngineError("too long", None, "context_length_exceeded"), Overflow()),
        (EngineError("temperature must be below 2", "BadRequestError"), None),
    ],
)  # fmt: skip
def test_too_long_a_prompt_is_known_in_every_engines_words(
    error: EngineError, found: Overflow | None
) -> None:
    assert overflow_in(error) == found
