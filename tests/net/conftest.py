"""Every test of the network runs on each kind of loop that serves in production.

The simulated loop joins for the tests under `contract/` only: those open sockets through the loop alone.
"""

import asyncio
import random
from collections.abc import Callable, Mapping

import pytest
import uvloop
from hypothesis import settings

from llmgw.sim.loop import SimLoop
from llmgw.sim.network import SimNetwork

# A busy machine is no failure: how long an example takes is bounded by the test's own time limit.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

LoopFactory = Callable[[], asyncio.AbstractEventLoop]

REAL_LOOPS: Mapping[str, LoopFactory] = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def simulated_loop() -> asyncio.AbstractEventLoop:
    return SimLoop(SimNetwork(random.Random(1)))


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Mapping[str, LoopFactory]:
    if "contract" in item.path.parts:
        return {**REAL_LOOPS, "simulated": simulated_loop}
    return REAL_LOOPS
