"""A control plane over real databases that stall, vanish and come back: what runs goes on, nothing is lost.

Law: the database is what is broken here, from outside; the server has its production adapters.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from sqlalchemy import select

from llmgw.ports import LeaseOwner
from llmgw.store import lease
from llmgw.store.database import Bounds, Database
from llmgw.store.opening import open_database
from llmgw.store.store import SqlStore, migrate
from llmgw.store.tables import USAGE
from llmgw.wire import agent_v1, watch_v1
from tests.conftest import ran_on, running_cluster
from tests.control.harness import Router, Server, Site, one_model, until
from tests.support.postgres import PostgresCluster

ASKER = LeaseOwner("other", "boot", 2, 2)
LEASE_S = 1.5
BOUNDS = Bounds(read_s=0.5, write_s=0.5, lock_s=0.3)


class DatabaseSite(Site):
    """A site over a real database, which a test can take away."""

    def __init__(
        self, folder: Path, database: Database, away: Callable[[], AbstractContextManager[None]]
    ) -> None:
        super().__init__(folder)
        self.real = database
        self.away = away

    def store(self) -> SqlStore:
        return SqlStore(self.real, lambda holder: False)


@pytest.fixture(scope="module")
def breakable() -> Iterator[PostgresCluster]:
    yield from running_cluster()


@contextmanager
def killed(cluster: PostgresCluster) -> Iterator[None]:
    """Gone while the block runs."""
    cluster.kill()
    try:
        yield
    finally:
        cluster.start()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another process's write that does not end while the block runs."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.close()


class Kind(NamedTuple):
    database: str
    away: str


KINDS = (Kind("postgresql", "frozen"), Kind("postgresql", "killed"), Kind("sqlite", "locked"))


@pytest.fixture(params=KINDS, ids=" ".join)
async def trouble(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[DatabaseSite]:
    kind: Kind = request.param
    ran_on(request, kind.database)
    away: Callable[[], AbstractContextManager[None]]
    if kind.database == "sqlite":
        url, away = f"sqlite:///{tmp_path / 'store.db'}", lambda: locked(tmp_path / "store.db")
    else:
        cluster: PostgresCluster = request.getfixturevalue("breakable")
        url = cluster.url(cluster.database())
        away = cluster.frozen if kind.away == "frozen" else lambda: killed(cluster)
    database = open_database(url, bounds=BOUNDS)
    site = DatabaseSite(tmp_path, database, away)
    await migrate(database, site.draw)
    yield site
    await database.aclose()
    site.engine.dispose()


def usage(*ids: str) -> watch_v1.UsageBatch:
    rows = (watch_v1.UsageRow(request_id=id, at=1.0, key_id="key-1", model_asked="m") for id in ids)
    return watch_v1.UsageBatch(1, tuple(rows))


async def turns(server: Server, count: int) -> None:
    """So many further decisions are made."""
    goal = server.plane.owner.turns + count
    await until(lambda: server.plane.owner.turns >= goal, "the fleet goes on being decided about")


async def stored(site: DatabaseSite) -> list[str]:
    return sorted(await site.real.run(lambda c: c.scalars(select(USAGE.c.request_id)).all()))


async def test_a_store_that_is_away_stops_nothing_that_runs_and_loses_nothing(trouble: DatabaseSite) -> None:
    async with trouble.server(one_model(2), lease_s=LEASE_S) as server:
        await until(lambda: server.plane.owner.state().term is not None, "it leads")
        router, agent = await server.router(), await server.agent()
        await until(lambda: len(router.endpoints) == 2, "both replicas serve")
        await turns(server, 1)
        term = server.plane.owner.state().term
        with trouble.away():
            await router.say(usage("r1", "r2"))
            first = next(iter(agent.shards))
            await agent.report(first, "failed", failure="engine_exited", reason="signal 9")
            await until(lambda: first.replica not in router.endpoints, "the dead engine leaves the table")
            await server.plane.change_catalog(one_model(3))
            await until(lambda: len(agent.all(agent_v1.StartShard)) > 3, "engines are started")
            await turns(server, 60)  # longer than the lease
            await until(lambda: server.plane.keeper.trouble is not None, "the trouble is shown")
            assert router.all(watch_v1.UsageStored) == [], "not acknowledged before it is stored"
            assert server.plane.owner.state().term == term, (
                "a store that is away is no evidence of another leader"
            )
            newcomer = await server.router("r2")
            await until(lambda: set(newcomer.endpoints) == set(router.endpoints), "a new router is served")
            assert newcomer.endpoints
        await recovered(trouble, server, router)
        assert server.plane.owner.state().term == term
        other = await trouble.store().take(ASKER, LEASE_S)
        assert (other.held, other.holder.owner, other.term) == (False, "server-1", term)


async def recovered(trouble: DatabaseSite, server: Server, router: Router) -> None:
    """Everything that waited reaches the store, with nobody's help."""
    await until(lambda: server.plane.keeper.trouble is None, "the trouble is over")
    await router.say(usage("r1", "r2"))  # as routers do until it is acknowledged
    assert (await router.next(watch_v1.UsageStored)).batch == 1
    assert await stored(trouble) == ["r1", "r2"]
    decided = [event.text for event in server.plane.keeper.recent(100, None, None)]
    kept = [event.text for event in await trouble.store().events(100, None, None)]
    assert any("signal 9" in text for text in kept)
    # An answer lost on its way back is written again: none is missing, which is what is promised.
    assert set(kept) == set(decided)
    async with asyncio.timeout(10.0):
        # It is renewed by itself, and nobody is told.
        while (await trouble.real.run(lambda c: lease.current(c, ASKER))).expires_in_s < 0:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_a_server_stops_in_time_while_its_store_is_away_and_the_next_leads(
    trouble: DatabaseSite,
) -> None:
    loop = asyncio.get_running_loop()
    async with trouble.server(lease_s=LEASE_S) as server:
        await until(lambda: server.plane.owner.state().term == 1)
        with trouble.away():
            began = loop.time()
            await server.aclose()
            assert loop.time() - began < 5.0
    async with trouble.server(name="server-2", lease_s=LEASE_S) as server:
        await until(lambda: server.plane.owner.state().term == 2, "the lease that was not given up expired")
