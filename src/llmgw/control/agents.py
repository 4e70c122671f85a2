"""Holds the agents' streams: reads what they say into the fleet, writes commands in order.

Laws: the first message is a registration or the stream is refused; commands of one stream keep their
order; a stream whose agent does not read is closed, it never makes the owner wait; the refusal's text
reaches the agent before the stream ends (A2).
"""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable

from llmgw.aio.mailbox import Mailbox, MailboxClosed
from llmgw.aio.tasks import Tasks
from llmgw.control import translate
from llmgw.control.logs import LogChannel
from llmgw.core import happenings as h
from llmgw.ports import MessageStream, StreamClosed
from llmgw.wire import agent_v1
from llmgw.wire.envelope import Unknown

_LOG = logging.getLogger("llmgw.control.agents")

# Commands waiting for one agent; a node runs tens of shards, so more means that it does not read.
OUTBOX_MAX = 1000
FIRST_MESSAGE_S = 10.0  # an agent has its description ready before it dials

Tell = Callable[[h.Event], Awaitable[None]]


class _Link:
    """One agent's stream."""

    def __init__(self, stream: MessageStream) -> None:
        self.stream = stream
        self.outbox: Mailbox[agent_v1.Down] = Mailbox(OUTBOX_MAX)
        self.logs: dict[str, LogChannel] = {}


class AgentHub:
    """Every agent's stream, by session number."""

    def __init__(self, tell: Tell, tasks: Tasks) -> None:
        self._tell = tell
        self._tasks = tasks
        self._links: dict[h.Session, _Link] = {}
        self._sessions = itertools.count(1)
        self._log_ids = itertools.count(1)
        self.unknown_messages = 0

    async def serve(self, stream: MessageStream) -> None:
        """One stream from its first message to its end."""
        try:
            async with asyncio.timeout(FIRST_MESSAGE_S):
                first = agent_v1.decode_up(await stream.receive())
        except TimeoutError:
            await stream.close(f"no registration within {FIRST_MESSAGE_S:g} s")
            return
        except StreamClosed:
            return
        if not isinstance(first, agent_v1.Register):
            await stream.close("the first message of an agent must be its registration")
            return
        session, link = next(self._sessions), _Link(stream)
        self._links[session] = link
        writer = self._tasks.start(self._write(link), name=f"commands to {first.node.id}")
        reason = ""
        try:
            await self._hear(session, link, first)
        except StreamClosed as closed:
            reason = closed.reason
        finally:
            self._links.pop(session, None)
            link.outbox.close()
            for channel in link.logs.values():
                channel.end("its node disconnected")
            await self._tell(h.AgentLeft(session, reason))
        await writer

    async def _hear(self, session: h.Session, link: _Link, first: agent_v1.Register) -> None:
        message: agent_v1.Up | Unknown = first
        while True:
            if isinstance(message, Unknown):
                self._note_unknown(message)
            elif isinstance(message, agent_v1.LogLines):
                self._log_lines(link, message)
            else:
                event = translate.agent_event(session, message)
                if event is not None:
                    await self._tell(event)
            message = agent_v1.decode_up(await link.stream.receive())

    def _note_unknown(self, message: Unknown) -> None:
        self.unknown_messages += 1
        if message.error is not None:
            _LOG.warning("unreadable message %r from an agent: %s", message.type, message.error)

    async def _write(self, link: _Link) -> None:
        try:
            while True:
                message = await link.outbox.get()
                await link.stream.send(agent_v1.encode(message))
                if isinstance(message, agent_v1.Refused):
                    await link.stream.close(message.reason)
        except (MailboxClosed, StreamClosed):
            return

    # ------------------------------------------------------------ used by the owner

    def send(self, session: h.Session, message: agent_v1.Down) -> None:
        """Queue a command; a session that is gone hears nothing."""
        link = self._links.get(session)
        if link is None:
            return
        try:
            if link.outbox.try_put(message):
                return
        except MailboxClosed:
            return
        _LOG.warning("an agent does not read its commands; its stream is closed")
        link.outbox.close()
        self._tasks.start(link.stream.close("commands are not being read"), name="close a stuck agent")

    # ------------------------------------------------------------ logs

    def open_log(
        self, session: h.Session, replica: str, rank: int, lines: int, follow: bool
    ) -> LogChannel | None:
        """Ask a node for a shard's log; `None` when its stream is gone."""
        link = self._links.get(session)
        if link is None:
            return None
        request_id = str(next(self._log_ids))

        def leave() -> None:
            link.logs.pop(request_id, None)
            self.send(session, agent_v1.LogCancel(request_id))

        channel = LogChannel(leave)
        link.logs[request_id] = channel
        self.send(session, agent_v1.LogRequest(request_id, replica, rank, lines, follow))
        return channel

    def _log_lines(self, link: _Link, message: agent_v1.LogLines) -> None:
        channel = link.logs.get(message.request_id)
        if channel is None:
            return
        channel.give(message.lines)
        if message.error is not None or message.last:
            link.logs.pop(message.request_id, None)
            channel.end(message.error)
