"""Raw clients that are gone when the test is over."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest_asyncio

from tests.net.toolkit import Wire

Dial = Callable[[str], Awaitable[Wire]]


@pytest_asyncio.fixture
async def dial() -> AsyncIterator[Dial]:
    opened: list[Wire] = []

    async def open_wire(address: str) -> Wire:
        wire = await Wire.dial(address)
        opened.append(wire)
        return wire

    yield open_wire
    for wire in opened:
        await wire.gone()
