"""What a chat request asks for, what of its bytes changes, and what answers say of use."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.wire.openai import (
    Ask,
    BadAsk,
    EngineError,
    Usage,
    body_for_engine,
    parse_answer,
    parse_ask,
    parse_engine_error,
    usage_in,
)


def ask(body: bytes) -> Ask:
    parsed = parse_ask(body)
    assert isinstance(parsed, Ask), parsed
    return parsed


def test_explicit_nulls_are_absences() -> None:
    read = ask(
        b'{"model":"m","stream":null,"stream_options":null,"max_tokens":null,'
        b'"max_completion_tokens":null,"n":null,"tools":null}'
    )
    assert read == Ask("m", False, False, False, True, None, 1)


def test_the_newer_name_of_the_token_limit_wins_and_zero_is_zero() -> None:
    assert ask(b'{"model":"m","max_tokens":7,"max_completion_tokens":0}').max_tokens == 0
    assert ask(b'{"model":"m","max_tokens":7}').max_tokens == 7


@pytest.mark.parametrize("value", ["5.0", '"5"', "-1", "[]", "1e3"])
def test_figures_that_are_odd_are_left_to_the_engine(value: str) -> None:
    assert ask(b'{"model":"m","max_tokens":%s}' % value.encode()).max_tokens is None


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        (b"", None, "empty"),
        (b"  ", None, "empty"),
        (b"{", None, "not valid JSON"),
        (b"\xff", None, "not valid JSON"),
        (b"[]", None, "must be a JSON object"),
        (b'{"messages":[]}', "model", "names no model"),
        (b'{"model":null}', "model", "names no model"),
        (b'{"model":""}', "model", "names no model"),
        (b'{"model":7}', "model", "got `int`"),
        (b'{"model":"\xff"}', None, "not valid JSON"),
        (b'{"model":"m","stream":"yes"}', "stream", "got `str`"),
        (b'{"model":"m","stream_options":{"include_usage":1}}', "stream_options.include_usage", "got `int`"),
        (b'{"model":"' + b"m" * 300 + b'"}', "model", "longer than 256"),
        (b'{"model":"m","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", None, "nested too deeply"),
    ],
)
def test_what_is_no_request_says_what_is_wrong_and_where(body: bytes, param: str | None, words: str) -> None:
    refused = parse_ask(body)
    assert isinstance(refused, BadAsk)
    assert refused.param == param
    assert words in refused.message


@given(st.binary(max_size=60))
def test_no_bytes_make_it_raise(body: bytes) -> None:
    parse_ask(body)
    parse_answer(body)
    parse_engine_error(body)
    usage_in(body)


def test_a_body_that_needs_no_change_is_the_same_object() -> None:
    plain = b'{ "model" : "m", "temperature": 1.0, "seed": 1e2 }'
    assert body_for_engine(plain, ask(plain), "m") is plain
    asked = b'{"model":"m","stream":true,"stream_options":{"include_usage":true}}'
    assert body_for_engine(asked, ask(asked), "m") is asked


STREAM_OPTIONS = st.sampled_from(
    [
        "",
        '"stream_options": null,',
        '"stream_options": {},',
        '"stream_options" : { "continuous_usage_stats" : true },',
        '"stream_options": {"include_usage": false, "x": [1, "}"]},',
        '"stream_options": {"include_usage": null},',
        '"stream\\u005foptions": {"include_usage": false},',
    ]
)


@given(STREAM_OPTIONS, st.text(max_size=20))
def test_usage_is_asked_for_in_every_stream_and_nothing_else_changes(options: str, text: str) -> None:
    content = json.dumps(text)
    body = f'{{ {options} "model":"m" , "stream" : true, "messages":[{content}], "top_p": 1.50 }}'.encode()
    sent = body_for_engine(body, ask(body), "m")
    before, after = json.loads(body), json.loads(sent)
    assert after.pop("stream_options")["include_usage"] is True
    before.pop("stream_options", None)
    assert after == before
    assert b'"top_p": 1.50 }' in sent and content.encode() in sent
    assert ask(sent).usage_asked


def test_an_alias_is_replaced_by_the_engines_name_and_only_there() -> None:
    body = b'{"messages":[{"model":"fast"}], "model" : "fast", "user":"fast"}'
    sent = body_for_engine(body, ask(body), 'q"2')
    assert sent == b'{"messages":[{"model":"fast"}], "model" : "q\\"2", "user":"fast"}'


def test_the_last_of_duplicate_models_is_the_one_that_is_authorised_and_sent() -> None:
    body = b'{"model":"cheap","model":"dear"}'
    assert ask(body).model == "dear"
    assert json.loads(body_for_engine(body, ask(body), "x"))["model"] == "x"


def test_figures_of_an_answer_are_the_engines_own() -> None:
    answer = parse_answer(
        b'{"model":"m","choices":[{"finish_reason":"stop"}],'
        b'"usage":{"prompt_tokens":9,"completion_tokens":0,"prompt_tokens_details":{"cached_tokens":4}}}'
    )
    assert answer is not None
    assert answer.usage == Usage(9, 0, 4)
    assert (answer.model, answer.choices, answer.aborted, answer.error) == ("m", 1, False, False)


def test_an_aborted_choice_and_an_error_are_seen() -> None:
    aborted = parse_answer(b'{"choices":[{"finish_reason":"stop"},{"finish_reason":"abort"}]}')
    failed = parse_answer(b'{"error":{"message":"x"}}')
    fine = parse_answer(b'{"choices":[],"error":null}')
    assert aborted is not None and aborted.aborted
    assert failed is not None and failed.error
    assert fine is not None and not fine.error


def test_usage_is_found_in_the_end_of_a_long_answer() -> None:
    tail = b'xx"}}], "usage" : {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 1}, '
    tail += b'"completion_tokens": 5}, "x": {}}'
    assert usage_in(tail) == Usage(3, 5, 1)
    assert usage_in(b'"usage": {"prompt_tokens": 3') is None
    assert usage_in(b"no figures") is None


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            {"error": {"message": "too long", "type": "BadRequestError", "param": "messages", "code": 400}},
            EngineError("too long", "BadRequestError", None, "messages", 400),
        ),
        (
            {"object": "error", "message": "flat", "type": "BadRequest", "param": None, "code": 400},
            EngineError("flat", "BadRequest", status=400),
        ),
        (
            {"error": {"code": 400, "message": "exceeds", "type": "exceed_context_size_error", "n_ctx": 5}},
            EngineError("exceeds", "exceed_context_size_error", status=400),
        ),
        ({"error": {"message": "m", "code": "too_long"}}, EngineError("m", None, "too_long")),
        ({"error": "words"}, EngineError("words")),
        ({"detail": "Not Found"}, EngineError("Not Found")),
    ],
)  # fmt: skip
def test_engines_errors_come_in_one_shape(body: Any, expected: EngineError) -> None:
    assert parse_engine_error(json.dumps(body).encode()) == expected


@pytest.mark.parametrize("body", [b"", b"<html>", b"{}", b"[]", b'{"error":{}}', b'{"detail":[{"msg":"x"}]}'])
def test_a_body_without_an_error_is_none(body: bytes) -> None:
    assert parse_engine_error(body) is None
