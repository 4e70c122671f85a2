"""Streams an engine's log lines as plain text until they end or the reader goes.

Laws: the follower is closed whichever way it ends; control characters do not pass (S2); a stream that
broke is not ended as a whole one.
"""

import asyncio

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from llmgw.aio.tasks import Tasks
from llmgw.core.text import printable
from llmgw.ports import LogFollower
from llmgw.web.answers import SECURITY_HEADERS


class LogAnswer(Response):
    """The lines of `follower`, one a line."""

    def __init__(self, follower: LogFollower) -> None:
        headers = {**SECURITY_HEADERS, "x-accel-buffering": "no"}
        super().__init__(b"", 200, headers, "text/plain; charset=utf-8")
        del self.headers["content-length"]  # streamed
        self._follower = follower

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with Tasks() as tasks:
                pumped = tasks.start(self._pump(send), name="log lines to an operator")
                gone = tasks.start(_gone(receive), name="watch for the operator leaving")
                await asyncio.wait({pumped, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await self._follower.aclose()

    async def _pump(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async for line in self._follower:
            data = printable(line.rstrip("\r\n")).encode("utf-8", "replace") + b"\n"
            await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
