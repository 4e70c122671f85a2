"""Decides what a browser gets from the client listener: the landing page, the chat page, their assets (G3).

Laws: pages hold no data; nothing is loaded from elsewhere, and the policy header says so; an asset is
known by its full name; the address shown is display only, and never used for a decision.
"""

import html
import importlib.resources
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from llmgw.core.refusal import Code, Refuse
from llmgw.gateway.call import Call
from llmgw.gateway.state import Header
from llmgw.ports import RequestHead

# Path of each asset: its file below assets/, and its type.
ASSETS: Final[Mapping[str, tuple[str, bytes]]] = {
    "/assets/page.css": ("page.css", b"text/css; charset=utf-8"),
    "/assets/chat.css": ("chat.css", b"text/css; charset=utf-8"),
    "/assets/chat.js": ("chat.js", b"text/javascript; charset=utf-8"),
    "/assets/landing.js": ("landing.js", b"text/javascript; charset=utf-8"),
    "/assets/icon.svg": ("icon.svg", b"image/svg+xml"),
}

_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_COMMON: tuple[Header, ...] = (
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-cache"),
)
_HTML: Header = (b"content-type", b"text/html; charset=utf-8")
_AUTHORITY = re.compile(rb"[A-Za-z0-9._-]{1,253}(?::[0-9]{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](?::[0-9]{1,5})?")


CHAT_LINK = re.compile(r'<p class="actions">.*?</p>\n', re.DOTALL)


class Files(msgspec.Struct, frozen=True):
    """The pages as they are packaged."""

    landing: str
    chat: bytes
    assets: Mapping[str, bytes]  # by path


def read_files() -> Files:
    """Read what is packaged; done once, at the start."""
    folder = importlib.resources.files("llmgw.gateway") / "assets"
    return Files(
        landing=(folder / "landing.html").read_text(encoding="utf-8"),
        chat=(folder / "chat.html").read_bytes(),
        assets={path: (folder / name).read_bytes() for path, (name, _) in ASSETS.items()},
    )


class Pages:
    """The handlers of the pages."""

    def __init__(self, files: Files, *, chat: bool) -> None:
        """`chat`: whether the chat page is served at all."""
        self._files = files
        self._chat = chat
        self._landing = files.landing if chat else CHAT_LINK.sub("", files.landing)

    async def landing(self, call: Call) -> None:
        """How to connect, with the address this browser used."""
        base = html.escape(shown_address(call.exchange.head))
        call.respond(200, (_HTML, *_COMMON), self._landing.replace("{{base}}", base).encode())

    async def chat(self, call: Call) -> None:
        """The chat page; it asks for a key before anything else."""
        if not self._chat:
            call.refuse(Refuse(Code.NOT_FOUND, "The chat page is switched off here."))
            return
        call.respond(200, (_HTML, *_COMMON), self._files.chat)

    async def asset(self, call: Call) -> None:
        """One embedded file; `argument` is its path."""
        _, kind = ASSETS[call.argument]
        call.respond(200, ((b"content-type", kind), *_COMMON), self._files.assets[call.argument])


def shown_address(head: RequestHead) -> str:
    """The address the client used, as it or a proxy says; for display only."""
    told = head.header(b"x-forwarded-host") or head.header(b"host") or b""
    authority = told.split(b",")[0].strip()
    if _AUTHORITY.fullmatch(authority) is None:
        authority = b"localhost"
    scheme = (head.header(b"x-forwarded-proto") or b"http").split(b",")[0].strip().lower()
    return f"{'https' if scheme == b'https' else 'http'}://{authority.decode()}"
