"""What may block runs away from the loop, bounded."""

import asyncio
import threading

import pytest

from llmgw.aio.tasks import Tasks
from llmgw.host.offloop import OffLoop


async def test_the_value_and_the_error_come_back() -> None:
    off_loop = OffLoop()
    assert await off_loop.run(lambda: 42, within=5) == 42

    def broken() -> int:
        raise OSError("no such disk")

    with pytest.raises(OSError, match="no such disk"):
        await off_loop.run(broken, within=5)


async def test_a_call_that_hangs_does_not_hold_the_loop_longer_than_said() -> None:
    stuck = threading.Event()
    off_loop = OffLoop()
    try:
        with pytest.raises(TimeoutError):
            await off_loop.run(stuck.wait, within=0.05)
        assert await off_loop.run(lambda: 1, within=5) == 1
    finally:
        stuck.set()


async def test_calls_that_hang_keep_their_slots_so_that_threads_are_bounded() -> None:
    stuck = threading.Event()
    off_loop = OffLoop(slots=2)
    before = threading.active_count()
    try:
        for _ in range(5):
            with pytest.raises(TimeoutError):
                await off_loop.run(stuck.wait, within=0.02)
        assert threading.active_count() <= before + 2
    finally:
        stuck.set()
    assert await off_loop.run(lambda: "free again", within=5) == "free again"


async def test_one_thing_that_hangs_holds_one_slot_however_often_it_is_tried() -> None:
    stuck = threading.Event()
    off_loop = OffLoop(slots=2)
    try:
        for _ in range(5):
            with pytest.raises(TimeoutError):
                await off_loop.run(stuck.wait, within=0.02, at="/mnt/dead")
        assert await off_loop.run(lambda: 1, within=5, at="/mnt/alive") == 1
    finally:
        stuck.set()
    assert await off_loop.run(lambda: "answers again", within=5, at="/mnt/dead") == "answers again"


async def test_calls_on_one_thing_follow_each_other_and_one_given_up_while_waiting_frees_it() -> None:
    stuck = threading.Event()
    off_loop = OffLoop(slots=1)
    order: list[int] = []
    async with Tasks() as tasks:
        first = tasks.start(off_loop.run(stuck.wait, within=5, at="a"), name="first")
        await asyncio.sleep(0)  # it takes the slot
        with pytest.raises(TimeoutError):
            await off_loop.run(lambda: order.append(0), within=0.02, at="b")  # waits for the only slot
        later = [
            tasks.start(off_loop.run(lambda n=n: order.append(n), within=5, at="ab"[n % 2]), name="later")  # type: ignore[misc]
            for n in range(1, 9)
        ]
        stuck.set()
        await asyncio.wait([first, *later])
    assert sorted(order) == list(range(1, 9))


async def test_many_at_once_all_come_through() -> None:
    off_loop = OffLoop(slots=3)
    async with Tasks() as tasks:
        running = [tasks.start(off_loop.run(lambda: 1, within=10), name="one") for _ in range(50)]
        await asyncio.wait(running)
        assert sum(task.result() for task in running) == 50
