"""Writes response heads.

Laws: every answer has a date; a header that could split the answer is an error of ours and raises;
the framing headers are this module's, never the caller's.
"""

import asyncio
from collections.abc import Mapping
from email.utils import formatdate
from http import HTTPStatus
from types import MappingProxyType

from llmgw.net.http1.fields import write_fields
from llmgw.ports import Clock, HeaderList

LAST_CHUNK = b"0\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_STATUS_LINES: Mapping[int, bytes] = MappingProxyType(
    {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\ndate: ".encode() for status in HTTPStatus}
)
_OURS = frozenset({b"content-length", b"transfer-encoding", b"connection", b"date"})


def has_no_body(method: str, status: int) -> bool:
    """Whether an answer carries no body whatever its headers say (RFC 9110 6.4.1)."""
    return method == "HEAD" or status in (204, 304)


class ReplyHeads:
    """Writes heads with a date that is formatted once a second."""

    __slots__ = ("_clock", "_date", "_loop", "_until")

    def __init__(self, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self._clock = clock
        self._loop = loop
        self._date = b""
        self._until = float("-inf")

    def write(self, status: int, headers: HeaderList, framing: bytes, body: bytes = b"") -> bytes:
        """A head and perhaps the body after it; `framing` is whole header lines of the caller's.

        Raises `ValueError` on a header that would break the framing.
        """
        fields = write_fields(headers, _OURS)
        line = _STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\ndate: " % status
        return b"".join((line, self._today(), framing, fields, b"\r\n", body))

    def _today(self) -> bytes:
        now = self._loop.time()
        if now >= self._until:
            wall = self._clock.now()
            self._date = formatdate(wall, usegmt=True).encode() + b"\r\n"
            self._until = now + 1.0 - wall % 1.0
        return self._date
