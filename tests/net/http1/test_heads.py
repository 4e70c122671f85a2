"""What llhttp lets through and the data plane must not; and that nothing depends on how bytes arrive."""

import contextlib

import pytest
from httptools import HttpParserError, HttpRequestParser
from hypothesis import given
from hypothesis import strategies as st

from llmgw.net.http1.heads import (
    BadResponse,
    Framing,
    ParsedRequest,
    Repeat,
    parse_request,
    parse_response,
)
from llmgw.net.http1.limits import POOL_LIMITS, SERVER_LIMITS
from llmgw.net.http1.refusals import Refusal


def read(raw: bytes) -> ParsedRequest | Refusal:
    return parse_request(raw, "10.0.0.9", SERVER_LIMITS)


def accepted(raw: bytes) -> ParsedRequest:
    parsed = read(raw)
    assert isinstance(parsed, ParsedRequest), parsed
    return parsed


def status_of(raw: bytes) -> int:
    parsed = read(raw)
    assert isinstance(parsed, Refusal), parsed
    return parsed.status


HOST = b"Host: a\r\n"
REFUSED = {
    "no Host": (b"GET / HTTP/1.1\r\n\r\n", 400),
    "two Hosts": (b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
    "two Hosts in 1.0": (b"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    "empty Host": (b"GET / HTTP/1.1\r\nHost: \r\n\r\n", 400),
    "Host with a path": (b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
    "Host with userinfo": (b"GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", 400),
    "Host list": (b"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", 400),
    "absolute form": (b"GET http://a/ HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "authority form": (b"CONNECT a:443 HTTP/1.1\r\n" + HOST + b"\r\n", 501),
    "asterisk without OPTIONS": (b"GET * HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "length and chunked": (
        b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        400,
    ),
    "chunked and length": (
        b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n",
        400,
    ),
    "two lengths": (b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
    "the same length twice": (
        b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\n",
        400,
    ),
    "length list": (b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1, 1\r\n\r\n", 400),
    "signed length": (b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: +1\r\n\r\n", 400),
    "hexadecimal length": (b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 0x1\r\n\r\n", 400),
    "empty length": (b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: \r\n\r\n", 400),
    "enormous length": (b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n", 400),
    "length with an underscore": (b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1_0\r\n\r\n", 400),
    "gzip, chunked": (b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: gzip, chunked\r\n\r\n", 501),
    "gzip": (b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: gzip\r\n\r\n", None),
    "chunked, gzip": (b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked, gzip\r\n\r\n", None),
    "chunked twice": (
        b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        None,
    ),
    "identity": (b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: identity\r\n\r\n", None),
    "xchunked": (b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: xchunked\r\n\r\n", None),
    "tab before chunked": (b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding:\x0bchunked\r\n\r\n", None),
    "chunked in 1.0": (b"POST / HTTP/1.0\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n", 400),
    "obs-fold": (b"GET / HTTP/1.1\r\n" + HOST + b"X: a\r\n b\r\n\r\n", 400),
    "obs-fold with tab": (b"GET / HTTP/1.1\r\n" + HOST + b"X: a\r\n\tb\r\n\r\n", 400),
    "space before the colon": (b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length : 1\r\n\r\n", 400),
    "space before the name": (b"GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400),
    "no name": (b"GET / HTTP/1.1\r\n" + HOST + b": x\r\n\r\n", 400),
    "no colon": (b"GET / HTTP/1.1\r\n" + HOST + b"x\r\n\r\n", 400),
    "NUL in a value": (b"GET / HTTP/1.1\r\n" + HOST + b"X: a\0b\r\n\r\n", 400),
    "bare CR in a value": (b"GET / HTTP/1.1\r\n" + HOST + b"X: a\rb\r\n\r\n", 400),
    "bare LF as line end": (b"GET / HTTP/1.1\n" + HOST + b"\r\n", 400),
    "bare LF between headers": (b"GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n", 400),
    "no version": (b"GET /\r\n\r\n", 505),
    "HTTP/0.9": (b"GET / HTTP/0.9\r\n" + HOST + b"\r\n", 505),
    "HTTP/2.0": (b"GET / HTTP/2.0\r\n" + HOST + b"\r\n", 505),
    "HTTP/1.2": (b"GET / HTTP/1.2\r\n" + HOST + b"\r\n", 400),
    "HTTP/2 preface": (b"PRI * HTTP/2.0\r\n\r\n", 505),
    "lower-case method": (b"get / HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "unknown method": (b"FETCH / HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "raw bytes in the target": (b"GET /\xff HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "space in the target": (b"GET /a b HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "unknown expectation": (b"POST / HTTP/1.1\r\n" + HOST + b"Expect: a-miracle\r\n\r\n", 417),
    "too many headers": (b"GET / HTTP/1.1\r\n" + HOST + b"X: y\r\n" * 100 + b"\r\n", 431),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_ambiguous_or_malformed_is_refused(case: str) -> None:
    raw, status = REFUSED[case]
    assert status_of(raw) == status or (status is None and status_of(raw) in (400, 501))


def test_an_ordinary_request_is_read() -> None:
    parsed = accepted(
        b"POST /v1/chat/completions?x=%20 HTTP/1.1\r\nHost: Gateway.example:8080\r\n"
        b"AUTHORIZATION: Bearer sk-1\r\nX-A: 1\r\nX-A: 2\r\ncontent-length: 12\r\n\r\n"
    )
    assert parsed.head.method == "POST"
    assert parsed.head.target == b"/v1/chat/completions?x=%20"
    assert parsed.head.header(b"authorization") == b"Bearer sk-1"
    assert [value for name, value in parsed.head.headers if name == b"x-a"] == [b"1", b"2"]
    assert (parsed.framing, parsed.length) == (Framing.LENGTH, 12)
    assert parsed.head.keep_alive
    assert parsed.head.peer == "10.0.0.9"


class ParsersView:
    """The fields as llhttp itself splits them."""

    def __init__(self) -> None:
        self.fields: list[tuple[bytes, bytes]] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name.lower(), value.rstrip(b" \t")))


TOKENS = st.text("!#$%&'*+-.^_`|~09azAZ", min_size=1, max_size=8).map(str.encode)
VALUES = st.binary(max_size=12)


@given(st.lists(st.tuples(TOKENS, st.sampled_from([b":", b": ", b":\t ", b" :"]), VALUES), max_size=6))
def test_fields_are_split_as_the_parser_splits_them(fields: list[tuple[bytes, bytes, bytes]]) -> None:
    raw = b"GET / HTTP/1.1\r\nHost: a\r\n" + b"".join(b"%b%b%b\r\n" % field for field in fields) + b"\r\n"
    if raw.index(b"\r\n\r\n") + 4 != len(raw):
        return
    parsed = read(raw)
    if isinstance(parsed, Refusal):
        return
    view = ParsersView()
    with contextlib.suppress(HttpParserError):
        HttpRequestParser(view).feed_data(raw)
    assert parsed.head.headers == tuple(view.fields)
    for name, _ in view.fields:
        assert parsed.head.header(name) == next(value for key, value in view.fields if key == name)
    assert parsed.head.header(b"not-there") is None


@pytest.mark.parametrize("host", ["a", "a.b-c:80", "[::1]", "[::1]:8080", "127.0.0.1:1", "a_b.c", "a:"])
def test_hosts_that_name_a_host_are_accepted(host: str) -> None:
    accepted(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())


@pytest.mark.parametrize(
    ("version", "connection", "keeps"),
    [
        ("1.1", "", True),
        ("1.1", "Connection: close\r\n", False),
        ("1.1", "Connection: TE, Close\r\n", False),
        ("1.1", "Connection: keep-alive\r\nConnection: close\r\n", False),
        ("1.0", "", False),
        ("1.0", "Connection: Keep-Alive\r\n", True),
        ("1.0", "Connection: keep-alive, close\r\n", False),
    ],
)
def test_who_keeps_the_connection(version: str, connection: str, keeps: bool) -> None:
    assert accepted(f"GET / HTTP/{version}\r\nHost: a\r\n{connection}\r\n".encode()).head.keep_alive is keeps


def test_an_upgrade_that_is_asked_for_changes_nothing() -> None:
    parsed = accepted(
        b"POST / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
        b"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\nContent-Length: 3\r\n\r\n"
    )
    assert (parsed.framing, parsed.length) == (Framing.LENGTH, 3)
    assert parsed.head.keep_alive
    chunked = accepted(
        b"POST / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
        b"Transfer-Encoding: Chunked\r\n\r\n"
    )
    assert chunked.framing is Framing.CHUNKED


@given(st.binary(max_size=200))
def test_garbage_is_refused_and_never_raises(tail: bytes) -> None:
    for raw in (tail + b"\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\n" + tail + b"\r\n\r\n"):
        head = raw[: raw.index(b"\r\n\r\n") + 4]
        parsed = read(head)
        if isinstance(parsed, ParsedRequest):
            assert parsed.head.target.startswith(b"/") or parsed.head.target == b"*"


# ---------------------------------------------------------------- repeated heads

SDK = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: a:1\r\nConnection: keep-alive\r\nX-Note: one\r\n"
    b"Content-Length: 17\r\nExpect: 100-continue\r\nX-Last: Content-Length: 5\r\n\r\n"
)
EDITS = st.tuples(st.integers(0, len(SDK)), st.integers(0, 4), st.binary(max_size=4))


def everything(parsed: ParsedRequest) -> tuple[object, ...]:
    head = parsed.head
    named = [head.header(name) for name in (b"host", b"content-length", b"x-note", b"x-last", b"none")]
    told = (parsed.framing, parsed.length, parsed.expects_continue, parsed.http10)
    return (*told, head.method, head.target, head.peer, head.keep_alive, head.headers, *named)


def repeat_of(raw: bytes) -> Repeat:
    first = read(raw)
    assert isinstance(first, ParsedRequest)
    return Repeat(first, raw)


@pytest.mark.parametrize("length", [b"0", b"9", b"17", b"18", b"007", b"123456", b"9" * 15])
def test_a_head_that_differs_in_its_length_alone_is_read_as_if_parsed(length: bytes) -> None:
    again = SDK.replace(b"17", length)
    for rest in (b"", b"body", b"\r\n\r\n"):
        repeated = repeat_of(SDK).read(again + rest)
        assert repeated is not None and repeated[1] == len(again)
        parsed = read(again)
        assert isinstance(parsed, ParsedRequest)
        assert everything(repeated[0]) == everything(parsed)


@pytest.mark.parametrize(
    "other",
    [
        SDK.replace(b"17", b""),
        SDK.replace(b"17", b"17 "),
        SDK.replace(b"17", b"+17"),
        SDK.replace(b"17", b"1\r\n7"),
        SDK.replace(b"17", b"9" * 16),
        SDK.replace(b"one", b"two"),
        SDK.replace(b"a:1", b"b:1"),
        SDK[:-2] + b"Transfer-Encoding: chunked\r\n\r\n",
        SDK[:-2],
        SDK[:60],
        b"",
    ],
)
def test_any_other_head_is_left_to_the_parser(other: bytes) -> None:
    assert repeat_of(SDK).read(other) is None


@given(st.lists(EDITS, max_size=3))
def test_a_repeated_head_never_says_anything_the_parser_would_not(
    edits: list[tuple[int, int, bytes]],
) -> None:
    raw = SDK
    for at, gone, put in edits:
        raw = raw[:at] + put + raw[at + gone :]
    repeated = repeat_of(SDK).read(raw)
    if repeated is not None:
        parsed = read(raw[: repeated[1]])
        assert isinstance(parsed, ParsedRequest)
        assert everything(repeated[0]) == everything(parsed)


# ---------------------------------------------------------------- responses


def response(raw: bytes, method: str = "POST") -> tuple[int, Framing, int, bool]:
    parsed = parse_response(raw, method, POOL_LIMITS)
    return parsed.status, parsed.framing, parsed.length, parsed.keep_alive


@pytest.mark.parametrize(
    ("raw", "method", "expected"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "POST", (200, Framing.LENGTH, 5, True)),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "POST", (200, Framing.CHUNKED, 0, True)),
        (b"HTTP/1.1 200 OK\r\n\r\n", "POST", (200, Framing.UNTIL_CLOSE, 0, False)),
        (b"HTTP/1.0 200 OK\r\n\r\n", "POST", (200, Framing.UNTIL_CLOSE, 0, False)),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n", "GET", (200, Framing.LENGTH, 5, False)),
        (
            b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\n",
            "GET",
            (200, Framing.LENGTH, 5, True),
        ),
        (
            b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\n",
            "GET",
            (200, Framing.LENGTH, 5, False),
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "HEAD", (200, Framing.LENGTH, 0, True)),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "HEAD", (200, Framing.LENGTH, 0, True)),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "POST", (204, Framing.LENGTH, 0, True)),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", "GET", (304, Framing.LENGTH, 0, True)),
        (b"HTTP/1.1 103 Early Hints\r\n\r\n", "GET", (103, Framing.LENGTH, 0, True)),
        (b"HTTP/1.1 200\r\nContent-Length: 5\r\n\r\n", "GET", (200, Framing.LENGTH, 5, True)),
    ],
)
def test_how_the_end_of_a_response_is_told(
    raw: bytes, method: str, expected: tuple[int, Framing, int, bool]
) -> None:
    assert response(raw, method) == expected


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: b\nContent-Length: 5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: b\rContent-Length: 5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 099 Low\r\n\r\n",
        b"HTTP/1.1 9999 High\r\n\r\n",
        b"HTTP/2.0 200 OK\r\n\r\n",
        b"ICY 200 OK\r\n\r\n",
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 201 + b"\r\n",
    ],
)
def test_a_response_that_cannot_be_trusted_is_refused(raw: bytes) -> None:
    with pytest.raises(BadResponse):
        response(raw)


@given(st.binary(max_size=200))
def test_garbage_from_an_engine_is_refused_and_never_raises_anything_else(tail: bytes) -> None:
    raw = b"HTTP/1.1 200 OK\r\n" + tail + b"\r\n\r\n"
    head = raw[: raw.index(b"\r\n\r\n") + 4]
    with contextlib.suppress(BadResponse):
        response(head)


def test_the_fields_of_a_response_are_those_the_engine_sent() -> None:
    raw = b"HTTP/1.1 200 OK\r\nRetry-After:  5 \r\nSet-Cookie: a=b\r\nset-cookie:\r\n\r\n"
    assert parse_response(raw, "GET", POOL_LIMITS).headers == (
        (b"retry-after", b"5"),
        (b"set-cookie", b"a=b"),
        (b"set-cookie", b""),
    )


@pytest.mark.parametrize(
    ("fields", "keep_alive"),
    [
        (b"Connection: keep-alive\r\nConnection: close\r\n", False),
        (b"Connection:\r\nConnection: keep-alive\r\n", True),
        (b"Connection: upgrade, Close\r\nServer: a\r\nServer: b\r\n", False),
        (b"Server: a\r\nServer: b\r\n", True),
    ],
)
def test_every_connection_field_counts(fields: bytes, keep_alive: bool) -> None:
    raw = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n" + fields + b"\r\n"
    assert response(raw)[3] is keep_alive
