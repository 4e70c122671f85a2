"""Keeps the processes of `llmgw up` running: a server and an agent, each restarted when it ends unasked.

Laws: a child outlives neither `up` (it holds the other end of a lifeline) nor a stop; each restart is one
line and waits longer than the one before; stopping asks first, and ends by force what does not answer.
"""

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from llmgw.aio.backoff import Backoff
from llmgw.aio.tasks import Tasks
from llmgw.core.text import printable
from llmgw.entry.process import LIFELINE_ENV, CannotRun
from llmgw.entry.up_folder import check_room

MARK = "LLMGW_MARK_UP"  # the data folder, in the environment of all that comes from one `up`
RESTART = Backoff(first=0.5, cap=30.0)
STEADY_S = 60.0  # having run so long, an end counts as the first again
BY_OTHERS = frozenset({-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT})  # no word of its own says why
GIVE_UP_AFTER = 3  # ends before it ever served: what is wrong will not mend itself
LOG_MAX = 10 * 1024 * 1024  # of a child's log at its start; the one before is kept beside it

Say = Callable[[str], None]


class Child(msgspec.Struct, frozen=True):
    """A role to keep running."""

    verb: str  # the role of `llmgw`
    arguments: tuple[str, ...]
    log: Path


class Ended(msgspec.Struct, frozen=True):
    """How a child went: its exit status, and the last line of its log."""

    status: int
    last_line: str

    def line(self) -> str:
        """`ended with status 1: no space left on device`."""
        how = (
            f"was ended by {_signal_name(-self.status)}"
            if self.status < 0
            else f"ended with status {self.status}"
        )
        return f"{how}: {self.last_line}" if self.last_line and self.status not in BY_OTHERS else how


class Children:
    """The processes of one `up`."""

    def __init__(self, folder: Path, tasks: Tasks, say: Say, draw: random.Random) -> None:
        self._folder = folder
        self._tasks = tasks
        self._say = say
        self._draw = draw
        self._running: dict[str, _Running] = {}
        self.stopping = asyncio.Event()  # from then on an end is expected
        self._lifeline, self._held = os.pipe()  # children read the one, we hold the other until we are gone
        self.gave_up: asyncio.Future[CannotRun] = asyncio.get_running_loop().create_future()
        self.served = False  # set by the one who saw it: from then on ends are never final

    def start(self, child: Child) -> None:
        """Start a role and keep it running."""
        self._tasks.start(self._keep(child), name=f"keep the {child.verb} running")

    async def _keep(self, child: Child) -> None:
        loop = asyncio.get_running_loop()
        failures = 0
        while not self.stopping.is_set():
            started = loop.time()
            running = self._running[child.verb] = self._spawn(child)
            ended = await running.ended
            if self.stopping.is_set():
                return
            failures = 1 if loop.time() - started > STEADY_S else failures + 1
            if failures >= GIVE_UP_AFTER and not self.served and not self.gave_up.done():
                self.gave_up.set_result(self._why(child, ended))
                return
            wait = RESTART.delay(failures, self._draw)
            self._say(f"the {child.verb} {ended.line()}; starting it again (log: {child.log})")
            await asyncio.sleep(wait)

    def _why(self, child: Child, ended: Ended) -> CannotRun:
        try:
            check_room(self._folder)  # a role that cannot write cannot say so in its log either
        except CannotRun as full:
            return full
        return CannotRun(f"the {child.verb} {ended.line()} (log: {child.log})")

    def _spawn(self, child: Child) -> "_Running":
        command = [sys.executable, "-m", "llmgw", child.verb, *child.arguments]
        environment = {**os.environ, MARK: str(self._folder), LIFELINE_ENV: str(self._lifeline)}
        with contextlib.suppress(OSError):
            if child.log.stat().st_size > LOG_MAX:
                child.log.rename(child.log.with_suffix(".log.1"))
        log = os.open(child.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=(self._lifeline,),
                start_new_session=True,  # Ctrl-C reaches `up` alone, which stops them in order
            )
        finally:
            os.close(log)
        return _Running(process, child.log)

    async def stop(self, verb: str, within_s: float, hurried: asyncio.Event) -> None:
        """End a role: ask, ask again when hurried, and by force after `within_s`."""
        running = self._running.get(verb)
        if running is None or running.ended.done():
            return
        running.send(signal.SIGTERM)
        hurry = self._tasks.start(hurried.wait(), name=f"hurry for the {verb}")
        either: tuple[asyncio.Future[Any], ...] = (hurry, running.ended)
        await asyncio.wait(either, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        if hurried.is_set() and not running.ended.done():
            running.send(signal.SIGTERM)
            await asyncio.wait({running.ended}, timeout=1.0)
        if not running.ended.done():
            running.send(signal.SIGKILL)
            await running.ended

    def close(self) -> None:
        """Let go of the lifeline."""
        os.close(self._lifeline)
        os.close(self._held)


class _Running:
    """A started process; `ended` is set when it is gone."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self._process = process
        self._log = log
        self._log_from = log.stat().st_size
        self._loop = asyncio.get_running_loop()
        self._pidfd = os.pidfd_open(process.pid)
        self.ended: asyncio.Future[Ended] = self._loop.create_future()
        self._loop.add_reader(self._pidfd, self._over)

    def send(self, signum: int) -> None:
        """Signal it, unless it is gone."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signum)

    def _over(self) -> None:
        self._loop.remove_reader(self._pidfd)
        status = self._process.wait()
        os.close(self._pidfd)
        self._pidfd = -1
        self.ended.set_result(Ended(status, _last_line(self._log, self._log_from)))


def _last_line(log: Path, start: int) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(start, log.stat().st_size - 4096))
            lines = file.read().decode("utf-8", "replace").strip().splitlines()
    except OSError:
        return ""
    return printable(lines[-1].removeprefix("llmgw: ")) if lines else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def roles(config_folder: Mapping[str, Path], logs: Path) -> tuple[Child, ...]:
    """The roles of one `up`, in the order to start them; stopped in the same order: streams end first."""
    return (
        Child("server", ("-c", str(config_folder["server"])), logs / "server.log"),
        Child("agent", ("-c", str(config_folder["agent"]), "--stop-engines"), logs / "agent.log"),
    )
