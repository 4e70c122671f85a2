"""Says no to what is not a request we can serve, in the shape the API's clients read (G4).

Laws: the message says what was wrong with the request; nothing of the request is echoed (it may be
an attack or hold a key); the renderer is replaceable, its default is OpenAI's error object.
"""

import uuid
from collections.abc import Callable

import msgspec

from llmgw.ports import HeaderList


class Refusal(msgspec.Struct, frozen=True):
    """Why the listener answers by itself; `code` is stable, `message` is for a person."""

    status: int
    code: str
    message: str
    type: str = "invalid_request_error"


RefusalRenderer = Callable[[Refusal], tuple[HeaderList, bytes]]


def bad_request(message: str) -> Refusal:
    """A request that is not proper HTTP."""
    return Refusal(400, "malformed_request", message)


def openai_refusal(refusal: Refusal) -> tuple[HeaderList, bytes]:
    """OpenAI's error object, with a fresh request id."""
    error = {"message": refusal.message, "type": refusal.type, "param": None, "code": refusal.code}
    headers = [(b"content-type", b"application/json"), (b"x-request-id", b"req-" + uuid.uuid4().hex.encode())]
    if refusal.status == 503:
        headers.append((b"retry-after", b"1"))
    return headers, msgspec.json.encode({"error": error})


HEAD_TOO_LARGE = Refusal(
    431, "headers_too_large", "The request's headers are larger than this server accepts."
)
HEAD_TOO_SLOW = Refusal(408, "request_timeout", "The request's headers did not arrive in time.")
TOO_MANY_CONNECTIONS = Refusal(
    503, "server_is_overloaded", "Too many open connections; try again in a moment.", "server_error"
)
HANDLER_FAILED = Refusal(
    500, "internal_error", "The gateway failed on this request; its log says why.", "server_error"
)
