"""Keeps the server's own router processes running, and takes over those an earlier server left (G17).

Laws: a router that carries our marker and has the same version and settings is adopted, another is
replaced first and then asked to drain, on the same port; a router that dies is started again at once,
one that keeps dying with growing pauses; what we end is asked to drain, and killed after the bound.
"""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Mapping

import msgspec

from llmgw.aio.tasks import Tasks
from llmgw.control.watchers import RouterHub
from llmgw.ports import Processes, ProcessHandle, ProcessId, SpawnFailed, SpawnSpec
from llmgw.wire.watch_v1 import Hello

_LOG = logging.getLogger("llmgw.control.routers")

MARKER = "LLMGW_MARK_ROUTER"
GREETING_S = 1.0  # how long a starting server waits for routers that carry its marker
WHOLE_TABLE_WITHIN_S = 120.0  # a node that is silent for longer is usually lost
REPLACED_WITHIN_S = 10.0  # a router that does not come up must not keep an outdated one for ever
KILL_AFTER_DRAIN_S = 2.0
STEADY_S = 10.0  # a router that lived this long did not die of its start
# Growing, and not spread: nobody else's restarts could coincide with these.
RESTART_FIRST_S = 0.5
RESTART_CAP_S = 30.0


class RouterPlan(msgspec.Struct, frozen=True):
    """How router processes are started. `argv` without the index, which is added."""

    processes: int
    argv: tuple[str, ...]
    env: Mapping[str, str]  # without the marker
    state_dir: str  # the marker's value
    log_path: str
    version: str
    settings_hash: str
    drain_s: float


class RouterChildren:
    """One slot a router process."""

    def __init__(self, plan: RouterPlan, processes: Processes, hub: RouterHub) -> None:
        self._plan = plan
        self._processes = processes
        self._hub = hub
        self._tasks = Tasks()
        self._slots: dict[int, ProcessHandle] = {}
        self._others: dict[int, ProcessHandle] = {}  # of an earlier server, to be replaced, by pid
        self._keepers: list[asyncio.Task[None]] = []
        self._news = asyncio.Event()
        self._stopping = asyncio.Event()
        hub.on_news(self._news.set)

    async def start(self) -> None:
        """Adopt what may be kept, start the rest, have others replaced."""
        found = await self._processes.marked({MARKER: self._plan.state_dir})
        kept: set[int] = set()
        if found:
            _LOG.info("%d router processes of an earlier server are running", len(found))
            kept = await self._adopt(found)
        others = [one for one in found if one.pid not in kept]
        if others:
            self._keep_up(set(self._slots))
            self._tasks.start(self._replace(others), name="replace routers of an earlier server")
        else:
            self._keep_up(set(range(self._plan.processes)))

    def _keep_up(self, slots: set[int]) -> None:
        for index in sorted(slots):
            self._keepers.append(self._tasks.start(self._keep(index), name=f"router {index}"))

    async def _adopt(self, found: list[ProcessId]) -> set[int]:
        """Fill slots with routers that greet in time and fit; the pids kept."""
        pids = {one.pid for one in found}
        await self._until(lambda: pids <= {hello.pid for hello in self._hub.hellos()}, GREETING_S)
        kept: set[int] = set()
        for identity in found:
            hello = next((one for one in self._hub.hellos() if _is(one, identity)), None)
            if hello is None or not self._fits(hello):
                continue
            handle = self._processes.adopt(identity)
            if handle is not None:
                self._slots[hello.index] = handle
                kept.add(identity.pid)
                _LOG.info("router %d (pid %d) is kept", hello.index, identity.pid)
        return kept

    def _fits(self, hello: Hello) -> bool:
        plan = self._plan
        same = (hello.version, hello.settings_hash) == (plan.version, plan.settings_hash)
        return same and hello.index < plan.processes and hello.index not in self._slots

    async def _replace(self, others: list[ProcessId]) -> None:
        """Start what takes the place of routers that are not kept, then have those drain.

        They go on until this server knows what runs: a router that starts now would know nothing of
        nodes that have not reported yet, and share the port with one that does.
        """
        for one in others:
            handle = self._processes.adopt(one)
            if handle is not None:
                self._others[one.pid] = handle
                ends = self._tasks.start(self._note_end(handle), name="router of an earlier server")
                self._keepers.append(ends)
        await self._until(lambda: not self._others or self._hub.heard_everybody(), WHOLE_TABLE_WITHIN_S)
        self._keep_up(set(range(self._plan.processes)) - set(self._slots))
        await self._until(self._all_here, REPLACED_WITHIN_S)
        for pid, handle in self._others.items():
            _LOG.info("router pid %d has other settings or another version; it is asked to drain", pid)
            handle.signal_group(signal.SIGTERM)

    async def _note_end(self, handle: ProcessHandle) -> None:
        await handle.wait()
        self._others.pop(handle.identity.pid, None)
        self._news.set()

    def _all_here(self) -> bool:
        connected = {hello.pid for hello in self._hub.hellos()}
        pids = {handle.identity.pid for handle in self._slots.values()}
        return len(pids) == self._plan.processes and pids <= connected

    async def _until(self, holds: Callable[[], bool], within_s: float) -> None:
        """Wait for news after which something holds, or for the bound."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while not holds():
                    self._news.clear()
                    await self._news.wait()

    async def _keep(self, index: int) -> None:
        loop = asyncio.get_running_loop()
        deaths = 0
        while not self._stopping.is_set():
            began = loop.time()
            handle = self._slots.get(index) or await self._spawn(index)
            if handle is not None:
                self._slots[index] = handle
                if self._stopping.is_set():  # asked while it was being started
                    handle.signal_group(signal.SIGTERM)
                status = await handle.wait()
                del self._slots[index]
                if self._stopping.is_set():
                    return
                _LOG.warning("router %d ended (%s), starting another", index, _how(status))
            deaths = 1 if loop.time() - began >= STEADY_S else deaths + 1
            if deaths > 1:
                await self._pause(min(RESTART_CAP_S, RESTART_FIRST_S * 2.0 ** min(deaths - 2, 10)))

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    async def _spawn(self, index: int) -> ProcessHandle | None:
        plan = self._plan
        spec = SpawnSpec(
            argv=(*plan.argv, "--index", str(index)),
            env={**plan.env, MARKER: plan.state_dir},
            log_path=plan.log_path,
        )
        try:
            return await self._processes.spawn(spec)
        except SpawnFailed as error:
            _LOG.error("router %d cannot be started: %s", index, error)
            return None

    async def aclose(self) -> None:
        """Ask every router to drain, wait for its bound, kill what is left."""
        self._stopping.set()
        for handle in self._running():
            handle.signal_group(signal.SIGTERM)
        if self._keepers:
            await asyncio.wait(self._keepers, timeout=self._plan.drain_s + KILL_AFTER_DRAIN_S)
        for handle in self._running():
            _LOG.warning("router pid %d did not end within its drain, it is killed", handle.identity.pid)
            handle.signal_group(signal.SIGKILL)
        await self._tasks.aclose()

    def _running(self) -> list[ProcessHandle]:
        return [*self._slots.values(), *self._others.values()]


def _is(hello: Hello, identity: ProcessId) -> bool:
    return hello.pid == identity.pid and hello.start_time == identity.start_time


def _how(status: int | None) -> str:
    if status is None:
        return "it was adopted, its status is not ours to know"
    return f"signal {-status}" if status < 0 else f"exit {status}"
