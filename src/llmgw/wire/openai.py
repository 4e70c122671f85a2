"""Decides what a request asks for, what of its bytes must change, and what an answer said of use.

Laws: only the fields that are needed are decoded, explicit nulls are absences; a body reaches the
engine byte for byte save for the values that must change, which are spliced (G6); token figures are
the engine's own (G7), an explicit 0 is 0.
"""

import re
from typing import Final

import msgspec

from llmgw.wire import jsonspan

MODEL_NAME_MAX = 256  # characters; longer than any catalog accepts


class Ask(msgspec.Struct, frozen=True):
    """What a client asked for, as far as the gateway must know."""

    model: str
    stream: bool
    usage_asked: bool  # stream_options.include_usage
    usage_continuous: bool  # stream_options.continuous_usage_stats
    options_written: bool  # there is a stream_options, if only a null
    max_tokens: int | None  # the newer name wins
    choices: int  # n


class BadAsk(msgspec.Struct, frozen=True):
    """Why a body is no request: what was wrong, and in which parameter."""

    message: str
    param: str | None = None


class Usage(msgspec.Struct, frozen=True):
    """Token figures of one answer; cached ones are part of the prompt's."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None


class _StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


_NULL: Final = msgspec.Raw(b"null")


class _Body(msgspec.Struct, frozen=True):
    model: str | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | msgspec.UnsetType | None = msgspec.UNSET
    # Read leniently: whether a figure is acceptable is the engine's to say.
    max_tokens: msgspec.Raw = _NULL
    max_completion_tokens: msgspec.Raw = _NULL
    n: msgspec.Raw = _NULL


_BODY: Final = msgspec.json.Decoder(_Body)
_WHERE = re.compile(r" - at `\$\.?([^`]*)`$")


def parse_ask(body: bytes, *, streams: bool = True) -> Ask | BadAsk:
    """What a body asks for; `streams`: whether its route can stream at all. Never raises."""
    try:
        read = _BODY.decode(body)
    except msgspec.ValidationError as error:
        return _wrong_value(str(error))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return BadAsk(f"The body is not valid JSON: {error}" if body.strip() else "The body is empty.")
    except RecursionError:
        return BadAsk("The body is nested too deeply.")
    if not read.model:
        return BadAsk('The body names no model: add "model".', "model")
    if len(read.model) > MODEL_NAME_MAX:
        return BadAsk(f"The model's name is longer than {MODEL_NAME_MAX} characters.", "model")
    written = read.stream_options is not msgspec.UNSET
    options = read.stream_options or _StreamOptions()
    limit = _whole(read.max_completion_tokens)
    return Ask(
        model=read.model,
        stream=streams and bool(read.stream),
        usage_asked=bool(options.include_usage),
        usage_continuous=bool(options.continuous_usage_stats),
        options_written=written,
        max_tokens=_whole(read.max_tokens) if limit is None else limit,
        choices=_whole(read.n) or 1,
    )


def _wrong_value(error: str) -> BadAsk:
    found = _WHERE.search(error)
    if found is None or not found[1]:
        return BadAsk(f"The body must be a JSON object: {_WHERE.sub('', error)}.")
    return BadAsk(f"{found[1]}: {error[: found.start()]}.", found[1])


def _whole(raw: msgspec.Raw) -> int | None:
    if raw is _NULL:  # not written, which is the usual case
        return None
    text = bytes(raw)
    return int(text) if text.isdigit() and len(text) < 18 else None


def body_for_engine(body: bytes, ask: Ask, model: str) -> bytes:
    """The body as the engine gets it: its own name for the model, and usage in every stream (G6)."""
    if model != ask.model:
        span = jsonspan.find_member(body, "model")
        assert span is not None, "an ask has a model"
        body = jsonspan.replaced(body, span, msgspec.json.encode(model))
    if ask.stream and not ask.usage_asked:
        # Most clients name no stream_options; they are spared the walk, and a large body a long search.
        asking = b'{"include_usage":true}'
        body = (
            _with_usage(body) if ask.options_written else jsonspan.with_member(body, "stream_options", asking)
        )
    return body


def _with_usage(body: bytes) -> bytes:
    options = jsonspan.find_member(body, "stream_options")
    assert options is not None, "it was read"
    if body[options.start : options.start + 1] != b"{":
        return jsonspan.replaced(body, options, b'{"include_usage":true}')
    include = jsonspan.find_member(body, "include_usage", options.start)
    if include is None:
        return jsonspan.with_member(body, "include_usage", b"true", options.start)
    return jsonspan.replaced(body, include, b"true")


# ---------------------------------------------------------------- what answers say


class _Details(msgspec.Struct, frozen=True):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _Choice(msgspec.Struct, frozen=True):
    finish_reason: str | None = None


class _Answer(msgspec.Struct, frozen=True):
    model: str | None = None
    usage: _Usage | None = None
    choices: tuple[_Choice, ...] | None = None
    error: msgspec.Raw = _NULL


class Answer(msgspec.Struct, frozen=True):
    """What the gateway must know of an answer, whole or one event of a stream."""

    model: str | None
    usage: Usage | None
    choices: int | None  # None: the answer has no list of choices
    aborted: bool  # the engine gave up on a choice (`finish_reason: "abort"`)
    error: bool  # a top-level `error` that is not null, false or empty


_ANSWER: Final = msgspec.json.Decoder(_Answer)
_FALSY: Final = frozenset({b"null", b"false", b"0", b'""', b"{}", b"[]"})


def parse_answer(body: bytes) -> Answer | None:
    """What an answer says; `None` when it is not a JSON object of the expected types."""
    try:
        read = _ANSWER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return Answer(
        model=read.model,
        usage=_usage(read.usage),
        choices=None if read.choices is None else len(read.choices),
        aborted=any(choice.finish_reason == "abort" for choice in read.choices or ()),
        error=bytes(read.error) not in _FALSY,
    )


def usage_in(body: bytes) -> Usage | None:
    """The usage in the last bytes of a long answer of which only the end was kept."""
    at = body.rfind(b'"usage"')
    found = re.compile(rb'"usage"\s*:\s*\{').match(body, at) if at >= 0 else None
    if found is None:
        return None
    try:
        spans = dict(jsonspan.members(body, found.end() - 1))
        end = max((span.end for span in spans.values()), default=found.end())
        close = body.index(b"}", end) + 1
        return _usage(msgspec.json.decode(body[found.end() - 1 : close], type=_Usage))
    except (jsonspan.NotAnObject, msgspec.DecodeError, UnicodeDecodeError, ValueError):
        return None


def _usage(read: _Usage | None) -> Usage | None:
    if read is None:
        return None
    cached = read.prompt_tokens_details.cached_tokens if read.prompt_tokens_details else None
    return Usage(read.prompt_tokens, read.completion_tokens, cached)


# ---------------------------------------------------------------- what engines say of mistakes


class EngineError(msgspec.Struct, frozen=True):
    """An engine's error body in one shape, whichever engine wrote it."""

    message: str
    type: str | None = None
    code: str | None = None
    param: str | None = None
    status: int | None = None  # where it says so itself; an error inside a stream has no other


class _ErrorFields(msgspec.Struct, frozen=True):
    message: str | None = None
    type: str | None = None
    code: str | int | None = None
    param: str | None = None


class _Nested(msgspec.Struct, frozen=True):
    error: _ErrorFields | str | None = None
    message: str | None = None
    type: str | None = None
    code: str | int | None = None
    param: str | None = None
    detail: str | None = None


ENGINE_MESSAGE_MAX = 2000  # characters relayed; an engine may quote the whole prompt


def parse_engine_error(body: bytes) -> EngineError | None:
    """The error in an engine's body: nested, flat, or FastAPI's `detail`; `None` when there is none."""
    try:
        read = msgspec.json.decode(body, type=_Nested)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if isinstance(read.error, str):
        return EngineError(read.error[:ENGINE_MESSAGE_MAX])
    fields = read.error or _ErrorFields(read.message or read.detail, read.type, read.code, read.param)
    if not fields.message:
        return None
    # An integer code repeats the status; a client branches on strings.
    text = str(fields.code or "")
    status = int(text) if text.isdigit() and len(text) == 3 else None
    code = None if text.isdigit() else text or None
    return EngineError(fields.message[:ENGINE_MESSAGE_MAX], fields.type, code, fields.param, status)
