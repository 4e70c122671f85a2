"""Decides what a router process is told when it is started, and the file that tells it.

Laws: the file holds no secret; its bytes' hash is the identity of the settings, by which a starting
server knows whether a running router may be kept (G17); unknown keys are refused, because a router
that ignored one would run with settings nobody asked for.
"""

import hashlib

import msgspec

from llmgw.core import defaults
from llmgw.core.breaker import Limits
from llmgw.ports import HttpTimeouts


class BadRouterSettings(Exception):
    """The settings file cannot be used; the text is one line that says what is wrong in it."""


class RouterSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What one router process runs with; the same file for every child of a server.

    `listen` is `host:port` of the client listener, `watch` the address of the control plane's watch
    stream (`unix:/path` or `host:port`); durations in seconds.
    """

    watch: str
    listen: str = defaults.CLIENT_LISTEN
    timeouts: HttpTimeouts = HttpTimeouts(
        connect=defaults.CONNECT_TIMEOUT_S,
        first_byte=defaults.FIRST_BYTE_TIMEOUT_S,
        idle=defaults.IDLE_BYTE_TIMEOUT_S,
        total=defaults.TOTAL_TIMEOUT_S,
    )
    max_body_mb: int = defaults.MAX_BODY_MB
    drain_s: float = defaults.ROUTER_DRAIN_S
    tick_s: float = defaults.TICK_S
    usage_flush_s: float = defaults.USAGE_FLUSH_S
    retries: int = defaults.RETRIES
    retry_budget: float = defaults.RETRY_BUDGET
    breaker: Limits = Limits()
    chat: bool = True  # serve the `/chat` page


def dump(settings: RouterSettings) -> bytes:
    """The bytes of the settings file; equal settings give equal bytes."""
    return msgspec.json.format(msgspec.json.encode(settings), indent=2) + b"\n"


def load(data: bytes) -> RouterSettings:
    """The settings in a file's bytes. Raises `BadRouterSettings`."""
    try:
        return msgspec.json.decode(data, type=RouterSettings)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRouterSettings(str(error)) from error


def settings_hash(data: bytes) -> str:
    """Identity of the settings: SHA-256 of the file's bytes, in hex."""
    return hashlib.sha256(data).hexdigest()
