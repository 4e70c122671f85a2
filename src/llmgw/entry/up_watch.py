"""Asks the admin API how far the start of `llmgw up` has come, until models serve.

Law: nothing but the API is asked, so that what is said is what `llmgw ctl` would say.
"""

import asyncio
from pathlib import Path
from typing import TypeVar

import msgspec

from llmgw.entry.up_progress import Progress, progress, same_trouble
from llmgw.entry.up_screen import Screen
from llmgw.net.http1.pool import UpstreamPool
from llmgw.ports import HttpTimeouts, Upstream, UpstreamBroke, UpstreamRequest
from llmgw.wire.admin_v1 import ReplicaRow, Status

T = TypeVar("T")

POLL_S = 0.25
TROUBLED_POLL_S = 1.0  # nothing is about to happen within a quarter of a second
ANSWER_MAX = 64 * 1024 * 1024
TIMEOUTS = HttpTimeouts(connect=1.0, first_byte=5.0, idle=5.0, total=5.0)


class Fleet:
    """The admin API at `address`, with the token in a file the server makes."""

    def __init__(self, upstream: Upstream, address: str, token_path: Path) -> None:
        self._upstream = upstream
        host, _, port = address.rpartition(":")
        self._host = {"0.0.0.0": "127.0.0.1", "[::]": "::1"}.get(host, host.strip("[]"))
        self._port = int(port)
        self._token_path = token_path

    async def look(self) -> Progress:
        """How far it is now."""
        status = await self._get("status", Status)
        replicas = await self._get("replicas", list[ReplicaRow]) if status is not None else None
        return progress(status, replicas or ())

    async def _get(self, what: str, kind: type[T]) -> T | None:
        try:
            token = self._token_path.read_text("utf-8").strip()
            headers = ((b"authorization", f"Bearer {token}".encode()),)
            request = UpstreamRequest(
                self._host, self._port, "GET", f"/api/v1/{what}".encode(), headers, b"", TIMEOUTS
            )
            answer = await self._upstream.fetch(request, ANSWER_MAX)
            return msgspec.json.decode(answer.body, type=kind) if answer.status == 200 else None
        except (OSError, UpstreamBroke, msgspec.DecodeError):
            return None  # not there yet, or restarting


async def watch(address: str, token_path: Path, screen: Screen) -> Progress:
    """Show the progress until models serve; the last look."""
    upstream = UpstreamPool()
    fleet = Fleet(upstream, address, token_path)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    said: tuple[str, ...] = ()
    try:
        while True:
            now = await fleet.look()
            for line in now.trouble:
                if not any(same_trouble(line, old) for old in said):
                    screen.say(line)
            said = (*said, *now.trouble)[-100:]  # a reason that comes back is not news
            if now.done:
                screen.end_progress()
                return now
            screen.progress(now.line, loop.time() - begun)
            await asyncio.sleep(TROUBLED_POLL_S if now.trouble else POLL_S)
    finally:
        await upstream.aclose()
