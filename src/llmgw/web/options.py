"""Decides what the admin listener's application is told by the one that starts it."""

import msgspec

from llmgw.ports import Clock


class AdminOptions(msgspec.Struct, frozen=True):
    """Settings of the admin application.

    `listen` is the address it is reached at (`host:port`); `hosts` are further names it may be asked by.
    `token` is the admin token (S2), `token_path` where a person on this machine finds it.
    """

    token: str
    listen: str
    clock: Clock
    hosts: tuple[str, ...] = ()
    token_path: str | None = None
    secure: bool = False  # reached by TLS: cookies are then sent by TLS only
