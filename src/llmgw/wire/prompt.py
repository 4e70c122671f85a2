"""Decides how long the prompt of a request is, roughly, and what it needs of a model (G5).

Laws: sizes are those of the decoded text, so that neither escapes nor base64 count; what cannot be read
counts nothing, because the engine judges it anyway; several prompts in one request are as long as the
longest, because each has the context to itself.
"""

import re
from collections.abc import Iterator
from typing import Any, Final, TypeVar

import msgspec

from llmgw.wire.openai import EngineError

T = TypeVar("T")

BYTES_A_TOKEN: Final = 4  # about; of any language's text in UTF-8
IMAGE_TOKENS: Final = 500  # about; engines spend from some 250 to several thousand on one
_IMAGES: Final = frozenset({"image_url", "input_image", "image"})
_AUDIO: Final = frozenset({"input_audio", "audio_url"})


class Prompt(msgspec.Struct, frozen=True):
    """What a model has to read for one answer."""

    text: str = ""
    images: int = 0
    token_ids: int = 0  # where the client sent tokens itself

    def tokens(self) -> int:
        """About how many tokens that is."""
        size = len(self.text.encode("utf-8", "surrogatepass"))
        return -(-size // BYTES_A_TOKEN) + self.images * IMAGE_TOKENS + self.token_ids


class Need(msgspec.Struct, frozen=True):
    """A capability that a request cannot do without, and the parameter that says so."""

    capability: str
    param: str


class _Body(msgspec.Struct, frozen=True):
    messages: Any = None
    prompt: Any = None
    input: Any = None
    tools: Any = None
    functions: Any = None


class _Asked(msgspec.Struct, frozen=True):
    tools: Any = None
    functions: Any = None
    response_format: Any = None
    reasoning_effort: Any = None


class _Messages(msgspec.Struct, frozen=True):
    messages: Any = None


def most_tokens(body: bytes) -> int:
    """A quick bound: no prompt in this body is estimated at more tokens."""
    images = body.count(b"image") * IMAGE_TOKENS if b"image" in body else 0
    return len(body) // BYTES_A_TOKEN + 1 + images


def prompt_of(body: bytes) -> Prompt:
    """The prompt in a body that `parse_ask` has read; the longest where there are several."""
    read = _decoded(body, _Body)
    if read is None:
        return Prompt()
    if read.messages is not None:
        texts = list(_texts(read.messages))
        texts += [_as_json(one) for one in (read.tools, read.functions) if one]
        return Prompt("\n".join(texts), sum(1 for kind in _kinds(read.messages) if kind in _IMAGES))
    return _longest(read.prompt if read.prompt is not None else read.input)


def needs_of(body: bytes) -> tuple[Need, ...]:
    """What the request needs beside its route."""
    read = _decoded(body, _Asked)
    if read is None:
        return ()
    found = []
    for param, value in (("tools", read.tools), ("functions", read.functions)):
        if value:
            found.append(Need("tools", param))
    if isinstance(read.response_format, dict) and read.response_format.get("type") == "json_schema":
        found.append(Need("json_schema", "response_format"))
    if read.reasoning_effort not in (None, "none"):
        found.append(Need("reasoning", "reasoning_effort"))
    if b"image" in body or b"audio" in body:
        messages = _decoded(body, _Messages)
        kinds = set(_kinds(messages.messages)) if messages is not None else set()
        found += [Need("vision", "messages")] if kinds & _IMAGES else []
        found += [Need("audio", "messages")] if kinds & _AUDIO else []
    return tuple(found)


def _decoded(body: bytes, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _parts(messages: Any) -> Iterator[Any]:
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list):
            yield from content
        elif isinstance(content, str):
            yield content


def _kinds(messages: Any) -> Iterator[str]:
    """The types of all content parts."""
    for part in _parts(messages):
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(kind, str):
            yield kind


def _texts(messages: Any) -> Iterator[str]:
    for part in _parts(messages):
        text = part.get("text") if isinstance(part, dict) else part
        if isinstance(text, str):
            yield text
    for message in messages if isinstance(messages, list) else ():
        calls = message.get("tool_calls") if isinstance(message, dict) else None
        for call in calls if isinstance(calls, list) else ():
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict):
                yield from (value for value in function.values() if isinstance(value, str))


def _longest(prompt: Any) -> Prompt:
    """Of text, token ids, or a list of either."""
    if isinstance(prompt, str):
        return Prompt(prompt)
    if not isinstance(prompt, list) or not prompt:
        return Prompt()
    if all(isinstance(one, int) for one in prompt):
        return Prompt(token_ids=len(prompt))
    return max((_one(one) for one in prompt), key=Prompt.tokens)


def _one(prompt: Any) -> Prompt:
    if isinstance(prompt, str):
        return Prompt(prompt)
    return Prompt(token_ids=len(prompt)) if isinstance(prompt, list) else Prompt()


def _as_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


# ---------------------------------------------------------------- asking an engine

# Where each engine's `/tokenize` takes text.
_TOKENIZE: Final = {"llama.cpp": "content", "vllm": "prompt"}


class _Tokenized(msgspec.Struct, frozen=True):
    tokens: list[int] | None = None
    count: int | None = None


def tokenize_body(engine: str, model: str, text: str) -> bytes | None:
    """What `/tokenize` of an engine is asked with; `None` for one that is not known to have it."""
    field = _TOKENIZE.get(engine)
    return None if field is None else msgspec.json.encode({"model": model, field: text})


def tokenized(body: bytes) -> int | None:
    """How many tokens an engine's `/tokenize` found."""
    read = _decoded(body, _Tokenized)
    if read is None:
        return None
    return read.count if read.count is not None else None if read.tokens is None else len(read.tokens)


# ---------------------------------------------------------------- what engines say of too long a prompt

_OVERFLOWS: Final = (
    re.compile(r"request \((?P<counted>\d+) tokens\) exceeds the available context size \((?P<allowed>\d+)"),
    re.compile(r"input \((?P<counted>\d+) tokens\) is too large.*batch size: (?P<allowed>\d+)"),
    re.compile(r"maximum context length is (?P<allowed>\d+) tokens.*?(?P<counted>\d+) (?:input )?tokens"),
    re.compile(r"\((?P<counted>\d+) tokens\) is longer than the model's context length \((?P<allowed>\d+)"),
)  # fmt: skip
_OVERFLOW_TYPES: Final = frozenset({"exceed_context_size_error", "context_length_exceeded"})


class Overflow(msgspec.Struct, frozen=True):
    """An engine refused a prompt as too long; its figures, where it told them."""

    counted: int | None = None
    allowed: int | None = None


def overflow_in(error: EngineError) -> Overflow | None:
    """Whether an engine's error says that the prompt is too long, in whichever words."""
    for words in _OVERFLOWS:
        found = words.search(error.message)
        if found is not None:
            return Overflow(int(found["counted"]), int(found["allowed"]))
    return Overflow() if {error.type, error.code} & _OVERFLOW_TYPES else None
