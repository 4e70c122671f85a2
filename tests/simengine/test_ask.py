"""What requests to the simulated engine cost, and which are refused."""

from collections.abc import Mapping

import msgspec
import pytest

from llmgw.simengine.ask import BadAsk, Work, read_ask
from llmgw.simengine.options import SimOptions

OPTIONS = SimOptions("m", context_length=100, answer_tokens=20)


def ask(fields: Mapping[str, object]) -> Work | BadAsk:
    body = {"model": "m", "messages": [{"role": "user", "content": "x" * 36}], **fields}
    return read_ask(msgspec.json.encode(body), OPTIONS, chat=True)


def test_a_request_without_a_length_gets_the_usual_answer_and_stops() -> None:
    work = ask({})
    assert isinstance(work, Work)
    assert (work.prompt_tokens, work.answer_tokens, work.finish) == (10, 20, "stop")


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_a_wanted_length_is_kept_to_the_token(name: str) -> None:
    work = ask({name: 33})
    assert isinstance(work, Work) and (work.answer_tokens, work.finish) == (33, "length")


def test_parts_of_a_message_count_and_pictures_do_not() -> None:
    content = [{"type": "text", "text": "x" * 8}, {"type": "image_url", "image_url": {"url": "data:"}}]
    work = ask({"messages": [{"role": "user", "content": content}]})
    assert isinstance(work, Work) and work.prompt_tokens == 3


def test_a_completion_takes_text_texts_or_tokens() -> None:
    for prompt, tokens in (("x" * 8, 2), (["x" * 8, "y" * 4], 3), ([1, 2, 3], 3)):
        work = read_ask(msgspec.json.encode({"model": "m", "prompt": prompt}), OPTIONS, chat=False)
        assert isinstance(work, Work) and work.prompt_tokens == tokens


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"model": "other"}, 404, "model"),
        ({"messages": []}, 400, "messages"),
        ({"max_tokens": 0}, 400, "max_tokens"),
        ({"max_tokens": 91}, 400, "input_tokens"),
        ({"messages": [{"role": "user", "content": "x" * 400}]}, 400, "input_tokens"),
        ({"messages": "hello"}, 400, None),
    ],
)
def test_what_an_engine_would_refuse_is_refused(
    fields: dict[str, object], status: int, param: str | None
) -> None:
    bad = ask(fields)
    assert isinstance(bad, BadAsk)
    assert (bad.status, bad.param) == (status, param)


def test_what_is_not_json_is_refused() -> None:
    bad = read_ask(b"{torn", OPTIONS, chat=True)
    assert isinstance(bad, BadAsk) and bad.status == 400
