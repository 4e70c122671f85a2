"""Every test of the network runs on each kind of loop that serves in production.

A simulated loop joins by being added here, for the tests under `contract/` only: those open sockets
through the loop alone.
"""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

LoopFactory = Callable[[], asyncio.AbstractEventLoop]

REAL_LOOPS: Mapping[str, LoopFactory] = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Mapping[str, LoopFactory]:
    return REAL_LOOPS
