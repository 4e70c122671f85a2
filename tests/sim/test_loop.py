"""The virtual loop: time jumps, order holds, real things raise, deadlocks are named."""

import asyncio
import contextlib
import random

import pytest

from llmgw.sim.loop import Deadlock, NotSimulated, SimLoop
from llmgw.sim.network import LinkOptions, SimNetwork


def make_loop(seed: int = 1, options: LinkOptions | None = None) -> SimLoop:
    return SimLoop(SimNetwork(random.Random(seed), options))


def test_an_hour_of_sleeping_takes_no_time_and_ends_at_the_hour() -> None:
    loop = make_loop()

    async def main() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    assert loop.run_for(main(), 4000) == pytest.approx(3600)
    loop.finish()


def test_waiting_for_nothing_is_reported_as_a_deadlock() -> None:
    loop = make_loop()

    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    task = loop.create_task(main())
    with pytest.raises(Deadlock):
        loop.run_until_complete(task)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.finish()


def test_threads_names_and_tls_are_refused() -> None:
    loop = make_loop()

    async def main() -> None:
        with pytest.raises(NotSimulated, match="run_in_executor"):
            await asyncio.to_thread(print)
        with pytest.raises(NotSimulated, match="getaddrinfo"):
            await asyncio.get_running_loop().getaddrinfo("example", 80)
        with pytest.raises(NotSimulated, match="TLS"):
            await asyncio.get_running_loop().create_connection(asyncio.Protocol, "h", 1, ssl=True)

    loop.run_for(main(), 10)
    loop.finish()


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(asyncio.CancelledError, ConnectionError):  # the end of a simulation
        while data := await reader.read(1000):
            writer.write(data)
            await writer.drain()
    writer.close()


@pytest.mark.parametrize("seed", range(20))
def test_streams_keep_their_bytes_in_order_and_end_after_them(seed: int) -> None:
    loop = make_loop(seed, LinkOptions(latency_s=0.01, jitter_s=0.05, split_chance=0.7))
    sent = bytes(random.Random(seed).randbytes(200_000))

    async def main() -> bytes:
        with loop.network.running_as("alpha", "server"):
            await asyncio.start_server(_echo, "0.0.0.0", 9000)
        with loop.network.running_as("beta", "client"):
            reader, writer = await asyncio.open_connection("alpha", 9000)

            async def push() -> None:
                for start in range(0, len(sent), 7000):
                    writer.write(sent[start : start + 7000])
                    await writer.drain()
                writer.write_eof()

            async with asyncio.TaskGroup() as group:
                group.create_task(push())
                received = group.create_task(reader.read())
            writer.close()
            return received.result()

    assert loop.run_for(main(), 10_000) == sent
    loop.finish()


def test_the_same_seed_gives_the_same_history_and_another_one_differs() -> None:
    def history(seed: int) -> list[tuple[float, int]]:
        loop = make_loop(seed, LinkOptions(latency_s=0.01, jitter_s=0.05, split_chance=0.7))
        seen: list[tuple[float, int]] = []

        async def main() -> None:
            async def sink(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                while data := await reader.read(100_000):
                    seen.append((loop.time(), len(data)))
                writer.close()
                done.set()

            done = asyncio.Event()
            with loop.network.running_as("alpha", "server"):
                await asyncio.start_server(sink, "0.0.0.0", 9000)
            with loop.network.running_as("beta", "client"):
                _, writer = await asyncio.open_connection("alpha", 9000)
                for _ in range(30):
                    writer.write(b"x" * 100)
                    await asyncio.sleep(0.01)
                writer.close()
            await done.wait()

        loop.run_for(main(), 100)
        loop.finish()
        return seen

    assert history(3) == history(3)
    assert history(3) != history(4)


def test_a_cut_link_holds_bytes_and_a_healed_one_delivers_them() -> None:
    loop = make_loop()

    async def main() -> None:
        with loop.network.running_as("alpha", "server"):
            await asyncio.start_server(_echo, "0.0.0.0", 9000)
        with loop.network.running_as("beta", "client"):
            reader, writer = await asyncio.open_connection("alpha", 9000)
            loop.network.isolate("beta", ["alpha"])
            writer.write(b"hello")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(60):
                    await reader.read(5)
            loop.network.heal()
            assert await reader.readexactly(5) == b"hello"
            writer.close()

    loop.run_for(main(), 200)
    loop.finish()


def test_dialling_hangs_while_cut_and_is_refused_where_nobody_listens() -> None:
    loop = make_loop()

    async def main() -> None:
        with loop.network.running_as("beta", "client"):
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("alpha", 9000)
            loop.network.cut("alpha", "beta")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(5):
                    await asyncio.open_connection("alpha", 9000)

    loop.run_for(main(), 100)
    loop.finish()


def test_a_dead_process_resets_its_connections_and_frees_its_port() -> None:
    loop = make_loop()

    async def main() -> None:
        with loop.network.running_as("alpha", "server"):
            await asyncio.start_server(_echo, "0.0.0.0", 9000)
        with loop.network.running_as("beta", "client"):
            reader, writer = await asyncio.open_connection("alpha", 9000)
            writer.write(b"x")
            assert await reader.read(1) == b"x"
            loop.network.process_died("server")
            with pytest.raises(ConnectionResetError):
                await reader.read(1)
            writer.close()
        assert not loop.network.port_taken("alpha", 9000)

    loop.run_for(main(), 100)
    loop.finish()


def test_a_writer_whose_reader_does_not_read_is_paused() -> None:
    loop = make_loop()

    async def main() -> int:
        async def never_reads(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(1000)
            writer.close()

        with loop.network.running_as("alpha", "server"):
            await asyncio.start_server(never_reads, "0.0.0.0", 9000, limit=1000)
        with loop.network.running_as("beta", "client"):
            _, writer = await asyncio.open_connection("alpha", 9000)
            written = 0
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(100):
                    while True:
                        writer.write(b"x" * 10_000)
                        written += 10_000
                        await writer.drain()
            writer.transport.abort()
        return written

    assert loop.run_for(main(), 2000) < 200_000
    loop.finish()


def test_a_killed_process_takes_no_further_step_not_even_a_finally() -> None:
    loop = make_loop()
    seen: list[str] = []

    async def role() -> None:
        try:
            while True:
                await asyncio.sleep(1)
                seen.append("beat")
        finally:
            seen.append("cleaned up")

    async def main() -> int:
        with loop.network.running_as("alpha", "role-1"):
            task = loop.create_task(role())
        await asyncio.sleep(3.5)
        loop.network.process_died("role-1")
        await asyncio.sleep(10)
        assert not task.done()
        return len(seen)

    assert loop.run_for(main(), 100) == 3
    assert seen == ["beat"] * 3
    loop.finish()


def test_a_process_killed_before_its_first_step_leaves_no_task_behind() -> None:
    loop = make_loop()

    async def role() -> None:
        raise AssertionError("it was killed")

    async def main() -> None:
        with loop.network.running_as("alpha", "role-1"):
            loop.create_task(role())
        loop.network.process_died("role-1")
        await asyncio.sleep(1)

    loop.run_for(main(), 100)
    assert loop.finish() == 1
    assert loop.unhandled == []


def test_sets_of_tasks_and_futures_have_the_same_order_in_every_run() -> None:
    def order() -> list[int]:
        loop = make_loop()

        async def main() -> list[int]:
            made = [loop.create_future() for _ in range(50)]
            return [made.index(one) for one in set(made)]

        seen = loop.run_for(main(), 10)
        loop.finish()
        return seen

    assert order() == order()


def test_what_a_killed_process_had_sent_over_a_cut_link_arrives_when_it_heals_and_then_the_reset() -> None:
    loop = make_loop()

    async def main() -> None:
        with loop.network.running_as("alpha", "server"):
            await asyncio.start_server(_echo, "0.0.0.0", 9000)
        with loop.network.running_as("beta", "client"):
            reader, writer = await asyncio.open_connection("alpha", 9000)
            writer.write(b"x")
            assert await reader.read(1) == b"x"
            loop.network.cut("alpha", "beta")
            writer.write(b"y")
            await asyncio.sleep(1)
            loop.network.process_died("server")
            await asyncio.sleep(60)
            assert not reader.at_eof()
            loop.network.mend("alpha", "beta")
            assert await reader.read(1) == b"y"
            with pytest.raises(ConnectionResetError):
                await reader.read(1)
            writer.close()

    loop.run_for(main(), 100)
    loop.finish()
