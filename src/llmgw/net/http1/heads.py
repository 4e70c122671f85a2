"""Reads the head of a request or response, and decides how its body is framed.

llhttp checks the grammar. Laws added here, because it lets these through: one Host in a 1.1 request,
none doubled; origin-form targets only; HTTP/1.0 and 1.1 only; chunked as the only transfer coding,
never beside a length; bounded size and count; an upgrade that is asked for changes nothing.
Whatever is ambiguous is refused, not repaired: two readers that disagree on where a message ends
give one tenant's answer to another.
"""

import re
from enum import Enum
from typing import Final

import msgspec
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser, HttpResponseParser

from llmgw.net.http1.limits import PoolLimits, ServerLimits
from llmgw.net.http1.refusals import HEAD_TOO_LARGE, Refusal, bad_request
from llmgw.ports import RequestHead

HEAD_END = b"\r\n\r\n"
_NONE: Final[frozenset[bytes]] = frozenset()
_BLANK = b" \t"

# In a head the parser accepted, in lower case: every line is a field, and no value holds a line break.
# Digits of a length that a repeated head may bring; with more, the parser is asked what it thinks of it.
_DIGITS_MAX = 15
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]+)")

_WATCHED = re.compile(rb"\r\n(host|content-length|transfer-encoding|connection|expect):[ \t]*([^\r]*)")
# reg-name, IPv4 or [IPv6], with an optional port (RFC 3986 3.2); no userinfo, path or comma.
_HOST = re.compile(rb"(?:[A-Za-z0-9._~!$&'()*+;=%-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?")


class Framing(Enum):
    """How the end of a body is told."""

    LENGTH = "length"  # announced; 0 when there is no body
    CHUNKED = "chunked"
    UNTIL_CLOSE = "until close"  # responses only


# Members by their own names, see `connection`.
LENGTH: Final = Framing.LENGTH
CHUNKED: Final = Framing.CHUNKED
UNTIL_CLOSE: Final = Framing.UNTIL_CLOSE


class ParsedRequest(msgspec.Struct, frozen=True):
    """A request head that may be served."""

    head: RequestHead
    framing: Framing
    length: int
    expects_continue: bool
    http10: bool


class ParsedResponse:
    """A response head that may be relayed. Its fields are put together only when asked for."""

    __slots__ = ("_raw", "framing", "keep_alive", "length", "status")

    def __init__(self, status: int, framing: Framing, length: int, keep_alive: bool, raw: bytes) -> None:
        self.status = status
        self.framing = framing
        self.length = length
        self.keep_alive = keep_alive
        self._raw = raw

    @property
    def headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """Every header, names lower-cased, order and duplicates kept."""
        return _fields(self._raw)


class ReceivedHead(RequestHead):
    """A request head that is read field by field, on demand, from the bytes the parser accepted."""

    __slots__ = ("_lower", "_raw")

    def __init__(
        self, method: str, target: bytes, raw: bytes, lower: bytes, peer: str, keep_alive: bool
    ) -> None:
        super().__init__(method, target, (), peer, keep_alive)
        self._raw = raw
        self._lower = lower

    @property
    def headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """Every header, names lower-cased, order and duplicates kept."""
        if not self._headers:
            self._headers = _fields(self._raw)
        return self._headers

    def header(self, name: bytes) -> bytes | None:
        """The first value of a lower-case header name."""
        start = self._lower.find(b"\r\n%b:" % name)
        if start < 0:
            return None
        start += len(name) + 3
        return self._raw[start : self._raw.index(b"\r\n", start)].strip(_BLANK)


class _Sink:
    """What the parser calls back: only that it came to the end of the head."""

    __slots__ = ("complete",)

    def __init__(self) -> None:
        self.complete = False

    def on_headers_complete(self) -> None:
        self.complete = True


def _fields(raw: bytes) -> tuple[tuple[bytes, bytes], ...]:
    """Every field of a head. The parser has refused every line that is not `name: value` already."""
    fields = []
    for line in raw[: -len(HEAD_END)].split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        fields.append((name.lower(), value.strip(_BLANK)))
    return tuple(fields)


class _Watched:
    """The few fields that decide framing and the connection's fate, values in lower case."""

    __slots__ = ("coding", "connection", "doubled", "expect", "host", "length")

    def __init__(self, lower: bytes) -> None:
        """`lower`: a head the parser accepted, in lower case."""
        found = _WATCHED.findall(lower)
        fields = dict(found)
        get = fields.get
        self.host: bytes | None = get(b"host")
        self.coding: bytes | None = get(b"transfer-encoding")
        self.length: bytes | None = get(b"content-length")  # one, and digits: the parser refused others
        self.connection: bytes | None = get(b"connection")
        self.expect: bytes | None = get(b"expect")
        self.doubled: frozenset[bytes] = _NONE
        if len(fields) != len(found):
            names = [name for name, _ in found]
            self.doubled = frozenset(name for name in names if names.count(name) > 1)
            self.connection = b",".join(value for name, value in found if name == b"connection") or None

    def keeps_alive(self, http10: bool) -> bool:
        """Whether the sender wants the connection kept."""
        options = self.connection
        if options is None:
            return not http10
        return b"close" not in options and (not http10 or b"keep-alive" in options)


def parse_request(raw: bytes, peer: str, limits: ServerLimits) -> ParsedRequest | Refusal:
    """Read one whole request head, blank line included."""
    sink = _Sink()
    parser = HttpRequestParser(sink)
    try:
        parser.feed_data(raw)
    except HttpParserUpgrade:
        pass  # not granted (h2c of Java clients): the request is served as the HTTP/1.1 it also is
    except HttpParserError as error:
        return bad_request(f"The request is not valid HTTP/1.1: {error}.")
    line_end = raw.index(b"\r\n")
    http10 = not raw.endswith(b" HTTP/1.1", 0, line_end)
    if not sink.complete or (http10 and not raw.endswith(b" HTTP/1.0", 0, line_end)):
        return Refusal(505, "http_version_not_supported", "Only HTTP/1.1 and HTTP/1.0 are served here.")
    if raw.count(b"\n") - 2 > limits.head_count:
        return HEAD_TOO_LARGE
    lower = raw.lower()
    watched = _Watched(lower)
    method = raw[: raw.index(b" ")]
    target = raw[len(method) + 1 : line_end - len(b" HTTP/1.1")]
    refusal = _target_refusal(method, target) or _framing_refusal(watched, http10)
    if refusal is not None:
        return refusal
    head = ReceivedHead(method.decode(), target, raw, lower, peer, watched.keeps_alive(http10))
    length = watched.length
    return ParsedRequest(
        head,
        LENGTH if watched.coding is None else CHUNKED,
        0 if length is None else int(length),
        watched.expect is not None and not http10,
        http10,
    )


class Repeat:
    """Recognises a head that is the one before but for the digits of its Content-Length.

    A client library sends one head again and again over its connection, and of all that is read in it
    nothing but the length depends on those digits: the parser need not be asked again.
    """

    __slots__ = ("_after", "_before", "_lower", "_parsed")

    def __init__(self, parsed: ParsedRequest, raw: bytes) -> None:
        """`parsed`: what `raw` said, with a length."""
        self._parsed = parsed
        self._lower = raw.lower()
        digits = _LENGTH.search(self._lower)
        assert digits is not None, "a length comes from its field"
        self._before = raw[: digits.start(1)]
        self._after = raw[digits.end(1) :]

    def read(self, data: bytes) -> tuple[ParsedRequest, int] | None:
        """What the head at the start of `data` says, and its size; `None` when it is another."""
        start = len(self._before)
        end = data.find(b"\r", start, start + _DIGITS_MAX + 1)
        digits = data[start:end]
        if end < 0 or not digits.isdigit():
            return None
        if not data.startswith(self._before) or not data.startswith(self._after, end):
            return None
        size = end + len(self._after)
        raw = data[:size]
        lower = self._lower if len(self._lower) == size else raw.lower()  # names lie where they lay
        once = self._parsed
        head = ReceivedHead(
            once.head.method, once.head.target, raw, lower, once.head.peer, once.head.keep_alive
        )
        return ParsedRequest(head, LENGTH, int(digits), once.expects_continue, once.http10), size


def _target_refusal(method: bytes, target: bytes) -> Refusal | None:
    if method == b"CONNECT":
        return Refusal(501, "method_not_supported", "CONNECT is not served: this is not a forward proxy.")
    if not target.startswith(b"/") and not (target == b"*" and method == b"OPTIONS"):
        return bad_request("The request target must be a path that begins with a slash.")
    return None


def _framing_refusal(watched: _Watched, http10: bool) -> Refusal | None:
    doubled = watched.doubled
    host = watched.host
    if b"host" in doubled:
        return bad_request("The request has more than one Host header.")
    if host is None:
        if not http10:
            return bad_request("The request has no Host header.")
    elif _HOST.fullmatch(host.strip(_BLANK)) is None:
        return bad_request("The request's Host header is not a host name with an optional port.")
    coding = watched.coding
    if coding is not None:
        if http10 or watched.length is not None:
            return bad_request("Transfer-Encoding may stand neither beside Content-Length nor in HTTP/1.0.")
        if coding.strip(_BLANK) != b"chunked" or b"transfer-encoding" in doubled:
            return Refusal(
                501, "transfer_coding_not_supported", "Chunked is the only transfer coding served."
            )
    if watched.expect is not None and watched.expect.strip(_BLANK) != b"100-continue":
        return Refusal(417, "expectation_failed", "The only expectation served is 100-continue.")
    return None


class BadResponse(Exception):
    """A response head that may not be relayed; the text says why."""


def parse_response(raw: bytes, method: str, limits: PoolLimits) -> ParsedResponse:
    """Read one whole response head, blank line included. Raises `BadResponse`."""
    sink = _Sink()
    parser = HttpResponseParser(sink)
    try:
        parser.feed_data(raw)
    except HttpParserError as error:
        raise BadResponse(f"malformed response head: {error}") from error
    http10 = not raw.startswith(b"HTTP/1.1 ")
    status: int = parser.get_status_code()
    if not sink.complete or status < 100 or (http10 and not raw.startswith(b"HTTP/1.0 ")):
        raise BadResponse("malformed response head: not HTTP/1.1 or 1.0")
    if raw.count(b"\n") - 2 > limits.head_count:
        raise BadResponse(f"response head has more than {limits.head_count} fields")
    watched = _Watched(raw.lower())
    framing, length = _response_framing(method, status, watched)
    keep_alive = framing is not UNTIL_CLOSE and watched.keeps_alive(http10)
    return ParsedResponse(status, framing, length, keep_alive, raw)


def _response_framing(method: str, status: int, watched: _Watched) -> tuple[Framing, int]:
    """RFC 9112 6.3; anything but plain chunked or one length is refused."""
    coding, length = watched.coding, watched.length
    if coding is not None:
        if length is not None:
            raise BadResponse("response has both Transfer-Encoding and Content-Length")
        if coding.strip(_BLANK) != b"chunked" or b"transfer-encoding" in watched.doubled:
            raise BadResponse("response has a transfer coding other than chunked")
    if method == "HEAD" or status < 200 or status in (204, 304):
        return LENGTH, 0
    if coding is not None:
        return CHUNKED, 0
    if length is None:
        return UNTIL_CLOSE, 0
    return LENGTH, int(length)
