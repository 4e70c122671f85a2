"""Everything opened is closed, in reverse, whatever the others do."""

import asyncio

import pytest

from llmgw.aio.closing import Closing
from llmgw.aio.tasks import Tasks


async def test_closes_in_reverse_and_goes_on_after_a_failure() -> None:
    order: list[str] = []
    failures: list[str] = []

    async def good() -> None:
        order.append("good")

    async def bad() -> None:
        order.append("bad")
        raise OSError("stuck")

    async with Closing(lambda what, why: failures.append(what)) as closing:
        closing.add("first", good)
        closing.add("second", bad)
    assert order == ["bad", "good"]
    assert failures == ["closing second"]


async def test_one_that_hangs_is_given_up_after_its_bound() -> None:
    order: list[str] = []
    failures: list[str] = []

    async def good() -> None:
        order.append("good")

    async def hangs() -> None:
        await asyncio.Event().wait()

    closing = Closing(lambda what, why: failures.append(f"{what} {type(why).__name__}"))
    closing.add("first", good)
    closing.add("second", hangs, bound_s=0.01)
    await closing.aclose()
    assert order == ["good"]
    assert failures == ["closing second TimeoutError"]
    await closing.aclose()
    assert order == ["good"]


async def test_cancelled_while_closing_still_closes_the_rest() -> None:
    order: list[str] = []
    hanging = asyncio.Event()

    async def good() -> None:
        order.append("good")

    async def hangs() -> None:
        hanging.set()
        await asyncio.Event().wait()

    closing = Closing()
    closing.add("first", good)
    closing.add("second", hangs)
    async with Tasks() as tasks:
        task = tasks.start(closing.aclose(), name="closing")
        await hanging.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert order == ["good"]
