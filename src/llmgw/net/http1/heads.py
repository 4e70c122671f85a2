"""Reads the head of a request or response, and decides how its body is framed.

llhttp checks the grammar. Laws added here, because it lets these through: one Host in a 1.1 request,
none doubled; origin-form targets only; HTTP/1.0 and 1.1 only; chunked as the only transfer coding,
never beside a length; bounded size and count; an upgrade that is asked for changes nothing.
Whatever is ambiguous is refused, not repaired: two readers that disagree on where a message ends
give one tenant's answer to another.
"""

import re
from enum import Enum

import msgspec
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser, HttpResponseParser

from llmgw.net.http1.limits import PoolLimits, ServerLimits
from llmgw.net.http1.refusals import HEAD_TOO_LARGE, Refusal, bad_request
from llmgw.ports import RequestHead

HEAD_END = b"\r\n\r\n"

_WATCHED = frozenset({b"host", b"content-length", b"transfer-encoding", b"connection", b"expect"})
# reg-name, IPv4 or [IPv6], with an optional port (RFC 3986 3.2); no userinfo, path or comma.
_HOST = re.compile(rb"(?:[A-Za-z0-9._~!$&'()*+;=%-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?")


class Framing(Enum):
    """How the end of a body is told."""

    LENGTH = "length"  # announced; 0 when there is no body
    CHUNKED = "chunked"
    UNTIL_CLOSE = "until close"  # responses only


class ParsedRequest(msgspec.Struct, frozen=True):
    """A request head that may be served."""

    head: RequestHead
    framing: Framing
    length: int
    expects_continue: bool
    http10: bool


class ParsedResponse(msgspec.Struct, frozen=True):
    """A response head that may be relayed."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    framing: Framing
    length: int
    keep_alive: bool


class _HeadSink:
    """What the parser calls back while it reads one head, fed whole."""

    __slots__ = ("complete", "headers", "target", "watched")

    def __init__(self) -> None:
        self.target = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.watched: list[tuple[bytes, bytes]] = []
        self.complete = False

    def on_url(self, target: bytes) -> None:
        self.target = target

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        self.headers.append((name, value))
        if name in _WATCHED:
            self.watched.append((name, value.strip().lower()))

    def on_headers_complete(self) -> None:
        self.complete = True


class _Watched:
    """The few headers that decide framing and the connection's fate."""

    __slots__ = ("close", "coding", "expect", "hosts", "keep_alive", "length", "repeated_coding")

    def __init__(self, watched: list[tuple[bytes, bytes]]) -> None:
        self.hosts: list[bytes] = []
        self.length: int | None = None
        self.coding: bytes | None = None
        self.repeated_coding = False
        self.close = self.keep_alive = False
        self.expect: bytes | None = None
        for name, value in watched:
            if name == b"host":
                self.hosts.append(value)
            elif name == b"content-length":
                self.length = int(value)  # the parser refused repetitions and anything but digits
            elif name == b"connection":
                self.close = self.close or b"close" in value
                self.keep_alive = self.keep_alive or b"keep-alive" in value
            elif name == b"transfer-encoding":
                self.repeated_coding = self.coding is not None
                self.coding = value
            else:
                self.expect = value


def parse_request(raw: bytes, peer: str, limits: ServerLimits) -> ParsedRequest | Refusal:
    """Read one whole request head, blank line included."""
    sink = _HeadSink()
    parser = HttpRequestParser(sink)
    try:
        parser.feed_data(raw)
    except HttpParserUpgrade:
        pass  # not granted (h2c of Java clients): the request is served as the HTTP/1.1 it also is
    except HttpParserError as error:
        return bad_request(f"The request is not valid HTTP/1.1: {error}.")
    line_end = raw.index(b"\r\n")
    http10 = raw.endswith(b" HTTP/1.0", 0, line_end)
    if not sink.complete or not (http10 or raw.endswith(b" HTTP/1.1", 0, line_end)):
        return Refusal(505, "http_version_not_supported", "Only HTTP/1.1 and HTTP/1.0 are served here.")
    if len(sink.headers) > limits.head_count:
        return HEAD_TOO_LARGE
    method = parser.get_method().decode()
    watched = _Watched(sink.watched)
    refusal = _request_refusal(method, sink.target, watched, http10)
    if refusal is not None:
        return refusal
    keep_alive = not watched.close and (watched.keep_alive or not http10)
    return ParsedRequest(
        head=RequestHead(method, sink.target, tuple(sink.headers), peer, keep_alive),
        framing=Framing.LENGTH if watched.coding is None else Framing.CHUNKED,
        length=watched.length or 0,
        expects_continue=watched.expect is not None and not http10,
        http10=http10,
    )


def _request_refusal(method: str, target: bytes, watched: _Watched, http10: bool) -> Refusal | None:
    if method == "CONNECT":
        return Refusal(501, "method_not_supported", "CONNECT is not served: this is not a forward proxy.")
    if not target.startswith(b"/") and not (target == b"*" and method == "OPTIONS"):
        return bad_request("The request target must be a path that begins with a slash.")
    if len(watched.hosts) > 1:
        return bad_request("The request has more than one Host header.")
    if not watched.hosts and not http10:
        return bad_request("The request has no Host header.")
    if watched.hosts and _HOST.fullmatch(watched.hosts[0]) is None:
        return bad_request("The request's Host header is not a host name with an optional port.")
    if watched.coding is not None:
        if watched.length is not None or http10:
            return bad_request("Transfer-Encoding may stand neither beside Content-Length nor in HTTP/1.0.")
        if watched.coding != b"chunked" or watched.repeated_coding:
            return Refusal(
                501, "transfer_coding_not_supported", "The only transfer coding served is chunked."
            )
    if watched.expect is not None and watched.expect != b"100-continue":
        return Refusal(417, "expectation_failed", "The only expectation served is 100-continue.")
    return None


class BadResponse(Exception):
    """A response head that may not be relayed; the text says why."""


def parse_response(raw: bytes, method: str, limits: PoolLimits) -> ParsedResponse:
    """Read one whole response head, blank line included. Raises `BadResponse`."""
    sink = _HeadSink()
    parser = HttpResponseParser(sink)
    try:
        parser.feed_data(raw)
    except HttpParserError as error:
        raise BadResponse(f"malformed response head: {error}") from error
    http10 = raw.startswith(b"HTTP/1.0 ")
    status = parser.get_status_code()
    if not sink.complete or status < 100 or not (http10 or raw.startswith(b"HTTP/1.1 ")):
        raise BadResponse("malformed response head: not HTTP/1.1 or 1.0")
    if len(sink.headers) > limits.head_count:
        raise BadResponse(f"response head has more than {limits.head_count} fields")
    watched = _Watched(sink.watched)
    framing, length = _response_framing(method, status, watched)
    keep_alive = not watched.close and (watched.keep_alive or not http10) and framing != Framing.UNTIL_CLOSE
    return ParsedResponse(status, tuple(sink.headers), framing, length, keep_alive)


def _response_framing(method: str, status: int, watched: _Watched) -> tuple[Framing, int]:
    """RFC 9112 6.3; anything but plain chunked or one length is refused."""
    if watched.coding is not None:
        if watched.length is not None:
            raise BadResponse("response has both Transfer-Encoding and Content-Length")
        if watched.coding != b"chunked" or watched.repeated_coding:
            raise BadResponse("response has a transfer coding other than chunked")
    if method == "HEAD" or status < 200 or status in (204, 304):
        return Framing.LENGTH, 0
    if watched.coding is not None:
        return Framing.CHUNKED, 0
    if watched.length is None:
        return Framing.UNTIL_CLOSE, 0
    return Framing.LENGTH, watched.length
