"""Runs one role as a process: its loop, its signals, its lifeline, and how it says why it cannot run.

Laws: SIGTERM and SIGINT ask once for a graceful stop and, repeated, for an immediate one; a role whose
starter holds a lifeline stops gracefully when the starter is gone, however it went; what a person must
mend ends in one line on stderr and exit code 1, never a traceback.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable

LIFELINE_ENV = "LLMGW_LIFELINE_FD"  # read end of a pipe whose write end the starter holds


class CannotRun(Exception):
    """Something the person who started the role must mend; the text is one line."""


class Stop:
    """Requests to stop, as they come: `requested` after the first, `hurried` after a second."""

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self.hurried = asyncio.Event()

    def ask(self) -> None:
        """Ask once more."""
        (self.hurried if self.requested.is_set() else self.requested).set()


RoleMain = Callable[[Stop], Awaitable[int]]


def run_role(main: RoleMain, *, loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None) -> int:
    """Run `main` on a fresh loop until it returns its exit code."""
    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            return runner.run(_guarded(main))
    except CannotRun as error:
        print(f"llmgw: {error}", file=sys.stderr)
        return 1


async def _guarded(main: RoleMain) -> int:
    stop = Stop()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.ask)
    _watch_lifeline(loop, stop)
    return await main(stop)


def _watch_lifeline(loop: asyncio.AbstractEventLoop, stop: Stop) -> None:
    text = os.environ.pop(LIFELINE_ENV, None)  # not for our own children
    if text is None:
        return
    fd = int(text)
    os.set_inheritable(fd, False)

    def ended() -> None:
        if not os.read(fd, 1):
            loop.remove_reader(fd)
            os.close(fd)
            stop.ask()

    loop.add_reader(fd, ended)


def configure_logging(role: str, *, verbose: bool = False) -> None:
    """One line a record on stderr: time, level, role, message."""
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO,
        format=f"%(asctime)s %(levelname)-7s {role} %(name)s: %(message)s",
        force=True,
    )
    for noisy in ("websockets", "asyncio", "aiosqlite", "alembic", "uvicorn"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
