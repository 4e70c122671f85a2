"""Writes header fields so that they can be nothing but header fields.

Law: a name or value with a line break, which would split the message, and a field that belongs to
the framing, which is decided here, are errors of the caller.
"""

from llmgw.ports import HeaderList


def write_fields(headers: HeaderList, reserved: frozenset[bytes]) -> bytes:
    """The lines of these headers. Raises `ValueError` on one that may not be written."""
    parts: list[bytes] = []
    for name, value in headers:
        if name in reserved:
            raise ValueError(f"header {name!r} is set by the connection alone")
        parts += (name, b": ", value, b"\r\n")
    lines = b"".join(parts)
    if lines.count(b"\n") != len(headers) or lines.count(b"\r") != len(headers):
        raise ValueError("a header with a line break would split the message")
    return lines
