"""Router processes: kept when they fit, replaced when they do not, started again when they die (G17)."""

import asyncio
import itertools
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import msgspec
import pytest

from llmgw.control.children import MARKER, RouterChildren, RouterPlan
from llmgw.control.watchers import RouterHub
from llmgw.ports import ProcessHandle, ProcessId, SpawnFailed, SpawnSpec
from tests.control.harness import Router, Server, Site, until

PLAN = RouterPlan(
    processes=1,
    argv=("llmgw", "router"),
    env={"PATH": "/bin"},
    state_dir="/state",
    log_path="/state/router.log",
    version="0.1.0",
    settings_hash="hash",
    drain_s=0.2,
)


class FakeProcess:
    """A process that ends when told, unless it is stubborn."""

    def __init__(self, pid: int, *, stubborn: bool = False) -> None:
        self.identity = ProcessId("boot", pid, pid * 10)
        self.signals: list[int] = []
        self._ended: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._stubborn = stubborn

    async def wait(self) -> int | None:
        return await asyncio.shield(self._ended)

    def signal_group(self, signum: int) -> None:
        self.signals.append(signum)
        if signum == signal.SIGKILL or not self._stubborn:
            self.end(-signum)

    def end(self, status: int | None) -> None:
        if not self._ended.done():
            self._ended.set_result(status)

    @property
    def alive(self) -> bool:
        return not self._ended.done()


class FakeProcesses:
    """What runs on the machine; `born` is called with every process that was started."""

    def __init__(self) -> None:
        self.all: dict[int, FakeProcess] = {}
        self.specs: list[SpawnSpec] = []
        self.refuse = 0
        self.stubborn = False
        self.born: Callable[[FakeProcess], Awaitable[None]] | None = None

    def found(self, pid: int) -> FakeProcess:
        """One that ran before."""
        self.all[pid] = FakeProcess(pid, stubborn=self.stubborn)
        return self.all[pid]

    async def spawn(self, spec: SpawnSpec) -> ProcessHandle:
        self.specs.append(spec)
        if self.refuse:
            self.refuse -= 1
            raise SpawnFailed("no such file")
        process = self.found(1000 + len(self.specs))
        if self.born is not None:
            await self.born(process)
        return process

    def adopt(self, identity: ProcessId) -> ProcessHandle | None:
        process = self.all.get(identity.pid)
        return process if process is not None and process.alive else None

    async def marked(self, marker: Mapping[str, str]) -> list[ProcessId]:
        assert marker == {MARKER: "/state"}
        return [one.identity for one in self.all.values() if one.alive]

    def kill(self, identity: ProcessId, signum: int) -> None:
        self.all[identity.pid].signal_group(signum)

    def boot_id(self) -> str:
        return "boot"

    def running(self) -> list[int]:
        return [pid for pid, one in self.all.items() if one.alive]


@asynccontextmanager
async def children(
    hub: RouterHub, processes: FakeProcesses, plan: RouterPlan = PLAN
) -> AsyncIterator[RouterChildren]:
    made = RouterChildren(plan, processes, hub)
    await made.start()
    try:
        yield made
    finally:
        await made.aclose()


async def connect(server: Server, process: FakeProcess, **fields: object) -> Router:
    """The router in this process says hello."""
    identity = process.identity
    plain = {"pid": identity.pid, "start_time": identity.start_time}
    return await server.router(f"router-{identity.pid}", **{**plain, **fields})


@pytest.fixture
async def server(site: Site) -> AsyncIterator[Server]:
    async with site.server() as made:
        await until(made.plane.routers.heard_everybody)
        yield made


async def test_routers_are_started_with_their_index_their_marker_and_the_whole_environment(
    server: Server,
) -> None:
    processes = FakeProcesses()
    two = msgspec.structs.replace(PLAN, processes=2)
    async with children(server.plane.routers, processes, two):
        await until(lambda: len(processes.specs) == 2)
        assert [spec.argv for spec in processes.specs] == [
            ("llmgw", "router", "--index", "0"),
            ("llmgw", "router", "--index", "1"),
        ]
        assert processes.specs[0].env == {"PATH": "/bin", MARKER: "/state"}


async def test_a_router_of_an_earlier_server_that_fits_is_kept(server: Server) -> None:
    processes = FakeProcesses()
    old = processes.found(77)
    await connect(server, old)
    async with children(server.plane.routers, processes):
        await asyncio.sleep(0)
        assert processes.specs == []
        assert old.signals == []
    assert old.signals == [signal.SIGTERM], "SIGTERM to the server stops its routers, kept ones too"


@pytest.mark.parametrize("other", [{"settings_hash": "other"}, {"version": "0.0.9"}, {"index": 1}])
async def test_one_that_does_not_fit_is_asked_to_drain_only_once_its_successor_is_connected(
    server: Server, other: dict[str, object]
) -> None:
    processes = FakeProcesses()
    old = processes.found(77)
    await connect(server, old, **other)
    async with children(server.plane.routers, processes):
        await until(lambda: len(processes.specs) == 1)
        assert old.signals == [], "both share the port until the new one answers"
        await connect(server, processes.all[1001])
        await until(lambda: old.signals == [signal.SIGTERM])
        assert processes.running() == [1001]


async def test_one_that_does_not_fit_goes_on_until_the_new_server_knows_what_runs(site: Site) -> None:
    async with site.server() as before:
        await before.agent()
        await until(lambda: before.phases() == ["ready"])
    async with site.server(name="server-2", settling_s=60.0) as server:
        await until(lambda: server.plane.owner.state().term is not None)
        processes = FakeProcesses()
        old = processes.found(77)
        await connect(server, old, settings_hash="other")
        async with children(server.plane.routers, processes):
            assert not server.plane.routers.heard_everybody()
            turns = server.plane.owner.turns
            await until(lambda: server.plane.owner.turns > turns + 3)
            assert processes.specs == [], "it would know no endpoint, and share the port with one that does"
            await server.agent()
            await until(lambda: len(processes.specs) == 1)


async def test_when_the_old_one_dies_meanwhile_its_place_is_taken_at_once(site: Site) -> None:
    async with site.server() as before:
        await before.agent()
        await until(lambda: before.phases() == ["ready"])
    async with site.server(name="server-2", settling_s=60.0) as server:
        processes = FakeProcesses()
        old = processes.found(77)
        await connect(server, old, settings_hash="other")
        async with children(server.plane.routers, processes):
            old.end(None)
            await until(lambda: len(processes.specs) == 1)


async def test_one_that_does_not_greet_within_a_second_is_replaced(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmgw.control.children.GREETING_S", 0.05)
    processes = FakeProcesses()
    silent = processes.found(77)
    async with children(server.plane.routers, processes):
        await until(lambda: len(processes.specs) == 1)
        await connect(server, processes.all[1001])
        await until(lambda: not silent.alive)


async def test_a_pid_that_came_again_is_not_taken_for_the_router(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmgw.control.children.GREETING_S", 0.05)
    processes = FakeProcesses()
    other = processes.found(77)
    await connect(server, other, start_time=1)
    async with children(server.plane.routers, processes):
        await until(lambda: len(processes.specs) == 1)


async def test_a_router_that_dies_is_started_again_at_once(server: Server) -> None:
    processes = FakeProcesses()
    async with children(server.plane.routers, processes):
        await until(lambda: processes.running() == [1001])
        processes.all[1001].end(-9)
        await until(lambda: processes.running() == [1002])


async def test_one_that_keeps_dying_is_started_with_growing_pauses(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmgw.control.children.RESTART_FIRST_S", 0.01)
    processes, born = FakeProcesses(), []

    async def dies(process: FakeProcess) -> None:
        born.append(asyncio.get_running_loop().time())
        process.end(1)

    processes.born = dies
    async with children(server.plane.routers, processes):
        await until(lambda: len(born) == 6)
    pauses = [after - before for before, after in itertools.pairwise(born)]
    assert pauses[0] < 0.01, "the first time at once"
    assert pauses[4] >= 0.08
    assert all(later >= 0.9 * earlier for earlier, later in itertools.pairwise(pauses[1:]))


async def test_one_that_cannot_be_started_is_tried_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmgw.control.children.RESTART_FIRST_S", 0.01)
    processes = FakeProcesses()
    processes.refuse = 2
    async with children(server.plane.routers, processes):
        await until(lambda: processes.running() == [1003])


async def test_closing_ends_all_and_starts_none(server: Server) -> None:
    processes = FakeProcesses()
    async with children(server.plane.routers, processes):
        await until(lambda: processes.running() == [1001])
    assert processes.all[1001].signals == [signal.SIGTERM]
    assert len(processes.specs) == 1


async def test_one_that_ignores_the_drain_is_killed_after_its_bound(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmgw.control.children.KILL_AFTER_DRAIN_S", 0.05)
    processes = FakeProcesses()
    processes.stubborn = True
    async with children(server.plane.routers, processes):
        await until(lambda: processes.running() == [1001])
    assert processes.all[1001].signals == [signal.SIGTERM, signal.SIGKILL]


async def test_one_that_is_being_started_while_closing_is_ended_too(server: Server) -> None:
    processes, starting, go_on = FakeProcesses(), asyncio.Event(), asyncio.Event()

    async def slow(_: FakeProcess) -> None:
        starting.set()
        await go_on.wait()

    processes.born = slow
    made = RouterChildren(PLAN, processes, server.plane.routers)
    await made.start()
    await starting.wait()
    asyncio.get_running_loop().call_later(0.05, go_on.set)
    await made.aclose()
    assert processes.running() == []
