"""Listens in on an agent's stream: what the node was told and what it said, for the facts and the story.

Law: nothing is changed, delayed or dropped here.
"""

from typing import Protocol

from llmgw.ports import Dialer, MessageStream, Peer
from llmgw.wire import agent_v1
from llmgw.wire.envelope import Unknown


class AgentEars(Protocol):
    """Hears both directions of a node's stream."""

    def node_told(self, node: str, message: agent_v1.Down | Unknown) -> None: ...

    def node_said(self, node: str, message: agent_v1.Up | Unknown) -> None: ...


class TappedDialer:
    """A `Dialer` whose streams are listened to."""

    def __init__(self, inner: Dialer, node: str, ears: AgentEars) -> None:
        self._inner = inner
        self._node = node
        self._ears = ears

    async def dial(self, address: str, path: str, *, within: float = 5.0) -> MessageStream:
        """Open a stream; see `Dialer`."""
        return _Tapped(await self._inner.dial(address, path, within=within), self._node, self._ears)


class _Tapped:
    def __init__(self, inner: MessageStream, node: str, ears: AgentEars) -> None:
        self._inner = inner
        self._node = node
        self._ears = ears

    @property
    def peer(self) -> Peer:
        """Who is at the other end."""
        return self._inner.peer

    async def send(self, message: bytes) -> None:
        """Send; see `MessageStream`."""
        self._ears.node_said(self._node, agent_v1.decode_up(message))
        await self._inner.send(message)

    async def receive(self) -> bytes:
        """The next message; see `MessageStream`."""
        message = await self._inner.receive()
        self._ears.node_told(self._node, agent_v1.decode_down(message))
        return message

    async def close(self, reason: str = "") -> None:
        """Close; see `MessageStream`."""
        await self._inner.close(reason)
