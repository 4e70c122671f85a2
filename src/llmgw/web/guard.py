"""Decides which requests to the admin listener go on: known name, bounded body, known caller (N0, S2).

Laws: nothing but `/healthz` and the login form is answered without the token; a request that a
browser authenticated by itself (a cookie) changes nothing without the token of our own form; every
request passes here before any route is looked at, so that a forgotten check is not possible.
"""

import urllib.parse

import msgspec
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from llmgw.web.answers import problem, redirect
from llmgw.web.hosts import Hosts
from llmgw.web.options import AdminOptions
from llmgw.web.session import Sessions

BODY_MAX = 1024 * 1024  # a model's definition is a few KB
KEYLESS = "/healthz"
LOGIN = "/login"
CALLER = "llmgw.caller"  # where routes find who asks, in the scope
FORM_FIELD = "form_token"
FORM_HEADER = b"x-form-token"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class Caller(msgspec.Struct, frozen=True):
    """Who asks, for events and forms. `cookie` is set for browsers."""

    actor: str
    cookie: str = ""


class _TooLarge(Exception):
    """The body is longer than `BODY_MAX`."""


class Guard:
    """ASGI middleware in front of the admin application."""

    def __init__(self, app: ASGIApp, options: AdminOptions, sessions: Sessions) -> None:
        self._app = app
        self._options = options
        self._sessions = sessions
        self._hosts = Hosts(options.listen, options.hosts)
        self._cookie_name = cookie_name(options)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # there are no WebSockets here
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["path"] == KEYLESS:
            await self._app(scope, receive, send)
            return
        names = _headers(scope, b"host")
        if len(names) != 1 or not self._hosts.accepts(names[0].decode("latin-1")):
            await self._refuse_host(names)(scope, receive, send)
            return
        await self._admit(scope, receive, send)

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = self._caller(scope)
        if caller is None and scope["path"] != LOGIN:
            await self._refuse_caller(scope)(scope, receive, send)
            return
        if scope["method"] not in SAFE_METHODS:
            try:
                body = await _whole_body(receive)
            except _TooLarge:
                text = f"the body is longer than {BODY_MAX} bytes"
                await problem(413, "body_too_large", text, {"connection": "close"})(scope, receive, send)
                return
            if caller is not None and caller.cookie and not self._from_our_form(scope, body, caller.cookie):
                text = f"a request with a session cookie needs the page's form token ({FORM_FIELD})"
                await problem(403, "form_token_missing", text)(scope, receive, send)
                return
            receive = _Replayed(body, receive)
        scope[CALLER] = caller
        await self._app(scope, receive, send)

    def _caller(self, scope: Scope) -> Caller | None:
        for value in _headers(scope, b"authorization"):
            scheme, _, token = value.partition(b" ")
            if scheme.lower() == b"bearer" and self._sessions.is_token(token.strip()):
                return Caller("token")
            return None  # a wrong token is not saved by a right cookie
        for value in _headers(scope, b"cookie"):
            cookie = cookie_parser(value.decode("latin-1")).get(self._cookie_name, "")
            if cookie and self._sessions.is_session(cookie, self._options.clock.now()):
                return Caller("page", cookie)
        return None

    def _from_our_form(self, scope: Scope, body: bytes, cookie: str) -> bool:
        given = [value.decode("latin-1") for value in _headers(scope, FORM_HEADER)]
        kind = b"".join(_headers(scope, b"content-type"))
        if kind.partition(b";")[0].strip() == b"application/x-www-form-urlencoded":
            given += urllib.parse.parse_qs(body.decode("latin-1")).get(FORM_FIELD, [])
        return len(given) == 1 and self._sessions.is_form_token(given[0], cookie)

    def _refuse_host(self, names: list[bytes]) -> ASGIApp:
        asked = b", ".join(names).decode("latin-1") or "none"
        text = f"this listener is not known by the host name {asked!r}; write the name in admin.hosts"
        return problem(421, "unknown_host", text)

    def _refuse_caller(self, scope: Scope) -> ASGIApp:
        wants_page = any(b"text/html" in value for value in _headers(scope, b"accept"))
        if wants_page and scope["method"] in SAFE_METHODS and not scope["path"].startswith("/api/"):
            return redirect(LOGIN)
        text = "needs the admin token: `Authorization: Bearer TOKEN`"
        if _headers(scope, b"authorization"):
            text = "what was given in Authorization is not this server's admin token as `Bearer TOKEN`"
        if self._options.token_path:
            text += f"; it is in {self._options.token_path} on the server's machine"
        return problem(401, "token_needed", text, {"www-authenticate": 'Bearer realm="llmgw admin"'})


def cookie_name(options: AdminOptions) -> str:
    """The session cookie's name: with the port, as browsers share cookies between ports of a host."""
    return f"llmgw_admin_{options.listen.rpartition(':')[2]}"


def _headers(scope: Scope, name: bytes) -> list[bytes]:
    return [value for key, value in scope["headers"] if key == name]


async def _whole_body(receive: Receive) -> bytes:
    body = bytearray()
    more = True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            break
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > BODY_MAX:
            raise _TooLarge
    return bytes(body)


class _Replayed:
    """`receive` for the application: the body that was read, then what comes after it."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}
