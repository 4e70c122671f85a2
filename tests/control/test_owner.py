"""The owner: one event at a time, a turn on news and on every tick, also under a flood."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from llmgw.aio.tasks import Tasks
from llmgw.control.owner import Owner
from llmgw.core import happenings as h
from llmgw.core.fleet import Fleet
from llmgw.core.inventory import Mark, OperatorMark
from tests.control.harness import one_model, until
from tests.core.makers import report
from tests.core.obedient import SETTINGS


class Notes:
    """Performs nothing and notes everything."""

    def __init__(self) -> None:
        self.done: list[h.Effect] = []

    def note(self, effect: h.Effect) -> None:
        self.done.append(effect)

    welcome = refuse = start_shard = stop = forget = publish = remember = raise_term = record = note


@asynccontextmanager
async def running(tick_s: float) -> AsyncIterator[tuple[Owner, Notes]]:
    owner, notes = Owner(Fleet(SETTINGS, one_model()), random.Random(1), tick_s), Notes()
    async with Tasks() as tasks:
        tasks.start(owner.run(notes), name="owner")
        yield owner, notes


async def lead_and_register(owner: Owner) -> None:
    await owner.tell(h.LeaseTaken("c", 1, {}))
    await owner.ask(h.AgentRegistered(1, "i", report("n1"), (), True, None, None))


async def test_news_is_acted_on_at_once_and_not_at_the_next_tick() -> None:
    async with running(tick_s=1000.0) as (owner, notes):
        await until(lambda: owner.turns == 1)
        await lead_and_register(owner)
        await until(lambda: any(isinstance(one, h.StartShard) for one in notes.done))


async def test_time_alone_makes_it_turn() -> None:
    async with running(tick_s=0.01) as (owner, _):
        await until(lambda: owner.turns >= 5)


async def test_news_that_comes_together_costs_one_turn() -> None:
    async with running(tick_s=1000.0) as (owner, _):
        await until(lambda: owner.turns == 1)
        for index in range(100):
            await owner.tell(h.MarkSet(f"n{index}", OperatorMark()))
        await owner.ask(h.KeysChanged())
        await until(lambda: owner.turns == 2)
        assert len(owner.state().nodes) == 100


async def test_a_flood_of_routine_does_not_keep_it_from_turning() -> None:
    async with running(tick_s=0.02) as (owner, _):
        await lead_and_register(owner)
        before = owner.turns

        async def flood() -> None:
            while True:
                await owner.tell(h.AgentHeard(1))

        async with Tasks() as tasks:
            tasks.start(flood(), name="flood")
            await until(lambda: owner.turns >= before + 5)


async def test_who_asks_sees_what_the_event_did() -> None:
    async with running(tick_s=1000.0) as (owner, _):
        await owner.ask(h.MarkSet("n1", OperatorMark(Mark.CORDONED)))
        assert owner.state().nodes["n1"].mark.mark is Mark.CORDONED


async def test_who_stops_waiting_does_not_harm_the_owner() -> None:
    async with running(tick_s=1000.0) as (owner, _):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await owner.ask(h.MarkSet("n1", OperatorMark()))
        await owner.ask(h.MarkSet("n2", OperatorMark()))
        assert "n2" in owner.state().nodes
