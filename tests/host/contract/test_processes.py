"""What every implementation of `ports.Processes` promises."""

import asyncio
import signal

import msgspec
import pytest

from llmgw.ports import ProcessId, SpawnFailed
from tests.host.contract.conftest import EXIT, MISSING, PARENT, SLEEP, STUBBORN, Bench


async def until_left(bench: Bench, count: int) -> list[ProcessId]:
    async with asyncio.timeout(10):
        while len(found := await bench.processes.marked(bench.marker)) != count:  # noqa: ASYNC110  as it comes
            await asyncio.sleep(0.01)
    return found


async def test_a_process_has_an_identity_and_ends_with_its_status(bench: Bench) -> None:
    handle = await bench.processes.spawn(bench.spec(EXIT))
    assert handle.identity.boot_id == bench.processes.boot_id()
    assert await handle.wait() == 7
    assert await handle.wait() == 7
    assert bench.processes.adopt(handle.identity) is None


async def test_what_is_not_there_cannot_be_started(bench: Bench) -> None:
    with pytest.raises(SpawnFailed, match=r"(?i)no such file"):
        await bench.processes.spawn(bench.spec(MISSING))


async def test_a_signal_is_a_negative_status_and_a_second_one_no_error(bench: Bench) -> None:
    handle = await bench.processes.spawn(bench.spec(SLEEP))
    handle.signal_group(signal.SIGTERM)
    assert await handle.wait() == -signal.SIGTERM
    handle.signal_group(signal.SIGTERM)
    bench.processes.kill(handle.identity, signal.SIGKILL)


async def test_kill_ends_also_what_ignores_term(bench: Bench) -> None:
    handle = await bench.processes.spawn(bench.spec(STUBBORN))
    await until_left(bench, 2 if bench.forks else 1)
    handle.signal_group(signal.SIGTERM)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await handle.wait()
    handle.signal_group(signal.SIGKILL)
    assert await handle.wait() == -signal.SIGKILL
    await until_left(bench, 0)


async def test_processes_are_found_by_their_whole_marker(bench: Bench) -> None:
    handle = await bench.processes.spawn(bench.spec(SLEEP, SHARD="a/0"))
    assert await bench.processes.marked(bench.marker | {"SHARD": "a/0"}) == [handle.identity]
    assert await bench.processes.marked(bench.marker | {"SHARD": "a"}) == []
    assert await bench.processes.marked(bench.marker | {"SHARD": "a/0", "MORE": "x"}) == []


async def test_only_the_exact_identity_is_adopted_or_killed(bench: Bench) -> None:
    handle = await bench.processes.spawn(bench.spec(SLEEP))
    identity = handle.identity
    for wrong in (
        msgspec.structs.replace(identity, start_time=identity.start_time + 1),
        msgspec.structs.replace(identity, boot_id="another boot"),
    ):
        assert bench.processes.adopt(wrong) is None
        bench.processes.kill(wrong, signal.SIGKILL)
    adopted = bench.processes.adopt(identity)
    assert adopted is not None and adopted.identity == identity
    bench.processes.kill(identity, signal.SIGKILL)
    assert await handle.wait() == -signal.SIGKILL
    async with asyncio.timeout(10):
        await adopted.wait()


async def test_a_group_outlives_its_leader_and_can_still_be_signalled(bench: Bench) -> None:
    handle = await bench.processes.spawn(bench.spec(PARENT))
    assert await handle.wait() == 0
    (child,) = await until_left(bench, 1)
    assert child != handle.identity
    watched = bench.processes.adopt(child)
    assert watched is not None
    handle.signal_group(signal.SIGKILL)
    assert await watched.wait() is None, "another's child: its status is not ours to know"
    await until_left(bench, 0)
