"""Judges how `llmgw server` comes to lead: at once, after a dead holder's lease, or not at all (H2)."""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from llmgw.aio.tasks import Tasks
from llmgw.entry.process import CannotRun, Stop
from llmgw.entry.server import prepare_store
from llmgw.ports import LeaseOwner
from llmgw.store.inline import InlineDatabase, inline_engine
from llmgw.store.store import SqlStore, migrate

OTHER = LeaseOwner("other", "boot", 4711, 1, "host-a:8443")
MINE = LeaseOwner("mine", "boot", 4712, 1)


class Place:
    """A store whose clock is the loop's, with nobody known to be dead."""

    def __init__(self) -> None:
        self.engine = inline_engine(asyncio.get_running_loop().time)
        self.database = InlineDatabase(self.engine)
        self.store = SqlStore(self.database, lambda holder: False)

    async def prepare(self, waiting: Stop | None) -> None:
        await prepare_store(self.database, self.store, MINE, random.Random(1), waiting=waiting)

    async def leads(self) -> str:
        return (await self.store.take(LeaseOwner("asker", "boot", 1, 1), 1.0)).holder.owner


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    made = Place()
    await migrate(made.database, random.Random(1))
    yield made
    made.engine.dispose()


@pytest.mark.parametrize("patient", [False, True])
async def test_nobody_is_waited_for_where_nobody_leads(place: Place, patient: bool) -> None:
    await place.prepare(Stop() if patient else None)
    assert await place.leads() == "mine"


async def test_where_the_holder_can_be_seen_a_second_server_is_refused_at_once(place: Place) -> None:
    await place.store.take(OTHER, 0.2)
    with pytest.raises(
        CannotRun, match=r"pid 4711 at host-a:8443 is a running llmgw server .* stop it first"
    ):
        await place.prepare(None)
    assert await place.leads() == "other"


async def test_a_lease_nobody_renews_is_waited_for(place: Place) -> None:
    await place.store.take(OTHER, 0.3)
    began = asyncio.get_running_loop().time()
    await place.prepare(Stop())
    assert asyncio.get_running_loop().time() - began >= 0.3
    assert await place.leads() == "mine"


async def test_a_holder_that_renews_lives_and_the_second_server_is_refused(place: Place) -> None:
    await place.store.take(OTHER, 0.3)
    async with Tasks() as tasks:
        tasks.start(renew(place), name="renewals")
        with pytest.raises(CannotRun, match="pid 4711 at host-a:8443 is a running llmgw server"):
            await place.prepare(Stop())
    assert await place.leads() == "other"


async def renew(place: Place) -> None:
    while True:
        await place.store.take(OTHER, 5.0)
        await asyncio.sleep(0.1)


async def test_the_word_to_stop_ends_the_wait(place: Place) -> None:
    await place.store.take(OTHER, 30.0)
    stop = Stop()
    asyncio.get_running_loop().call_later(0.05, stop.ask)
    with pytest.raises(CannotRun, match="asked to stop while waiting"):
        await place.prepare(stop)
