"""Makes every answer of the admin listener: JSON, problems, pages, redirects, with their security headers.

Laws: every refusal is the JSON of `wire.admin_v1.ProblemBody`; no answer may be framed, sniffed, cached or
read by another origin (S2); there are no CORS headers.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from starlette.responses import Response

from llmgw.wire.admin_v1 import Problem, ProblemBody

NOTHING_LOADED = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

SECURITY_HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": NOTHING_LOADED,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def json_answer(value: object, status: int = 200, headers: Mapping[str, str] = {}) -> Response:
    """A value of the admin API as JSON."""
    body = msgspec.json.encode(value)
    return Response(body, status, {**SECURITY_HEADERS, **headers}, "application/json")


def problem(status: int, code: str, message: str, headers: Mapping[str, str] = {}) -> Response:
    """A refusal: `code` for programs, one line for a person."""
    return json_answer(ProblemBody(Problem(code, message)), status, headers)


def text_answer(text: str, status: int = 200) -> Response:
    """A short plain text."""
    return Response(text, status, dict(SECURITY_HEADERS), "text/plain; charset=utf-8")


def page(html: str, policy: str, status: int = 200) -> Response:
    """An HTML page with its content security policy."""
    headers = {**SECURITY_HEADERS, "content-security-policy": policy}
    return Response(html, status, headers, "text/html; charset=utf-8")


def redirect(path: str) -> Response:
    """Send the browser to another page of ours (GET)."""
    return Response(b"", 303, {**SECURITY_HEADERS, "location": path})
