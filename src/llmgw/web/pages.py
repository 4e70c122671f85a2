"""Serves the pages of the admin listener: login, logout, status.

Laws: what a node, model or log says is text, never markup (templates escape, and nothing is marked safe
but our own style and script); a page loads nothing from elsewhere and runs only the script whose hash
its policy names.
"""

import base64
import hashlib
import urllib.parse
from importlib import resources

import jinja2
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from llmgw import __version__
from llmgw.core.text import printable
from llmgw.core.units import format_bytes, format_duration
from llmgw.ports import ClusterAdmin, StoreUnavailable
from llmgw.web.answers import page, redirect
from llmgw.web.guard import CALLER, FORM_FIELD, LOGIN, cookie_name
from llmgw.web.options import AdminOptions
from llmgw.web.session import SESSION_S, Sessions
from llmgw.web.view import StatusView, status_view, tone

EVENTS_SHOWN = 40  # what happened lately; `llmgw ctl events` has the rest


class Pages:
    """The pages of one control plane."""

    def __init__(self, admin: ClusterAdmin, options: AdminOptions, sessions: Sessions) -> None:
        self._admin = admin
        self._options = options
        self._sessions = sessions
        self._style, self._script = _file("page.css"), _file("refresh.js")
        self._environment = _environment()
        self._policy = (
            "default-src 'none'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'; img-src data:; "
            f"connect-src 'self'; style-src {_hash(self._style)}; script-src {_hash(self._script)}"
        )

    def routes(self) -> list[Route]:
        """Where the pages are."""
        return [
            Route("/", self._status),
            Route(LOGIN, self._login_form, methods=["GET"]),
            Route(LOGIN, self._login, methods=["POST"]),
            Route("/logout", self._logout, methods=["POST"]),
        ]

    async def _status(self, request: Request) -> Response:
        view = await self._view()
        cookie = request.scope[CALLER].cookie
        form_token = self._sessions.form_token(cookie) if cookie else ""
        return self._page("status.html", 200, view=view, form_token=form_token)

    async def _view(self) -> StatusView:
        try:
            events = await self._admin.events(EVENTS_SHOWN, None, None)
        except StoreUnavailable:
            events = ()  # the status itself says what is wrong with the store
        return status_view(
            self._admin.status(),
            self._admin.nodes(),
            self._admin.replicas(),
            events,
            self._options.clock.now(),
        )

    async def _login_form(self, request: Request) -> Response:
        if request.scope[CALLER] is not None:
            return redirect("/")
        return self._page("login.html", 200, wrong=False)

    async def _login(self, request: Request) -> Response:
        fields = urllib.parse.parse_qs((await request.body()).decode("latin-1"))
        token = fields.get("token", [""])[0].strip()
        if not self._sessions.is_token(token.encode("latin-1", "replace")):
            return self._page("login.html", 401, wrong=True)
        answer = redirect("/")
        self._set_cookie(answer, self._sessions.cookie(self._options.clock.now()), int(SESSION_S))
        return answer

    async def _logout(self, request: Request) -> Response:
        answer = redirect(LOGIN)
        self._set_cookie(answer, "", 0)
        return answer

    def _set_cookie(self, answer: Response, value: str, age_s: int) -> None:
        answer.set_cookie(
            cookie_name(self._options),
            value,
            max_age=age_s,
            httponly=True,
            samesite="strict",
            secure=self._options.secure,
        )

    def _page(self, template: str, status: int, **values: object) -> Response:
        html = self._environment.get_template(template).render(
            **values,
            version=__version__,
            style=self._style,
            script=self._script,
            form_field=FORM_FIELD,
            token_path=self._options.token_path,
        )
        return page(html, self._policy, status)


def _file(name: str) -> str:
    return resources.files("llmgw.web").joinpath("templates", name).read_text("utf-8")


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _finish(value: object) -> object:
    """What a template prints: nothing unknown as None, nothing that commands a terminal or reorders text."""
    if value is None:
        return "-"
    return printable(value) if type(value) is str else value


def _environment() -> jinja2.Environment:
    names = ("base.html", "login.html", "status.html")
    environment = jinja2.Environment(
        loader=jinja2.DictLoader({name: _file(name) for name in names}),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finish,
    )
    environment.filters["tone"] = tone
    environment.filters["duration"] = format_duration
    environment.filters["bytes"] = format_bytes
    return environment
