"""Takes the chunked coding off a body, of a request or a response.

Laws: llhttp checks sizes and separators; trailers are swallowed; nothing after the end is given out,
and whether there was anything is known, because a connection with such bytes is never reused.
"""

from collections.abc import Callable

from httptools import HttpParserError, HttpRequestParser

_LAST_CHUNK = b"0\r\n\r\n"
_SYNTHETIC_HEAD = b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"


class BadChunks(Exception):
    """The body breaks the chunked coding; the text says how."""


class ChunkedBody:
    """A decoder for one body; `piece` is called with every chunk as it arrives.

    `clean_end` tells, once `complete`, that the bytes fed ended exactly with the body (and that it
    had no trailers): only then may the connection carry another message.
    """

    __slots__ = ("_excess", "_parser", "_piece", "_tail", "clean_end", "complete")

    def __init__(self, piece: Callable[[bytes], None]) -> None:
        self.complete = False
        self.clean_end = False
        self._piece = piece
        self._tail = b""
        self._excess = False
        self._parser: HttpRequestParser | None = HttpRequestParser(self)
        self._parser.feed_data(_SYNTHETIC_HEAD)

    def feed(self, data: bytes) -> None:
        """Decode more bytes. Raises `BadChunks`. Not to be called once complete."""
        assert self._parser is not None, "fed after the end"
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            if not self.complete:
                raise BadChunks(str(error)) from error
            self._excess = True
        self._tail = (self._tail + data[-len(_LAST_CHUNK) :])[-len(_LAST_CHUNK) :]
        if self.complete:
            self._parser = None  # breaks the cycle of parser and callbacks
            self.clean_end = self._tail == _LAST_CHUNK and not self._excess

    def on_body(self, piece: bytes) -> None:
        """The parser's callback; a message after the end may call it too."""
        if not self.complete:
            self._piece(piece)

    def on_message_begin(self) -> None:
        """The parser's callback: after the end, something follows."""
        if self.complete:
            self._excess = True

    def on_message_complete(self) -> None:
        """The parser's callback."""
        self.complete = True
