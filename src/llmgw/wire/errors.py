"""Decides how a refusal looks to a client of the OpenAI endpoints: status, type, headers, body (G4).

Laws: one table, one row a code, every code has its row; the body is always
`{"error": {"message", "type", "param", "code"}}` with a string `code`; what a client library would
retry in vain says `x-should-retry: false`. The reference page of errors is made from this table.
"""

from typing import Final

import msgspec

from llmgw.core.refusal import Code, Refuse

Headers = tuple[tuple[bytes, bytes], ...]

# A client gives up after about 3.5 s without Retry-After and ignores one above 120 s.
RETRY_AFTER_MIN_S = 1
RETRY_AFTER_MAX_S = 60

_JSON = (b"content-type", b"application/json")
_NO_RETRY = (b"x-should-retry", b"false")


class Shape(msgspec.Struct, frozen=True):
    """How one code is sent, and what it means for the reference page."""

    status: int
    type: str
    meaning: str
    headers: Headers = ()
    retry_after_s: int | None = None  # sent when the refusal knows no better


ERRORS: Final[dict[Code, Shape]] = {
    Code.INVALID_API_KEY: Shape(
        401,
        "invalid_request_error",
        "No API key, or one that is unknown, expired or disabled.",
        ((b"www-authenticate", b"Bearer"),),
    ),
    Code.PERMISSION_DENIED: Shape(403, "invalid_request_error", "The key may not use this model."),
    Code.MODEL_NOT_FOUND: Shape(
        404, "invalid_request_error", "No model or alias has this name; names that are close are listed."
    ),
    Code.INVALID_REQUEST: Shape(
        400,
        "invalid_request_error",
        "The request cannot be read, or the engine refused it: then with the engine's status, type, code.",
    ),
    Code.UNSUPPORTED: Shape(
        400,
        "invalid_request_error",
        "The request needs what the model does not have; the message names both.",
    ),
    Code.CONTEXT_EXCEEDED: Shape(
        400,
        "invalid_request_error",
        "The conversation is longer than the model's context; the message says by how much.",
    ),
    Code.NOT_FOUND: Shape(404, "invalid_request_error", "There is no such address."),
    Code.METHOD_NOT_ALLOWED: Shape(405, "invalid_request_error", "The address exists for another method."),
    Code.BODY_TOO_LARGE: Shape(
        413, "invalid_request_error", "The body is larger than `clients.max_body_mb`."
    ),
    Code.BODY_TOO_SLOW: Shape(408, "invalid_request_error", "The body came too slowly."),
    Code.MODEL_LOADING: Shape(
        503, "server_error", "A replica of the model is starting; ask again.", retry_after_s=5
    ),
    Code.MODEL_OFF: Shape(503, "server_error", "The model is switched off.", (_NO_RETRY,)),
    Code.NO_ENDPOINT: Shape(
        503, "server_error", "The model is known, but nothing can serve it now.", retry_after_s=10
    ),
    Code.OVERLOADED: Shape(503, "server_error", "Every replica is busy; ask again.", retry_after_s=2),
    Code.UPSTREAM_ERROR: Shape(502, "server_error", "The engine failed, or its answer could not be used."),
    Code.UPSTREAM_TIMEOUT: Shape(504, "server_error", "The engine did not answer in time."),
    Code.INTERNAL_ERROR: Shape(500, "server_error", "A fault of the gateway itself; its log says which."),
}


class ErrorResponse(msgspec.Struct, frozen=True):
    """A refusal as it is sent before any other byte."""

    status: int
    headers: Headers
    body: bytes


class _Error(msgspec.Struct, frozen=True):
    message: str
    type: str
    param: str | None
    code: str


class _Body(msgspec.Struct, frozen=True):
    error: _Error


def status_of(refuse: Refuse) -> int:
    """The HTTP status of a refusal."""
    return refuse.engine.status if refuse.engine else ERRORS[refuse.code].status


def code_of(refuse: Refuse) -> str:
    """The `code` a client reads."""
    return (refuse.engine and refuse.engine.code) or refuse.code.value


def error_response(refuse: Refuse) -> ErrorResponse:
    """The whole answer for a refusal."""
    shape = ERRORS[refuse.code]
    headers: list[tuple[bytes, bytes]] = [_JSON, *shape.headers]
    wait_s = refuse.retry_after_s if refuse.retry_after_s is not None else shape.retry_after_s
    if wait_s is not None and _NO_RETRY not in shape.headers:
        bounded = min(max(wait_s, RETRY_AFTER_MIN_S), RETRY_AFTER_MAX_S)
        headers.append((b"retry-after", b"%d" % bounded))
    return ErrorResponse(status_of(refuse), tuple(headers), error_body(refuse))


def error_body(refuse: Refuse) -> bytes:
    """The JSON of a refusal."""
    shape = ERRORS[refuse.code]
    kind = (refuse.engine and refuse.engine.type) or shape.type
    return msgspec.json.encode(_Body(_Error(refuse.message, kind, refuse.param, code_of(refuse))))


def error_frame(refuse: Refuse) -> bytes:
    """The event that ends a stream that failed after it began; no `[DONE]` follows."""
    return b"data: " + error_body(refuse) + b"\n\n"
