"""How refusals look on the wire, and that the reference page says the same."""

import runpy
from pathlib import Path

import msgspec
import pytest

from llmgw.core.refusal import Code, EngineWords, Refuse
from llmgw.wire.errors import ERRORS, error_frame, error_response

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("code", list(Code))
def test_every_code_has_its_row_and_a_body_clients_can_read(code: Code) -> None:
    answer = error_response(Refuse(code, "what and what to do", "model"))
    assert 400 <= answer.status < 600
    assert answer.status == ERRORS[code].status
    assert msgspec.json.decode(answer.body) == {
        "error": {
            "message": "what and what to do",
            "type": ERRORS[code].type,
            "param": "model",
            "code": code.value,
        }
    }


@pytest.mark.parametrize(("asked", "sent"), [(0, b"1"), (7, b"7"), (3600, b"60")])
def test_retry_after_is_a_whole_number_a_client_obeys(asked: int, sent: bytes) -> None:
    answer = error_response(Refuse(Code.OVERLOADED, "busy", retry_after_s=asked))
    assert dict(answer.headers)[b"retry-after"] == sent


def test_what_would_be_retried_in_vain_says_so() -> None:
    headers = dict(error_response(Refuse(Code.MODEL_OFF, "off", retry_after_s=5)).headers)
    assert headers[b"x-should-retry"] == b"false"
    assert b"retry-after" not in headers


def test_an_engines_words_on_a_clients_mistake_are_kept() -> None:
    words = EngineWords(422, "BadRequestError", "context_length_exceeded")
    answer = error_response(Refuse(Code.INVALID_REQUEST, "too long", "messages", engine=words))
    error = msgspec.json.decode(answer.body)["error"]
    assert answer.status == 422
    assert (error["type"], error["code"], error["param"]) == (
        "BadRequestError",
        "context_length_exceeded",
        "messages",
    )


def test_an_error_frame_is_one_event_with_a_truthy_error() -> None:
    frame = error_frame(Refuse(Code.UPSTREAM_ERROR, "line\nbreak"))
    assert frame.startswith(b"data: {") and frame.endswith(b"}\n\n") and frame.count(b"\n") == 2
    assert msgspec.json.decode(frame[6:])["error"]["code"] == "upstream_error"


def test_the_reference_page_is_the_table() -> None:
    rendered: str = runpy.run_path(str(ROOT / "scripts" / "errors_page.py"))["render"]()
    written = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    assert written == rendered, "run: .venv/bin/python scripts/errors_page.py"
