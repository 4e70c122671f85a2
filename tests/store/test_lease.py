"""Judges the lease on every database, from an empty table on (H1, H2)."""

import asyncio

import pytest

from llmgw.ports import ControlStore, LeaseOwner
from tests.store.conftest import World

ANN = LeaseOwner("ann", "boot", 100, 1000, "10.0.0.1:8443")
BEN = LeaseOwner("ben", "boot", 200, 2000)
CAT = LeaseOwner("cat", "boot", 300, 3000)


@pytest.fixture
def store(world: World) -> ControlStore:
    return world.store()


async def test_the_first_to_ask_takes_an_empty_lease_in_term_one(store: ControlStore) -> None:
    lease = await store.take(ANN, 10.0)
    assert (lease.held, lease.term, lease.holder) == (True, 1, ANN)
    assert lease.expires_in_s == pytest.approx(10.0)


async def test_renewing_keeps_the_term_and_moves_the_end(store: ControlStore, world: World) -> None:
    await store.take(ANN, 10.0)
    await world.advance(6.0)
    lease = await store.take(ANN, 10.0)
    assert (lease.held, lease.term) == (True, 1)
    assert lease.expires_in_s == pytest.approx(10.0)


async def test_another_is_told_who_holds_it_and_changes_nothing(store: ControlStore, world: World) -> None:
    await store.take(ANN, 10.0)
    await world.advance(9.0)
    lease = await store.take(BEN, 10.0)
    assert (lease.held, lease.term, lease.holder) == (False, 1, ANN)
    assert lease.expires_in_s == pytest.approx(1.0)


async def test_an_expired_lease_goes_to_another_in_a_new_term(store: ControlStore, world: World) -> None:
    await store.take(ANN, 10.0)
    await world.advance(10.0)
    lease = await store.take(BEN, 10.0)
    assert (lease.held, lease.term, lease.holder) == (True, 2, BEN)
    assert not (await store.take(ANN, 10.0)).held


async def test_a_late_holder_nobody_challenged_keeps_its_term(store: ControlStore, world: World) -> None:
    await store.take(ANN, 10.0)
    await world.advance(500.0)
    lease = await store.take(ANN, 10.0)
    assert (lease.held, lease.term) == (True, 1)


async def test_of_many_asking_at_once_one_gets_it(world: World) -> None:
    owners = [LeaseOwner(f"owner-{n}", "boot", n, n) for n in range(8)]
    leases = await asyncio.gather(*(world.store().take(owner, 10.0) for owner in owners))
    holders = {lease.holder.owner for lease in leases}
    assert sum(lease.held for lease in leases) == 1
    assert len(holders) == 1
    assert {lease.term for lease in leases} == {1}


async def test_a_released_lease_is_taken_at_once_in_a_new_term(store: ControlStore) -> None:
    await store.take(ANN, 10.0)
    await store.release(ANN)
    lease = await store.take(BEN, 10.0)
    assert (lease.held, lease.term) == (True, 2)


async def test_only_the_holder_can_release(store: ControlStore) -> None:
    await store.take(ANN, 10.0)
    await store.release(BEN)
    assert (await store.take(ANN, 10.0)).term == 1


async def test_a_dead_holder_is_waited_for_only_where_it_may_be_on_another_machine(
    store: ControlStore, world: World
) -> None:
    await store.take(ANN, 10.0)
    world.dead.add("ann")
    lease = await store.take(BEN, 10.0)
    if not world.one_machine:
        assert (lease.held, lease.term, lease.holder) == (False, 1, ANN)
        await world.advance(10.0)
        lease = await store.take(BEN, 10.0)
    assert (lease.held, lease.term, lease.holder) == (True, 2, BEN)


async def test_of_many_that_find_the_holder_dead_one_gets_it(world: World) -> None:
    await world.store().take(ANN, 10.0)
    world.dead.add("ann")
    if not world.one_machine:
        await world.advance(10.0)
    leases = await asyncio.gather(world.store().take(BEN, 10.0), world.store().take(CAT, 10.0))
    assert sorted(lease.held for lease in leases) == [False, True]
    assert {lease.term for lease in leases} == {2}


async def test_the_holder_raises_the_term_above_what_an_agent_has_seen(store: ControlStore) -> None:
    await store.take(ANN, 10.0)
    assert (await store.raise_term(ANN, 41)).term == 42
    assert (await store.take(ANN, 10.0)).term == 42


async def test_the_term_is_never_lowered(store: ControlStore) -> None:
    await store.take(ANN, 10.0)
    await store.raise_term(ANN, 41)
    assert (await store.raise_term(ANN, 5)).term == 42
    assert (await store.raise_term(ANN, 41)).term == 42


async def test_only_the_holder_can_raise_the_term(store: ControlStore) -> None:
    await store.take(ANN, 10.0)
    lease = await store.raise_term(BEN, 41)
    assert (lease.held, lease.term) == (False, 1)


async def test_raising_the_term_of_an_empty_lease_does_nothing(store: ControlStore) -> None:
    lease = await store.raise_term(ANN, 41)
    assert (lease.held, lease.term) == (False, 0)
    assert (await store.take(ANN, 10.0)).term == 1


async def test_only_the_databases_clock_ends_a_lease(store: ControlStore, world: World) -> None:
    lease = await store.take(ANN, 10.0)
    await world.advance(-5_000.0)
    assert not (await store.take(BEN, 10.0)).held
    await world.advance(5_010.0)
    assert (await store.take(BEN, 10.0)).term == lease.term + 1


async def test_the_cluster_id_is_written_once(world: World) -> None:
    first = await world.store().cluster_id()
    assert len(first) == 32
    assert await world.store().cluster_id() == first
