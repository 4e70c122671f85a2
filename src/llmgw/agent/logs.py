"""Answers requests for engines' logs: the last lines, and what follows (A15).

Laws: a request is answered by at least one message, the last of which says so; followers are bounded
and end with the stream; a log that cannot be read is said to be so.
"""

import asyncio

from llmgw.agent.records import log_name
from llmgw.agent.uplink import Uplink
from llmgw.aio.tasks import Tasks
from llmgw.ports import EngineLogs
from llmgw.wire.agent_v1 import LogCancel, LogLines, LogRequest

FOLLOWERS_MAX = 16
LINES_MAX = 10_000  # of one request
LINES_A_MESSAGE = 500


class LogDesk:
    """The log requests of one stream."""

    def __init__(self, logs: EngineLogs, uplink: Uplink, pause_s: float) -> None:
        self._logs = logs
        self._uplink = uplink
        self._pause_s = pause_s
        self._tasks = Tasks()
        self._open: dict[str, asyncio.Task[None]] = {}

    def ask(self, request: LogRequest) -> None:
        """Answer a request, in its own time."""
        if len(self._open) >= FOLLOWERS_MAX:
            text = f"this node answers {FOLLOWERS_MAX} log requests at a time; end one first"
            self._uplink.say(LogLines(request.request_id, error=text))
            return
        self.cancel(LogCancel(request.request_id))
        task = self._tasks.start(self._answer(request), name=f"log of {request.replica}")
        self._open[request.request_id] = task
        task.add_done_callback(lambda _: self._open.pop(request.request_id, None))

    def cancel(self, cancelled: LogCancel) -> None:
        """Stop answering one."""
        task = self._open.pop(cancelled.request_id, None)
        if task is not None:
            task.cancel()

    async def aclose(self) -> None:
        """Stop answering all."""
        await self._tasks.aclose()

    async def _answer(self, request: LogRequest) -> None:
        id = request.request_id
        try:
            await self._send(request)
        except TimeoutError:
            self._uplink.say(LogLines(id, error="the disk with this log does not answer"))
        except OSError as error:
            self._uplink.say(LogLines(id, error=f"cannot read this log: {error.strerror or error}"))

    async def _send(self, request: LogRequest) -> None:
        id, name = request.request_id, log_name(request.replica, request.rank)
        wanted = max(0, min(request.lines, LINES_MAX))
        _, offset = await self._logs.read(name, None)
        lines = await self._logs.tail(name, wanted)
        if not lines and not offset and not request.follow:
            text = f"no engine of {request.replica} rank {request.rank} has written anything on this node"
            self._uplink.say(LogLines(id, error=text))
            return
        for first in range(0, len(lines), LINES_A_MESSAGE):
            self._uplink.say(LogLines(id, lines[first : first + LINES_A_MESSAGE], last=False))
        while request.follow:
            await asyncio.sleep(self._pause_s)
            lines, offset = await self._logs.read(name, offset)
            if lines:
                self._uplink.say(LogLines(id, lines, last=False))
        self._uplink.say(LogLines(id))
