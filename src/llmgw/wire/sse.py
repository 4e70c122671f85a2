"""Decides, event by event and by bytes, what of an engine's stream reaches the client (G6a, G7).

Laws: the same output and the same verdict however the bytes were cut on their way; what waits is
bounded; nothing is parsed beyond a byte scan unless a chunk holds `"usage"` or may hold a failure;
deltas are never re-encoded; a usage chunk reaches a client that asked for it once, last, with
`choices: []`, and nobody else; only `[DONE]` after no failure is a good end.
"""

import re
from enum import Enum
from typing import Final

import msgspec

from llmgw.wire import jsonspan
from llmgw.wire.openai import Usage, parse_answer

# The longest event honest engines send (logprobs of many tokens) is below 100 KiB.
EVENT_MAX = 1024 * 1024
FAULT_DATA_MAX = 200  # bytes of what could not be read that are kept for the log


class StreamFault(Enum):
    """Why a stream cannot go on."""

    MALFORMED = "malformed"  # a line too long, data that is neither {…} nor [DONE], invalid UTF-8
    ERROR_FRAME = "error_frame"  # the engine said that it failed
    ABORTED = "aborted"  # `finish_reason: "abort"`
    TRUNCATED = "truncated"  # ended without [DONE]
    WRONG_MODEL = "wrong_model"  # the answer names another model


_EOL = rb"(?:\r\n|\n|\r(?!\n))"
_END = re.compile(_EOL + _EOL)
_LINE = re.compile(rb"\r\n|\n|\r")
_ERROR_EVENT = re.compile(rb"(?:^|[\r\n])(?:event: ?error[\r\n]|error:)")  # `error:` is an old engine's own
_ABORT = re.compile(rb'"finish_reason"\s*:\s*"abort"')
_USAGE = re.compile(rb'"usage"\s*:\s*\{')
_MODEL = re.compile(rb'"model"\s*:\s*"([^"\\]*)"')
_HEAD: Final = ("id", "object", "created", "model", "system_fingerprint")


class StreamScanner:
    """Takes an engine's bytes as they come and gives those the client shall have.

    After every `feed` look at `fault`: when it is set, nothing more comes out, and what was withheld
    is lost. `started` says that an event has come out, `done` that the stream came to its good end.
    """

    def __init__(self, *, usage_asked: bool, usage_continuous: bool = False, model: str = "") -> None:
        """`model`: the name the answer must carry where it carries one; empty accepts any."""
        self.fault: StreamFault | None = None
        self.fault_data: bytes = b""  # of the event that failed
        self.done = False
        self.usage: Usage | None = None
        self.events = 0  # that came out and carry data; about one a token
        self._asked = usage_asked
        self._continuous = usage_asked and usage_continuous
        self._model = model.encode()
        self._carry = b""
        self._comments = b""  # before the first event: they prove nothing and wait for it
        self._usage_event = b""  # withheld until the end

    @property
    def started(self) -> bool:
        """Whether anything with data came out."""
        return self.events > 0 or self.done

    def feed(self, data: bytes) -> bytes:
        """The bytes the client shall have now; may be empty."""
        if self.done or self.fault is not None:
            return b""
        if self.events and not self._carry and len(data) <= EVENT_MAX:
            plain = _plain_events(data)
            if plain:
                self.events += plain
                return data
        return self._slow(data)

    def end(self) -> bytes:
        """The engine ended its answer: the last bytes for the client; a fault when it was no good end."""
        out = b""
        if self._carry and not self.done and self.fault is None:
            # A last event may lack its blank line; one that lacks more is judged like any other.
            out = self._slow(b"\n\n")
        if not self.done and self.fault is None:
            self._fail(StreamFault.TRUNCATED, b"")
        return out

    def _slow(self, data: bytes) -> bytes:
        """Event by event."""
        buffer = self._carry + data
        out: list[bytes] = []
        at = 0
        for found in _END.finditer(buffer):
            if _may_grow(found, buffer):
                break
            self._event(buffer[at : found.end()], out)
            at = found.end()
            if self.done or self.fault is not None:
                self._carry = b""
                return b"".join(out)
        self._carry = buffer[at:]
        if len(self._carry) > EVENT_MAX:
            self._fail(StreamFault.MALFORMED, self._carry[:FAULT_DATA_MAX])
            self._carry = b""
        return b"".join(out)

    def _event(self, event: bytes, out: list[bytes]) -> None:
        payload = _payload(event)
        if len(event) > EVENT_MAX:
            self._fail(StreamFault.MALFORMED, event[:FAULT_DATA_MAX])
            return
        if b"error" in event and _ERROR_EVENT.search(event):
            self._fail(StreamFault.ERROR_FRAME, payload or b"")
            return
        if payload is None:
            if self.events:
                out.append(event)
            elif len(self._comments) + len(event) <= EVENT_MAX:
                self._comments += event
            return
        if payload.strip() == b"[DONE]":
            self._finish(event, out)
            return
        if not _is_object(payload):
            self._fail(StreamFault.MALFORMED, payload[:FAULT_DATA_MAX])
            return
        fault = self._judge(payload)
        if fault is not None:
            self._fail(fault, payload)
            return
        shown = self._without_usage(event, payload) if _USAGE.search(payload) else event
        if shown:
            out.append(self._comments + shown)
            self._comments = b""
            self.events += 1

    def _judge(self, payload: bytes) -> StreamFault | None:
        if b'"error"' in payload:
            answer = parse_answer(payload)
            if answer is None:
                return StreamFault.MALFORMED
            if answer.error:
                return StreamFault.ERROR_FRAME
        if b'"abort"' in payload and _ABORT.search(payload):
            return StreamFault.ABORTED
        if self.events == 0 and self._model:
            named = _MODEL.search(payload)
            if named is not None and named[1] not in (b"", self._model):
                return StreamFault.WRONG_MODEL
        return None

    def _without_usage(self, event: bytes, payload: bytes) -> bytes:
        """Take the figures of an event; what of it the client shall have now."""
        answer = parse_answer(payload)
        if answer is None or answer.usage is None:
            return event
        self.usage = answer.usage
        if not answer.choices:
            self._usage_event = event if answer.choices == 0 else b"data: " + _usage_only(payload) + b"\n\n"
            return b""
        if self._continuous:
            return event
        if self._asked:
            self._usage_event = b"data: " + _usage_only(payload) + b"\n\n"
        return _null_usage(event, payload)

    def _finish(self, event: bytes, out: list[bytes]) -> None:
        if self._asked and self._usage_event:
            out.append(self._usage_event)
        out.append(event)
        self.done = True

    def _fail(self, fault: StreamFault, data: bytes) -> None:
        self.fault = fault
        self.fault_data = data


def _plain_events(data: bytes) -> int:
    """How many events these bytes are, when they are whole, of the usual form, and need no look inside."""
    if not data.startswith(b"data: {") or not data.endswith(b"}\n\n"):
        return 0
    lines = data.count(b"\n")
    events = lines >> 1
    # With two line ends, those at the end, it is one event; with more, all must be where events meet.
    if lines != 2 and (lines & 1 or data.count(b"}\n\ndata: {") != events - 1):
        return 0
    if b'"usage"' in data or b'"error"' in data or b'"abort"' in data or b"\r" in data:
        return 0
    return events if data.isascii() or _is_utf8(data) else 0


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _may_grow(found: re.Match[bytes], buffer: bytes) -> bool:
    """Whether a blank line at the end of the buffer could be one byte longer: CR may become CRLF."""
    return found.end() == len(buffer) and buffer.endswith(b"\r")


def _payload(event: bytes) -> bytes | None:
    """The data of one event; `None` when it has none (a comment, a lone field)."""
    if event.startswith(b"data: {") and event.endswith(b"}\n\n") and event.count(b"\n") == 2:
        return event[6:-2]
    parts: list[bytes] = []
    for line in _LINE.split(event):
        name, _, value = line.partition(b":")
        if name in (b"data", b"error"):
            parts.append(value.removeprefix(b" "))
    return b"\n".join(parts) if parts else None


def _is_object(payload: bytes) -> bool:
    text = payload.strip()
    return text[:1] == b"{" and text[-1:] == b"}" and (text.isascii() or _is_utf8(text))


def _usage_only(payload: bytes) -> bytes:
    """A chunk with the figures of another and no choices."""
    spans = dict(jsonspan.members(payload))
    fields = [
        msgspec.json.encode(name) + b":" + payload[slice(*spans[name])] for name in _HEAD if name in spans
    ]
    fields += [b'"choices":[]', b'"usage":' + payload[slice(*spans["usage"])]]
    return b"{" + b",".join(fields) + b"}"


def _null_usage(event: bytes, payload: bytes) -> bytes:
    """The event with `usage: null`; the deltas keep their bytes."""
    at = event.find(payload)
    span = jsonspan.find_member(payload, "usage") if at >= 0 else None
    if span is None:  # data over several lines: rare enough to be joined
        span = jsonspan.find_member(payload, "usage")
        assert span is not None, "an event with usage has it at its top"
        return b"data: " + jsonspan.replaced(payload, span, b"null").replace(b"\n", b" ") + b"\n\n"
    return jsonspan.replaced(event, jsonspan.Span(at + span.start, at + span.end), b"null")
