"""Chunked bodies decode the same however they are split, and end only where they end."""

import pytest
from httptools import HttpParserError, HttpRequestParser
from hypothesis import given
from hypothesis import strategies as st

from llmgw.net.http1.chunked import BadChunks, ChunkedBody


def decode(*parts: bytes) -> tuple[bytes, bool, bool]:
    pieces: list[bytes] = []
    body = ChunkedBody()
    for part in parts:
        assert not body.complete
        pieces.append(body.feed(part))
    return b"".join(pieces), body.complete, body.clean_end


def encode(pieces: list[bytes]) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces if piece) + b"0\r\n\r\n"


@given(st.lists(st.binary(max_size=40), max_size=6), st.data())
def test_any_split_gives_the_same_body(pieces: list[bytes], data: st.DataObject) -> None:
    raw = encode(pieces)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(raw) - 1))))
    parts = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    assert decode(*parts) == (b"".join(pieces), True, True)


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6), st.data())
def test_a_body_cut_anywhere_is_not_complete(pieces: list[bytes], data: st.DataObject) -> None:
    raw = encode(pieces)
    assert not decode(raw[: data.draw(st.integers(0, len(raw) - 1))])[1]


@pytest.mark.parametrize(
    "after",
    [b"\r\n", b"0\r\n\r\n", b"x", b"GET / HTTP/1.0\r\n\r\n", b"POST / HTTP/1.1\r\nX: 0\r\n\r\n", b"\0"],
)
def test_bytes_after_the_end_are_not_given_out_but_known(after: bytes) -> None:
    body, complete, clean = decode(b"3\r\nabc\r\n0\r\n\r\n" + after)
    assert (body, complete, clean) == (b"abc", True, False)


def test_trailers_and_extensions_are_swallowed() -> None:
    body, complete, clean = decode(b'3;a="b"\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n')
    assert (body, complete) == (b"abc", True)
    assert not clean  # where a trailer ended is not checked again: that connection is not used further


@pytest.mark.parametrize(
    "raw",
    [
        b"g\r\n",
        b"0x3\r\nabc\r\n",
        b"-1\r\n",
        b" 3\r\nabc\r\n",
        b"3 \r\nabc\r\n",
        b"3\nabc\r\n",
        b"3\r\nabcd\r\n",
        b"3\r\nabc0\r\n\r\n",
        b"fffffffffffffffff\r\n",
        b"3;\nx\r\nabc\r\n",
    ],
)
def test_anything_but_the_coding_is_refused(raw: bytes) -> None:
    with pytest.raises(BadChunks):
        decode(raw + b"0\r\n\r\n")


def test_chunks_that_arrive_together_come_out_together() -> None:
    body = ChunkedBody()
    assert body.feed(b"3\r\nabc\r\n2\r\nde\r\n") == b"abcde"
    assert body.feed(b"1\r\nf\r\n3\r\ng") == b"fg"
    assert body.feed(b"hi\r\n") == b"hi"
    assert body.feed(b"2\r\njk\r\n0\r\n\r\n") == b"jk"
    assert body.complete and body.clean_end


class Reference:
    """The parser alone, on everything at once."""

    def __init__(self, raw: bytes) -> None:
        self.body = b""
        self.complete = self.bad = False
        parser = HttpRequestParser(self)
        parser.feed_data(b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n")
        try:
            parser.feed_data(raw)
        except HttpParserError:
            self.bad = not self.complete

    def on_body(self, piece: bytes) -> None:
        if not self.complete:
            self.body += piece

    def on_message_complete(self) -> None:
        self.complete = True


EDITS = st.tuples(
    st.integers(0, 200),
    st.integers(0, 3),
    st.sampled_from([b"", b"\r", b"\n", b"0", b"1", b"f", b";", b" ", b"\r\n"]),
)


@given(st.lists(st.binary(min_size=1, max_size=30), max_size=5), st.lists(EDITS, max_size=3), st.data())
def test_what_is_taken_here_is_what_the_parser_would_take(
    pieces: list[bytes], edits: list[tuple[int, int, bytes]], data: st.DataObject
) -> None:
    raw = encode(pieces)
    for at, gone, put in edits:
        raw = raw[:at] + put + raw[at + gone :]
    cuts = sorted(data.draw(st.sets(st.integers(0, len(raw)), max_size=3)))
    reference = Reference(raw)
    body, taken = ChunkedBody(), b""
    try:
        for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True):
            if a < b and not body.complete:
                taken += body.feed(raw[a:b])
    except BadChunks as bad:
        assert reference.bad
        assert reference.body == taken + bad.before
    else:
        assert (taken, body.complete) == (reference.body, reference.complete)
        assert not reference.bad
