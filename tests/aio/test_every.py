"""Repeated work keeps its beat, skips missed ones and survives failures."""

import asyncio

import pytest

from llmgw.aio.every import every
from llmgw.aio.tasks import Tasks


class ManualLoop(asyncio.SelectorEventLoop):
    """A loop whose clock jumps to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        scheduled = self._scheduled  # type: ignore[attr-defined]
        if not self._ready and scheduled:  # type: ignore[attr-defined]
            self.now = max(self.now, scheduled[0].when())
        super()._run_once()  # type: ignore[misc]


def beats(work_seconds: list[float], failing: bool = False) -> tuple[list[float], list[str]]:
    loop = ManualLoop()
    started: list[float] = []
    failures: list[str] = []
    enough = asyncio.Event()

    async def work() -> None:
        started.append(loop.time() - 1000.0)
        if len(started) > len(work_seconds):
            enough.set()
            await asyncio.Event().wait()
        await asyncio.sleep(work_seconds[len(started) - 1])
        if failing:
            raise ValueError("beat")

    async def main() -> None:
        async with Tasks() as tasks:
            tasks.start(
                every(1.0, work, name="beat", on_failure=lambda what, why: failures.append(what)),
                name="every",
            )
            await enough.wait()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main())
    return started, failures


def test_slow_work_does_not_drift() -> None:
    assert beats([0.25, 0.5, 0.0])[0] == [0.0, 1.0, 2.0, 3.0]


def test_missed_beats_are_skipped() -> None:
    assert beats([3.5, 0.0])[0] == [0.0, 4.0, 5.0]


def test_a_failure_is_reported_and_the_beat_goes_on() -> None:
    started, failures = beats([0.0, 0.0], failing=True)
    assert started == [0.0, 1.0, 2.0]
    assert failures == ["beat", "beat"]


async def test_cancelling_ends_it() -> None:
    async def work() -> None:
        return None

    async with Tasks() as tasks:
        beat = tasks.start(every(0.001, work, name="beat"), name="every")
        await asyncio.sleep(0)
        beat.cancel()
        with pytest.raises(asyncio.CancelledError):
            await beat
