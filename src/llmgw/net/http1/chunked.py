"""Takes the chunked coding off a body, of a request or a response.

Laws: chunks that arrive whole, one after the other, are taken here; everything else (a chunk in parts, its
extensions, the last one) goes to llhttp, which checks sizes and separators; trailers are swallowed;
nothing after the end is given out, and whether there was anything is known, because a connection with
such bytes is never reused.
"""

import re

from httptools import HttpParserError, HttpRequestParser

_LAST_CHUNK = b"0\r\n\r\n"
_SYNTHETIC_HEAD = b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"
# The size line of an ordinary chunk, below 16 MiB.
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,6})\r\n")


class BadChunks(Exception):
    """The body breaks the chunked coding; the text says how. `before`: the body's bytes up to there."""

    def __init__(self, why: str, before: bytes) -> None:
        super().__init__(why)
        self.before = before


class ChunkedBody:
    """A decoder for one body.

    `clean_end` tells, once `complete`, that the bytes fed ended exactly with the body (and that it
    had no trailers): only then may the connection carry another message.
    """

    __slots__ = ("_between", "_ended", "_excess", "_parser", "_pieces", "_tail", "clean_end", "complete")

    def __init__(self) -> None:
        self.complete = False
        self.clean_end = False
        self._between = True  # between two chunks, and llhttp knows no other: what comes is a size
        self._ended = False  # the chunk llhttp saw last
        self._pieces: list[bytes] = []
        self._tail = b""
        self._excess = False
        self._parser: HttpRequestParser | None = None

    def feed(self, data: bytes) -> bytes:
        """The body's bytes in these. Raises `BadChunks`. Not to be called once complete."""
        at = 0
        pieces = self._pieces = []
        if self._between:
            size = len(data)
            while at < size:
                line = _SIZE.match(data, at)
                if line is None:
                    break
                begin = line.end()
                end = begin + int(line[1], 16)
                if end == begin or data[end : end + 2] != b"\r\n":
                    break
                pieces.append(data[begin:end])
                at = end + 2
            if at == size:
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._parse(data[at:] if at else data)
        return b"".join(self._pieces)

    def _parse(self, data: bytes) -> None:
        parser = self._parser
        if parser is None:
            assert not self.complete, "fed after the end"
            parser = self._parser = HttpRequestParser(self)
            parser.feed_data(_SYNTHETIC_HEAD)
        try:
            parser.feed_data(data)
        except HttpParserError as error:
            if not self.complete:
                raise BadChunks(str(error), b"".join(self._pieces)) from error
            self._excess = True
        self._tail = (self._tail + data[-len(_LAST_CHUNK) :])[-len(_LAST_CHUNK) :]
        self._between = self._ended and self._tail.endswith(b"\r\n")
        if self.complete:
            self._parser = None  # breaks the cycle of parser and callbacks
            self.clean_end = self._tail == _LAST_CHUNK and not self._excess

    def on_chunk_header(self) -> None:
        """The parser's callback: a size was read, its chunk begins."""
        self._ended = False

    def on_chunk_complete(self) -> None:
        """The parser's callback: a chunk ended, with its line end."""
        self._ended = True

    def on_body(self, piece: bytes) -> None:
        """The parser's callback; a message after the end may call it too."""
        if not self.complete:
            self._pieces.append(piece)

    def on_message_begin(self) -> None:
        """The parser's callback: after the end, something follows."""
        if self.complete:
            self._excess = True

    def on_message_complete(self) -> None:
        """The parser's callback."""
        self.complete = True
