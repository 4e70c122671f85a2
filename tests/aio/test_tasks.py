"""Tasks keep what they start, report what fails, and leave nothing running."""

import asyncio
import gc
import weakref

import pytest

from llmgw.aio.tasks import Failed, Tasks, guarded, outcome, outcome_of


class Boom(Exception):
    pass


async def fail() -> None:
    raise Boom("broken")


async def test_a_failure_is_reported_by_name_and_the_others_go_on() -> None:
    seen: list[tuple[str, str]] = []
    tasks = Tasks(lambda what, failure: seen.append((what, str(failure))))
    going_on = asyncio.Event()

    async def waits() -> str:
        await going_on.wait()
        return "done"

    other = tasks.start(waits(), name="other")
    broken = tasks.start(fail(), name="broken")
    await asyncio.wait([broken])
    going_on.set()
    assert await other == "done"
    assert seen == [("broken", "broken")]
    await tasks.settled()
    assert len(tasks) == 0


async def test_a_task_nobody_else_references_survives_collection() -> None:
    tasks = Tasks()

    async def lonely() -> None:
        # Only the task refers to this future: without an owner the pair would be garbage.
        await asyncio.get_running_loop().create_future()

    task = weakref.ref(tasks.start(lonely(), name="lonely"))
    await asyncio.sleep(0)
    gc.collect()
    assert task() is not None
    await tasks.aclose()


async def test_close_cancels_and_waits_for_clean_up() -> None:
    cleaned = []

    async def careful() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    async with Tasks() as tasks:
        tasks.start(careful(), name="careful")
        await asyncio.sleep(0)
    assert cleaned == [True]


async def test_close_from_one_of_the_tasks_does_not_wait_for_itself() -> None:
    tasks = Tasks()
    ended = asyncio.Event()

    async def closer() -> None:
        await tasks.aclose()
        ended.set()

    tasks.start(asyncio.Event().wait(), name="other")
    tasks.start(closer(), name="closer")
    await ended.wait()


async def test_nothing_starts_after_close() -> None:
    tasks = Tasks()
    await tasks.aclose()
    with pytest.raises(RuntimeError, match="late"):
        tasks.start(fail(), name="late")


async def test_cancellation_is_not_reported() -> None:
    seen: list[str] = []
    tasks = Tasks(lambda what, failure: seen.append(what))
    tasks.start(asyncio.Event().wait(), name="cancelled")
    await asyncio.sleep(0)
    await tasks.aclose()
    assert seen == []


async def test_outcome_returns_failures_as_values_and_lets_cancellation_through() -> None:
    failed = await outcome(fail())
    assert isinstance(failed, Failed)
    assert isinstance(failed.failure, Boom)
    assert await outcome(asyncio.sleep(0, 5)) == 5
    tasks = Tasks()
    waiting = tasks.start(outcome(asyncio.Event().wait()), name="waiting")
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


def test_outcome_of_a_call() -> None:
    def broken() -> int:
        raise Boom

    assert isinstance(outcome_of(broken), Failed)
    assert outcome_of(lambda: 3) == 3


def test_a_guarded_callback_gives_its_failure_away() -> None:
    failures: list[Exception] = []
    got: list[int] = []

    def picky(value: int) -> None:
        if value < 0:
            raise Boom
        got.append(value)

    safe = guarded(picky, failures.append)
    for value in (1, -1, 2):
        safe(value)
    assert got == [1, 2]
    assert len(failures) == 1
    assert isinstance(failures[0], Boom)
