"""What of an engine's stream reaches the client: the same for every way its bytes may be cut."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.wire.openai import Usage
from llmgw.wire.sse import EVENT_MAX, StreamFault, StreamScanner

DONE = b"data: [DONE]\n\n"
FIGURES = {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}


def chunk(text: str | None = None, **more: Any) -> bytes:
    choices = [] if text is None else [{"index": 0, "delta": {"content": text}, "finish_reason": None}]
    body = {"id": "c1", "object": "chat.completion.chunk", "created": 5, "model": "m", "choices": choices}
    return b"data: " + json.dumps(body | more, ensure_ascii=False).encode() + b"\n\n"


USAGE_ONLY = chunk(usage=FIGURES)


class Outcome:
    """All that one stream gave, fed in pieces."""

    def __init__(
        self, data: bytes, cuts: list[int] | None = None, *, asked: bool = False, continuous: bool = False
    ) -> None:
        scanner = StreamScanner(usage_asked=asked, usage_continuous=continuous, model="m")
        edges = [0, *sorted({cut % (len(data) + 1) for cut in cuts or []}), len(data)]
        pieces = [data[a:b] for a, b in itertools.pairwise(edges)]
        self.out = b"".join(scanner.feed(piece) for piece in pieces) + scanner.end()
        self.fault = scanner.fault
        self.done = scanner.done
        self.usage = scanner.usage
        self.started = scanner.started
        self.events = scanner.events

    def verdict(self) -> tuple[object, ...]:
        return (self.out, self.fault, self.done, self.usage, self.started, self.events)


PLAIN = chunk("Hel") + chunk("lo \u00e9\U0001f600") + chunk("\n\ndata: [DONE]\n\n")


def test_events_pass_byte_for_byte() -> None:
    seen = Outcome(PLAIN + DONE)
    assert seen.out == PLAIN + DONE
    assert seen.done and seen.fault is None and seen.events == 3


def test_an_event_leaves_as_soon_as_it_is_whole() -> None:
    scanner = StreamScanner(usage_asked=False)
    first = chunk("a")
    assert scanner.feed(first[:-1]) == b""
    assert scanner.feed(first[-1:]) == first
    assert scanner.feed(chunk("b") + b"data: {") == chunk("b")


def test_a_usage_chunk_nobody_asked_for_is_withheld_and_counted() -> None:
    seen = Outcome(PLAIN + USAGE_ONLY + DONE)
    assert seen.out == PLAIN + DONE
    assert seen.usage == Usage(9, 3, 2)


def test_a_usage_chunk_that_was_asked_for_passes() -> None:
    assert Outcome(PLAIN + USAGE_ONLY + DONE, asked=True).out == PLAIN + USAGE_ONLY + DONE


def test_usage_comes_once_and_last_whatever_the_engine_does() -> None:
    twice = chunk("a") + chunk(usage={"prompt_tokens": 1}) + chunk("b") + USAGE_ONLY + DONE
    assert Outcome(twice, asked=True).out == chunk("a") + chunk("b") + USAGE_ONLY + DONE


def test_usage_beside_choices_is_taken_and_shown_only_where_it_belongs() -> None:
    data = chunk("a") + chunk("b", usage=FIGURES) + DONE
    hidden = Outcome(data)
    assert hidden.usage == Usage(9, 3, 2)
    assert hidden.out == chunk("a") + chunk("b", usage=None) + DONE
    shown = Outcome(data, asked=True)
    events = [json.loads(event[6:]) for event in shown.out.split(b"\n\n")[:-2]]
    assert shown.usage == Usage(9, 3, 2)
    assert [event.get("usage") for event in events] == [None, None, FIGURES]
    assert events[-1]["choices"] == [] and events[-1]["id"] == "c1"


def test_continuous_usage_that_was_asked_for_stays_on_its_chunks() -> None:
    data = chunk("a", usage={"prompt_tokens": 9}) + chunk("b", usage=FIGURES) + USAGE_ONLY + DONE
    assert Outcome(data, asked=True, continuous=True).out == data


def test_a_null_usage_is_no_figure() -> None:
    data = chunk("a", usage=None) + DONE
    seen = Outcome(data)
    assert seen.out == data and seen.usage is None


def test_text_that_looks_like_figures_or_failures_is_text() -> None:
    text = '"usage":{"prompt_tokens":1} "error":{"message":"x"} "finish_reason":"abort" data: [DONE]'
    data = chunk(text) + chunk(text) + DONE
    seen = Outcome(data)
    assert seen.out == data and seen.usage is None and seen.fault is None


@pytest.mark.parametrize(
    ("bad", "fault"),
    [
        (b'data: {"error": {"message": "out of memory", "code": 500}}\n\n', StreamFault.ERROR_FRAME),
        (b'event: error\ndata: {"message": "x"}\n\n', StreamFault.ERROR_FRAME),
        (b'error: {"code": 500, "message": "x"}\n\n', StreamFault.ERROR_FRAME),
        (
            b'data: {"choices": [{"delta": {}, "finish_reason" : "abort"}]}\n\n',
            StreamFault.ABORTED,
        ),
        (b"data: <html>bad gateway</html>\n\n", StreamFault.MALFORMED),
        (b'data: {"choices": [\n\n', StreamFault.MALFORMED),
        (b'data: {"choices": [{"delta": {"content": "\xff"}}]}\n\n', StreamFault.MALFORMED),
        (b'data: {"x": "' + b"a" * EVENT_MAX + b'"}\n\n', StreamFault.MALFORMED),
        (b": " + b"a" * (EVENT_MAX + 10), StreamFault.MALFORMED),
    ],
)
@pytest.mark.parametrize("before", [b"", chunk("a") + chunk("b")])
def test_a_failure_ends_the_stream_and_a_done_after_it_proves_nothing(
    bad: bytes, fault: StreamFault, before: bytes
) -> None:
    seen = Outcome(before + bad + chunk("c") + DONE, asked=True)
    assert seen.fault is fault
    assert seen.out == before
    assert not seen.done


@pytest.mark.parametrize(
    "bad",
    [
        chunk("b") + b"data: oops\n\n" + chunk("c"),
        chunk("b") + b"data: {\n\n" + chunk("c"),
        chunk("b")[:-2] + b"\n" + chunk("c")[:-2] + b"\n\ndata: {" + b"}\n\n",
        b'data: {"choices":[{"delta":{"content":"\xff"}}]}\n\n',
        chunk("b").replace(b"data: {", b"data: {{\ndata: ") + chunk("c"),
    ],
)
def test_what_begins_and_ends_well_is_looked_at_in_between(bad: bytes) -> None:
    fast, slow = StreamScanner(usage_asked=False), StreamScanner(usage_asked=False)
    fast.feed(chunk("a"))
    slow.feed(chunk("a"))
    out = fast.feed(bad)
    assert out == b"".join(slow.feed(bad[at : at + 1]) for at in range(len(bad)))
    assert fast.fault is slow.fault and fast.events == slow.events


@pytest.mark.parametrize("end", [b"", b"data: {", chunk("c")[:-1], b"data: [DO", b": comment\n\n"])
def test_an_end_without_done_is_no_good_end(end: bytes) -> None:
    seen = Outcome(PLAIN + end)
    assert seen.fault in (StreamFault.TRUNCATED, StreamFault.MALFORMED)
    assert not seen.done and b"[DONE]\n\n" not in seen.out


def test_an_answer_by_another_model_is_a_fault_before_anything_came_out() -> None:
    seen = Outcome(chunk("a", model="other") + DONE)
    assert seen.fault is StreamFault.WRONG_MODEL and seen.out == b""


def test_what_comes_after_the_end_is_dropped() -> None:
    seen = Outcome(PLAIN + DONE + chunk("late") + b"\x00\xff")
    assert seen.out == PLAIN + DONE and seen.done


def test_comments_before_the_first_event_wait_for_it() -> None:
    scanner = StreamScanner(usage_asked=False)
    assert scanner.feed(b": hello\n\n") == b""
    assert not scanner.started
    assert scanner.feed(chunk("a")) == b": hello\n\n" + chunk("a")
    assert scanner.feed(b": still here\n\n") == b": still here\n\n"


def test_a_last_event_without_its_blank_line_counts() -> None:
    seen = Outcome(PLAIN + b"data: [DONE]")
    assert seen.done and seen.out.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"])
def test_events_may_end_in_every_way_the_format_allows(ending: bytes) -> None:
    data = (PLAIN + USAGE_ONLY + DONE).replace(b"\n", ending)
    seen = Outcome(data)
    assert seen.done and seen.events == 3 and seen.usage == Usage(9, 3, 2)
    assert b"usage" not in seen.out


def test_data_over_several_lines_is_one_event() -> None:
    data = b'data: {"choices": [],\ndata: "usage": {"prompt_tokens": 4}}\n\n'
    seen = Outcome(PLAIN + data + DONE)
    assert seen.usage == Usage(4) and seen.out == PLAIN + DONE


PIECES = st.lists(
    st.sampled_from(
        [
            chunk("a"),
            chunk("b\u00e9\U0001f600"),
            chunk("x" * 50),
            chunk("c", usage=FIGURES),
            chunk("d", usage=None),
            USAGE_ONLY,
            b": comment\n\n",
            b"id: 7\n\n",
            b"\n",
            b"\r",
            b"\r\n",
            b'data: {"a":\r\ndata: 1}\r\n\r\n',
            b'data: {"choices":[]}\n\r\n',
            b'data: {"choices":[]}\r\r',
            b'data: {"choices":[]}\r\n\r',
            b"data: nonsense\n\n",
            b"data: {\xff}\n\n",
            b'data: {"error":{"message":"x"}}\n\n',
            chunk("e").replace(b"null}", b'"abort"}'),
            DONE,
            b"data:[DONE]\r\n\r\n",
        ]
    ),
    max_size=8,
)


@given(PIECES, st.lists(st.integers(0, 5000), max_size=12), st.booleans(), st.booleans())
def test_the_outcome_does_not_depend_on_how_the_bytes_were_cut(
    pieces: list[bytes], cuts: list[int], asked: bool, continuous: bool
) -> None:
    data = b"".join(pieces)
    whole = Outcome(data, asked=asked, continuous=continuous)
    cut = Outcome(data, cuts, asked=asked, continuous=continuous)
    single = Outcome(data, list(range(len(data))), asked=asked, continuous=continuous)
    assert whole.verdict() == cut.verdict() == single.verdict()


@given(PIECES)
def test_a_stream_never_ends_well_and_badly_at_once(pieces: list[bytes]) -> None:
    seen = Outcome(b"".join(pieces))
    assert seen.done != (seen.fault is not None)


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=5))
def test_garbage_is_a_verdict_too(data: bytes, cuts: list[int]) -> None:
    assert Outcome(data, cuts).verdict() == Outcome(data).verdict()
