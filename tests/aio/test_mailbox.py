"""A mailbox is bounded, ordered, and loses nothing it accepted."""

import asyncio

import pytest

from llmgw.aio.mailbox import Mailbox, MailboxClosed
from llmgw.aio.tasks import Tasks


async def test_order_is_kept_and_a_full_box_refuses() -> None:
    box: Mailbox[int] = Mailbox(2)
    assert box.try_put(1)
    assert box.try_put(2)
    assert not box.try_put(3)
    assert [await box.get(), await box.get()] == [1, 2]
    assert box.try_put(4)
    assert box.take_all() == [4]
    assert len(box) == 0


async def test_senders_wait_in_turn_and_nobody_overtakes_them() -> None:
    box: Mailbox[int] = Mailbox(1)
    box.try_put(0)
    async with Tasks() as tasks:
        for number in (1, 2, 3):
            tasks.start(box.put(number), name=f"put {number}")
        await asyncio.sleep(0)
        got = []
        for _ in range(4):
            got.append(await box.get())
            assert not box.try_put(99) or got == [0, 1, 2, 3]
    assert got == [0, 1, 2, 3]


async def test_a_sender_cancelled_after_its_turn_came_hands_it_on() -> None:
    box: Mailbox[int] = Mailbox(1)
    box.try_put(0)
    async with Tasks() as tasks:
        first = tasks.start(box.put(1), name="first")
        tasks.start(box.put(2), name="second")
        await asyncio.sleep(0)
        assert await box.get() == 0  # grants the first sender its turn, which has not run yet
        first.cancel()
        assert await box.get() == 2


async def test_a_sender_cancelled_in_the_queue_leaves_it() -> None:
    box: Mailbox[int] = Mailbox(1)
    box.try_put(0)
    async with Tasks() as tasks:
        first = tasks.start(box.put(1), name="first")
        tasks.start(box.put(2), name="second")
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        assert await box.get() == 0
        assert await box.get() == 2


async def test_a_cancelled_consumer_loses_nothing() -> None:
    box: Mailbox[int] = Mailbox(1)
    async with Tasks() as tasks:
        consumer = tasks.start(box.get(), name="consumer")
        await asyncio.sleep(0)
        box.try_put(7)
        consumer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await consumer
    assert await box.get() == 7


async def test_closing_delivers_what_was_accepted_then_ends_everyone() -> None:
    box: Mailbox[int] = Mailbox(1)
    box.try_put(1)
    async with Tasks(lambda what, failure: None) as tasks:
        sender = tasks.start(box.put(2), name="sender")
        await asyncio.sleep(0)
        box.close()
        with pytest.raises(MailboxClosed):
            await sender
        assert await box.get() == 1
        with pytest.raises(MailboxClosed):
            await box.get()
        with pytest.raises(MailboxClosed):
            box.try_put(3)
        with pytest.raises(MailboxClosed):
            await box.put(3)


async def test_closing_wakes_a_waiting_consumer() -> None:
    box: Mailbox[int] = Mailbox(1)
    async with Tasks(lambda what, failure: None) as tasks:
        consumer = tasks.start(box.get(), name="consumer")
        await asyncio.sleep(0)
        box.close()
        with pytest.raises(MailboxClosed):
            await consumer
