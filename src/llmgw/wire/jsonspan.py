"""Finds where a value lies inside JSON bytes, so that one value can be changed and no other byte.

Laws: works on bytes a JSON parser has accepted already; never recurses (depth is the sender's choice);
of duplicate keys the last counts, as it does for the engines' parsers; strings are skipped at the
speed of a byte search, because one may hold megabytes of an image.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

_SPACE = re.compile(rb"[ \t\r\n]*")
_OPEN_CLOSE = re.compile(rb'[\[\]{}"]')
_SCALAR_END = re.compile(rb"[,\]} \t\r\n]|\Z")
_BACKSLASH = 0x5C
_QUOTE = 0x22


class Span(NamedTuple):
    """Bytes `start` up to `end` of what was searched."""

    start: int
    end: int


class NotAnObject(ValueError):
    """The bytes are not a JSON object from here on."""


def members(data: bytes, start: int = 0) -> Iterator[tuple[str, Span]]:
    """Keys and value spans of the object that begins at `start`. Raises `NotAnObject`."""
    at = _skip_space(data, start)
    if data[at : at + 1] != b"{":
        raise NotAnObject
    at = _skip_space(data, at + 1)
    while data[at : at + 1] == b'"':
        key_end = _string_end(data, at)
        key = data[at:key_end]
        at = _skip_space(data, key_end)
        if data[at : at + 1] != b":":
            raise NotAnObject
        value = Span(_skip_space(data, at + 1), 0)
        value = value._replace(end=_value_end(data, value.start))
        yield _text(key), value
        at = _skip_space(data, value.end)
        if data[at : at + 1] == b",":
            at = _skip_space(data, at + 1)
    if data[at : at + 1] != b"}":
        raise NotAnObject


def find_member(data: bytes, key: str, start: int = 0) -> Span | None:
    """Where the value of `key` lies in the object that begins at `start`. Raises `NotAnObject`."""
    found = None
    for name, span in members(data, start):
        if name == key:
            found = span
    return found


def replaced(data: bytes, span: Span, value: bytes) -> bytes:
    """The bytes with those of `span` exchanged."""
    return data[: span.start] + value + data[span.end :]


def with_member(data: bytes, key: str, value: bytes, start: int = 0) -> bytes:
    """The bytes with `"key":value` as the first member of the object at `start`, where it has none yet."""
    at = _skip_space(data, start)
    if data[at : at + 1] != b"{":
        raise NotAnObject
    first = _skip_space(data, at + 1)
    comma = b"" if data[first : first + 1] == b"}" else b","
    return data[: at + 1] + msgspec.json.encode(key) + b":" + value + comma + data[at + 1 :]


def _skip_space(data: bytes, at: int) -> int:
    found = _SPACE.match(data, at)
    return found.end() if found else at


def _text(key: bytes) -> str:
    try:
        return msgspec.json.decode(key, type=str)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NotAnObject from error


def _string_end(data: bytes, at: int) -> int:
    """The position after the string whose opening quote is at `at`."""
    quote = data.find(b'"', at + 1)
    while quote >= 0:
        before = quote - 1
        while data[before] == _BACKSLASH:
            before -= 1
        if (quote - before) % 2 == 1:  # an even number of backslashes: the quote is not escaped
            return quote + 1
        quote = data.find(b'"', quote + 1)
    raise NotAnObject


def _value_end(data: bytes, at: int) -> int:
    if data[at : at + 1] == b'"':
        return _string_end(data, at)
    if data[at : at + 1] not in (b"{", b"["):
        found = _SCALAR_END.search(data, at)
        return found.start() if found else len(data)
    depth = 0
    found = _OPEN_CLOSE.search(data, at)
    while found:
        at = found.end()
        if data[found.start()] == _QUOTE:
            at = _string_end(data, found.start())
        else:
            depth += 1 if found.group() in b"[{" else -1
            if depth == 0:
                return at
        found = _OPEN_CLOSE.search(data, at)
    raise NotAnObject
