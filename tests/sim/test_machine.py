"""Simulated machines: what a process, a kill, an adoption and a loss of power mean here."""

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable

import pytest

from llmgw.ports import ProcessHandle, SpawnFailed, SpawnSpec
from llmgw.sim.loop import SimLoop
from llmgw.sim.machine import CRASHED, End, Program, SimFiles, SimMachine, SimProcess, no_such_program
from llmgw.sim.network import SimNetwork

Work = Callable[[SimProcess], Awaitable[int]]


class Scripted:
    """A program made of one function; catches the signals it is told to."""

    def __init__(self, work: Work, catches: tuple[int, ...] = ()) -> None:
        self._work = work
        self._catches = catches

    async def run(self, process: SimProcess) -> int:
        return await self._work(process)

    def catches(self, signum: int) -> bool:
        return signum in self._catches


class Witness:
    """Notes what happens to processes."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []
        self.ends: list[End] = []

    def started(self, process: SimProcess) -> None:
        self.seen.append(("started", process.pid))

    def signalled(self, process: SimProcess, signum: int) -> None:
        self.seen.append((f"signal {signum}", process.pid))

    def ended(self, process: SimProcess, end: End) -> None:
        self.seen.append(("ended", process.pid))
        self.ends.append(end)


class Bench:
    """A loop with one machine whose only program is `work`."""

    def __init__(self, work: Work, catches: tuple[int, ...] = ()) -> None:
        self.network = SimNetwork(random.Random(1))
        self.loop = SimLoop(self.network)
        self.witness = Witness()
        self.machine = SimMachine("n1", "10.0.0.1", self.network, self._program, self.witness)
        self._work, self._catches = work, catches

    def _program(self, machine: SimMachine, spec: SpawnSpec) -> Program:
        if spec.argv == ("missing",):
            return no_such_program(machine, spec)
        return Scripted(self._work, self._catches)

    async def spawn(self, name: str = "engine", **env: str) -> ProcessHandle:
        return await self.machine.spawn(SpawnSpec((name,), env, f"/logs/{name}"))

    def run(self, main: Awaitable[None]) -> None:
        self.loop.run_for(main, 10_000)
        self.loop.finish()


async def for_ever(process: SimProcess) -> int:
    await asyncio.get_running_loop().create_future()
    return 0


def test_a_process_ends_with_its_own_status_and_its_output_stays() -> None:
    async def work(process: SimProcess) -> int:
        process.say("hello")
        await asyncio.sleep(5)
        process.say("bye")
        return 3

    bench = Bench(work)

    async def main() -> None:
        handle = await bench.spawn()
        assert await handle.wait() == 3
        assert bench.loop.time() == pytest.approx(5)
        assert bench.machine.files["/logs/engine"] == b"hello\nbye\n"
        handle.signal_group(signal.SIGTERM)  # gone: no error
        assert bench.machine.adopt(handle.identity) is None

    bench.run(main())
    assert bench.witness.ends == [End(3)]


def test_a_command_that_is_not_there_cannot_be_spawned() -> None:
    bench = Bench(for_ever)

    async def main() -> None:
        with pytest.raises(SpawnFailed, match="no such file"):
            await bench.spawn("missing")

    bench.run(main())


def test_a_signal_ends_a_process_unless_it_catches_it_and_kill_always_does() -> None:
    bench = Bench(for_ever, catches=(signal.SIGTERM,))

    async def main() -> None:
        handle = await bench.spawn()
        handle.signal_group(signal.SIGTERM)
        await asyncio.sleep(60)
        assert bench.machine.adopt(handle.identity) is not None
        handle.signal_group(signal.SIGKILL)
        assert await handle.wait() == -signal.SIGKILL

    bench.run(main())
    assert [what for what, _ in bench.witness.seen] == ["started", "signal 15", "signal 9", "ended"]


def test_a_killed_process_takes_no_further_step_and_frees_its_port() -> None:
    steps: list[str] = []

    async def work(process: SimProcess) -> int:
        server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "10.0.0.1", 9000)
        try:
            while True:
                await asyncio.sleep(1)
                steps.append("beat")
        finally:
            steps.append("cleaned up")
            server.close()

    bench = Bench(work)

    async def main() -> None:
        handle = await bench.spawn()
        await asyncio.sleep(2.5)
        assert bench.network.port_taken("10.0.0.1", 9000)
        bench.machine.kill(handle.identity, signal.SIGKILL)
        await asyncio.sleep(60)
        assert not bench.network.port_taken("10.0.0.1", 9000)
        assert steps == ["beat", "beat"]

    bench.run(main())


def test_an_adopted_process_is_the_same_one_and_its_status_is_not_known() -> None:
    bench = Bench(for_ever)

    async def main() -> None:
        started = await bench.spawn()
        adopted = bench.machine.adopt(started.identity)
        assert adopted is not None
        adopted.signal_group(signal.SIGTERM)
        assert await adopted.wait() is None
        assert await started.wait() == -signal.SIGTERM

    bench.run(main())


def test_processes_are_found_by_every_variable_of_their_marker() -> None:
    bench = Bench(for_ever)

    async def main() -> None:
        ours = await bench.spawn(AGENT="a", SHARD="r/0")
        await bench.spawn(AGENT="b", SHARD="r/0")
        assert await bench.machine.marked({"AGENT": "a"}) == [ours.identity]
        assert await bench.machine.marked({"AGENT": "a", "SHARD": "other"}) == []

    bench.run(main())


def test_a_machine_without_power_loses_its_processes_and_keeps_its_disk() -> None:
    bench = Bench(for_ever)
    files = SimFiles(bench.machine, "/state")

    async def main() -> None:
        before = await bench.spawn()
        files.write("a.json", b"1")
        files.write("ab.json", b"2")
        bench.machine.power_off()
        assert await before.wait() == -signal.SIGKILL
        bench.machine.power_on()
        after = await bench.spawn()
        assert after.identity.pid == before.identity.pid  # the same number, yet another process
        assert bench.machine.adopt(before.identity) is None
        assert (files.read("a.json"), files.names("a")) == (b"1", ["a.json", "ab.json"])
        files.remove("a.json")
        files.remove("a.json")
        assert files.read("a.json") is None

    bench.run(main())


def test_the_other_end_hears_nothing_of_a_loss_of_power_until_it_speaks_to_the_machine_again() -> None:
    async def work(process: SimProcess) -> int:
        await asyncio.get_running_loop().create_server(asyncio.Protocol, "10.0.0.1", 9000)
        return await for_ever(process)

    bench = Bench(work)

    async def main() -> None:
        await bench.spawn()
        await asyncio.sleep(1)
        with bench.network.running_as("10.0.0.2", "client"):
            reader, writer = await asyncio.open_connection("10.0.0.1", 9000)
            bench.machine.power_off()
            for wait in (60, 60):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(wait):
                        await reader.read(1)
                writer.write(b"are you there?")
            bench.machine.power_on()
            with pytest.raises(ConnectionResetError):
                await reader.read(1)
            writer.close()

    bench.run(main())


def test_what_a_process_leaves_running_when_it_returns_is_told() -> None:
    forgotten: list[asyncio.Task[None]] = []

    async def work(process: SimProcess) -> int:
        forgotten.append(asyncio.get_running_loop().create_task(asyncio.sleep(100), name="forgotten"))
        await asyncio.sleep(1)
        return 0

    bench = Bench(work)

    async def main() -> None:
        await (await bench.spawn()).wait()

    bench.run(main())
    assert bench.witness.ends == [End(0, ("forgotten",))]


def test_a_process_that_dies_of_an_exception_says_which() -> None:
    async def work(process: SimProcess) -> int:
        raise LookupError("nothing there")

    bench = Bench(work)

    async def main() -> None:
        assert await (await bench.spawn()).wait() == CRASHED

    bench.run(main())
    assert isinstance(bench.witness.ends[0].crash, LookupError)
