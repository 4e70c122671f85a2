"""Keeps the server's own router processes running, and takes over those an earlier server left (G17).

Laws: a router that carries our marker and has the same version and settings is adopted, another is
replaced first and then asked to drain, on the same port; a router that dies is started again at once,
one that keeps dying with growing pauses; what we end is asked to drain, and killed after the bound.
"""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Mapping

import msgspec

from llmgw.aio.backoff import Backoff
from llmgw.aio.tasks import Tasks
from llmgw.control.watchers import RouterHub
from llmgw.ports import Processes, ProcessHandle, ProcessId, SpawnFailed, SpawnSpec
from llmgw.wire.watch_v1 import Hello

_LOG = logging.getLogger("llmgw.control.routers")

MARKER = "LLMGW_MARK_ROUTER"
GREETING_S = 1.0  # how long a starting server waits for routers that carry its marker
STEADY_S = 10.0  # a router that lived this long did not die of its start
_RESTART = Backoff(first=0.5, cap=30.0)


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
        self._greeted = asyncio.Event()
        self._strangers: list[ProcessId] = []
        self._stopping = False
        hub.on_hello(lambda _: self._greeted.set())

    async def start(self) -> None:
        """Adopt what may be kept, start the rest, have the others drain."""
        found = await self._processes.marked({MARKER: self._plan.state_dir})
        if found:
            _LOG.info("%d routers of an earlier server are running", len(found))
            adopted = await self._adopt(found)
            self._strangers = [one for one in found if one.pid not in adopted]
        for index in range(self._plan.processes):
            name = f"router {index}"
            self._tasks.start(self._keep(index), name=name)
        for stranger in self._strangers:
            self._processes.kill(stranger, signal.SIGTERM)

    async def _adopt(self, found: list[ProcessId]) -> set[int]:
        """Fill slots with routers that greet in time and fit; the pids kept."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GREETING_S):
                while not {one.pid for one in found} <= {hello.pid for hello in self._hub.hellos()}:
                    self._greeted.clear()
                    await self._greeted.wait()
        kept: set[int] = set()
        for identity in found:
            hello = next((one for one in self._hub.hellos() if self._is(one, identity)), None)
            if hello is None or not self._fits(hello):
                continue
            handle = self._processes.adopt(identity)
            if handle is not None:
                self._slots[hello.index] = handle
                kept.add(identity.pid)
                _LOG.info("router %d (pid %d) is kept", hello.index, identity.pid)
        return kept

    def _is(self, hello: Hello, identity: ProcessId) -> bool:
        return hello.pid == identity.pid and hello.start_time == identity.start_time

    def _fits(self, hello: Hello) -> bool:
        plan = self._plan
        same = (hello.version, hello.settings_hash) == (plan.version, plan.settings_hash)
        return same and hello.index < plan.processes and hello.index not in self._slots

    async def _keep(self, index: int) -> None:
        loop = asyncio.get_running_loop()
        deaths = 0
        while True:
            began = loop.time()
            handle = self._slots.get(index) or await self._spawn(index)
            if handle is not None:
                self._slots[index] = handle
                status = await handle.wait()
                self._slots.pop(index, None)
                if self._stopping:
                    return
                _LOG.warning("router %d ended (%s), starting another", index, _how(status))
            deaths = 1 if loop.time() - began >= STEADY_S else deaths + 1
            if deaths > 1:
                await asyncio.sleep(min(_RESTART.cap, _RESTART.first * 2.0 ** min(deaths - 2, 10)))

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
        self._stopping = True
        handles = list(self._slots.values())
        for handle in handles:
            handle.signal_group(signal.SIGTERM)
        waits = [self._tasks.start(_gone(handle), name="router ends") for handle in handles]
        if waits:
            await asyncio.wait(waits, timeout=self._plan.drain_s + 2.0)
        for handle in handles:
            handle.signal_group(signal.SIGKILL)
        await self._tasks.aclose()


async def _gone(handle: ProcessHandle) -> None:
    await handle.wait()


def _how(status: int | None) -> str:
    if status is None:
        return "it was adopted, its status is not ours to know"
    return f"signal {-status}" if status < 0 else f"exit {status}"
