"""Takes an engine's answer piece by piece and gives the client what it shall have (G6a).

Laws: the 200 goes out with the first event, and with a plain answer once it is whole or too large to
keep; no task and no wait a piece; a fault stops the engine at once, because a sink that raises closes
the connection.
"""

from collections.abc import Callable

from llmgw.wire.openai import Answer, Usage, parse_answer, usage_in
from llmgw.wire.sse import StreamFault, StreamScanner

# A plain answer up to this size is whole before its head goes out, so that a death becomes a retry.
COLLECT_MAX = 256 * 1024
# Enough of either end of a longer one to hold its usage.
TAIL_MAX = 8 * 1024


class SinkStopped(Exception):
    """The sink wants no more; why is in the sink."""


class EventSink:
    """For streams. `begin` is called before the first write, `done` after the last."""

    __slots__ = ("_begin", "_begun", "_done", "_write", "scanner")

    def __init__(
        self,
        scanner: StreamScanner,
        begin: Callable[[], None],
        write: Callable[[bytes], None],
        done: Callable[[], None],
    ) -> None:
        self.scanner = scanner
        self._begin = begin
        self._write = write
        self._done = done
        self._begun = False

    def __call__(self, data: bytes) -> None:
        """Take one piece. Raises `SinkStopped` at a fault."""
        scanner = self.scanner
        out = scanner.feed(data)
        if out:
            if self._begun and not scanner.done:
                self._write(out)
            else:
                self._edge(out)
        if scanner.fault is not None:
            raise SinkStopped

    def end(self) -> StreamFault | None:
        """The engine's answer ended; the fault, if it was no good end."""
        out = self.scanner.end()
        if out:
            self._edge(out)
        return self.scanner.fault

    def _edge(self, data: bytes) -> None:
        """The first or the last bytes."""
        if not self._begun:
            self._begun = True
            self._begin()
        self._write(data)
        if self.scanner.done:
            self._done()


class PlainSink:
    """For plain answers: collected, or passed on once they are too large for that."""

    __slots__ = ("_begin", "_head", "_pieces", "_size", "_tail", "_write", "passing")

    def __init__(self, begin: Callable[[], None], write: Callable[[bytes], None]) -> None:
        self._begin = begin
        self._write = write
        self._pieces: list[bytes] = []
        self._size = 0
        self._head = b""
        self._tail = b""
        self.passing = False

    def __call__(self, data: bytes) -> None:
        """Take one piece."""
        if self.passing:
            self._tail = (self._tail + data)[-TAIL_MAX:]
            self._write(data)
            return
        self._pieces.append(data)
        self._size += len(data)
        if self._size > COLLECT_MAX:
            self.passing = True
            self._begin()
            whole, self._pieces = b"".join(self._pieces), []
            self._head, self._tail = whole[:TAIL_MAX], whole[-TAIL_MAX:]
            self._write(whole)

    def body(self) -> bytes:
        """The whole answer, when it was collected."""
        return b"".join(self._pieces)

    def answer(self) -> Answer | None:
        """What a collected answer says; `None` when it is not one."""
        return parse_answer(self.body())

    def usage(self) -> Usage | None:
        """The figures at the end, or else at the beginning, of an answer that was passed on."""
        return usage_in(self._tail) or usage_in(self._head)
