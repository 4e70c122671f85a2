"""Decides the closed list of reasons for which a client's request is refused or fails (G4).

Laws: a refusal is a value made where it was decided, with a message one can act on; how it looks on
the wire (status, type, headers) is decided in `wire.errors` alone; no message ever holds a key.
"""

from enum import Enum

import msgspec


class Code(Enum):
    """The stable `code` of an error; what programs branch on."""

    INVALID_API_KEY = "invalid_api_key"
    PERMISSION_DENIED = "permission_denied"
    MODEL_NOT_FOUND = "model_not_found"
    INVALID_REQUEST = "invalid_request"
    UNSUPPORTED = "unsupported_parameter"
    CONTEXT_EXCEEDED = "context_length_exceeded"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    BODY_TOO_LARGE = "body_too_large"
    BODY_TOO_SLOW = "body_too_slow"
    MODEL_LOADING = "model_loading"
    MODEL_OFF = "model_off"
    NO_ENDPOINT = "no_endpoint"
    OVERLOADED = "server_is_overloaded"
    UPSTREAM_ERROR = "upstream_error"
    UPSTREAM_TIMEOUT = "upstream_timeout"
    INTERNAL_ERROR = "internal_error"


class EngineWords(msgspec.Struct, frozen=True):
    """What an engine said of a request that is the client's own mistake; relayed in our shape."""

    status: int
    type: str | None = None
    code: str | None = None


class Refuse(msgspec.Struct, frozen=True):
    """Why a request gets no answer; `message` is for the person, `retry_after_s` whole seconds (1-60)."""

    code: Code
    message: str
    param: str | None = None
    retry_after_s: int | None = None
    engine: EngineWords | None = None
