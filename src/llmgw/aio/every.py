"""Repeats work at a steady pace of the loop's clock.

Laws: beats are multiples of the period from the start, so slow work does not drift; beats missed
while the work ran are skipped, never made up for in a burst; a failure is reported and does not
end the repetition.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NoReturn

from llmgw.aio.tasks import Failed, FailureReport, outcome, report_to_log


async def every(
    period_s: float,
    work: Callable[[], Awaitable[None]],
    *,
    name: str,
    on_failure: FailureReport = report_to_log,
) -> NoReturn:
    """Run `work` at once and then every `period_s` seconds until cancelled."""
    loop = asyncio.get_running_loop()
    due = loop.time()
    while True:
        ended = await outcome(work())
        if isinstance(ended, Failed):
            on_failure(name, ended.failure)
        missed = max(0.0, loop.time() - due) // period_s
        due += (missed + 1) * period_s
        await asyncio.sleep(max(0.0, due - loop.time()))
