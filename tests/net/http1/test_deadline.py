"""A deadline that moves costs nothing and fires once, in time."""

import asyncio

from llmgw.net.http1.deadline import Deadline


async def test_moving_later_arms_no_timer_and_firing_waits_for_the_last_move() -> None:
    loop = asyncio.get_running_loop()
    fired = asyncio.Event()
    deadline = Deadline(loop, fired.set)
    start = loop.time()
    deadline.set(start + 0.01)
    timer = deadline._timer
    for step in range(2, 6):
        deadline.set(start + 0.01 * step)
        assert deadline._timer is timer
    await fired.wait()
    assert loop.time() - start >= 0.048


async def test_moving_earlier_fires_earlier() -> None:
    loop = asyncio.get_running_loop()
    fired = asyncio.Event()
    deadline = Deadline(loop, fired.set)
    deadline.set(loop.time() + 3600)
    deadline.set(loop.time() + 0.01)
    async with asyncio.timeout(5):
        await fired.wait()


async def test_a_cleared_deadline_does_not_fire_and_a_cancelled_one_leaves_no_timer() -> None:
    loop = asyncio.get_running_loop()
    fired: list[bool] = []
    deadline = Deadline(loop, lambda: fired.append(True))
    deadline.set(loop.time() + 0.005)
    deadline.clear()
    other = Deadline(loop, lambda: fired.append(True))
    other.set(loop.time() + 0.005)
    other.cancel()
    assert other._timer is None
    await asyncio.sleep(0.02)
    assert fired == []
