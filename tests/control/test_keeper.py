"""The storekeeper: nothing is lost while the store is away, nothing waits for it, buffers are bounded."""

import asyncio

import pytest

from llmgw.aio.tasks import Tasks
from llmgw.control.keeper import RING, Storekeeper
from llmgw.core import happenings as h
from llmgw.store import api_keys
from llmgw.wire.watch_v1 import UsageBatch
from tests.control.harness import Site
from tests.wire.samples import USAGE


class Told:
    def __init__(self) -> None:
        self.events: list[h.Event] = []

    async def tell(self, event: h.Event) -> None:
        self.events.append(event)


def keeper(site: Site) -> tuple[Storekeeper, Told]:
    told = Told()
    return Storekeeper(site.store(), site.clock, told.tell), told


def event(index: int = 0, model: str = "m") -> h.Record:
    return h.Record("placed", f"number {index}", model, f"{model}-{index:08x}", "n1")


async def test_a_decision_is_read_at_once_and_stored_soon(site: Site) -> None:
    kept, _ = keeper(site)
    kept.record(event(1))
    assert [row.text for row in kept.recent(10, None, None)] == ["number 1"]
    await kept.beat()
    (row,) = await site.store().events(10, None, None)
    assert (row.kind, row.text, row.model, row.node, row.at) == (
        "placed",
        "number 1",
        "m",
        "n1",
        site.clock.at,
    )


async def test_events_wait_for_a_store_that_is_away_and_keep_their_order(site: Site) -> None:
    kept, _ = keeper(site)
    site.faults.away = True
    for index in range(1200):
        kept.record(event(index))
    await kept.beat()
    assert kept.trouble is not None
    assert [row.text for row in await kept.events(2, None, None)] == ["number 1199", "number 1198"]
    site.faults.away = False
    await kept.beat()
    assert not kept.trouble
    stored = await site.store().events(2000, None, None)
    assert [row.text for row in stored] == [f"number {index}" for index in reversed(range(1200))]


async def test_what_waits_is_bounded_the_oldest_go_first_and_are_counted(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmgw.control.keeper.PENDING_MAX", 10)
    kept, _ = keeper(site)
    for index in range(25):
        kept.record(event(index))
    assert kept.dropped_events == 15
    await kept.beat()
    assert [row.text for row in await site.store().events(99, None, None)][-1] == "number 15"


async def test_events_dropped_while_a_write_is_on_its_way_are_not_dropped_twice(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmgw.control.keeper.PENDING_MAX", 10)
    kept, _ = keeper(site)
    for index in range(10):
        kept.record(event(index))
    site.faults.gate.clear()
    async with Tasks() as tasks:
        writing = tasks.start(kept.beat(), name="write")
        await asyncio.sleep(0)
        for index in range(10, 15):
            kept.record(event(index))
        site.faults.gate.set()
        await writing
    await kept.beat()
    texts = [row.text for row in await site.store().events(99, None, None)]
    assert texts == [f"number {index}" for index in reversed(range(15))]


async def test_the_ring_is_bounded_and_filters(site: Site) -> None:
    kept, _ = keeper(site)
    for index in range(RING + 5):
        kept.record(event(index, "a" if index % 2 else "b"))
    assert len(kept.recent(10**6, None, None)) == RING
    assert {row.model for row in kept.recent(50, "a", "n1")} == {"a"}
    assert kept.recent(50, None, "n9") == ()


async def test_nodes_reach_the_roster_also_after_an_outage(site: Site) -> None:
    kept, _ = keeper(site)
    site.faults.away = True
    kept.remember("n1", "10.0.0.1")
    await kept.beat()
    site.faults.away = False
    await kept.beat()
    assert [(row.node_id, row.address) for row in await site.store().roster()] == [("n1", "10.0.0.1")]


async def test_keys_are_read_when_their_revision_moved_and_only_then(site: Site) -> None:
    kept, told = keeper(site)
    await kept.read_keys()
    await kept.read_keys()
    assert told.events == [h.KeysChanged()], "once at the start"
    draft = api_keys.KeyDraft("ci")
    await site.database.write(lambda open: api_keys.create_key(open, draft, site.draw, ("ana@host", "test")))
    await kept.beat()
    assert len(told.events) == 2
    (key,) = kept.keys
    assert (key.disabled, len(key.secret_sha256)) == (False, 64)


async def test_a_batch_is_acknowledged_only_once_it_is_stored(site: Site) -> None:
    kept, _ = keeper(site)
    site.faults.away = True
    assert not await kept.store_usage(UsageBatch(1, (USAGE,)))
    site.faults.away = False
    assert await kept.store_usage(UsageBatch(1, (USAGE,)))
    assert await kept.store_usage(UsageBatch(1, (USAGE,))), "sent twice, stored once"
