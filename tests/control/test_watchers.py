"""Routers' streams: a snapshot, then what differs, acknowledged; usage stored off the owner's path (G17)."""

import asyncio

import msgspec
import pytest

from llmgw.ports import MessageStream, StreamClosed
from llmgw.store import api_keys
from llmgw.wire import agent_v1, watch_v1
from tests.control.harness import Router, Server, Site, one_model, until
from tests.wire.samples import USAGE


def row(id: str) -> watch_v1.UsageRow:
    return msgspec.structs.replace(USAGE, request_id=id)


class NeverSent:
    """A stream whose other end does not read: sending waits until it is closed."""

    def __init__(self, stream: MessageStream) -> None:
        self._stream = stream
        self._closed = asyncio.Event()

    async def send(self, message: bytes) -> None:
        await self._closed.wait()
        raise StreamClosed("closed while sending")

    async def close(self, reason: str = "") -> None:
        self._closed.set()
        await self._stream.close(reason)


async def settled(server: Server) -> Router:
    router, _ = await server.router(), await server.agent()
    await until(lambda: len(router.endpoints) == 1)
    return router


async def test_a_router_that_joins_late_gets_the_whole_table_at_once(site: Site) -> None:
    async with site.server() as server:
        first = await settled(server)
        late = await server.router("r2")
        snapshot = await late.next(watch_v1.Snapshot)
        assert late.endpoints == first.endpoints
        assert late.models == first.models
        assert snapshot.revision == first.revision
        assert snapshot.term == 1


async def test_revisions_rise_by_one_and_an_update_carries_only_what_differs(site: Site) -> None:
    async with site.server(one_model(2)) as server:
        router = await server.router()
        agent = await server.agent()
        await until(lambda: len(router.endpoints) == 2)
        before = len(router.heard)
        await agent.report(
            sorted(agent.shards, key=lambda key: key.replica)[0], "failed", failure="unhealthy"
        )
        await until(lambda: len(router.endpoints) == 1)
        update = router.heard[before]
        assert isinstance(update, watch_v1.Update)
        assert (len(update.gone_endpoints), update.endpoints, update.keys) == (1, (), ())
        revisions = [
            one.revision for one in router.heard if isinstance(one, watch_v1.Snapshot | watch_v1.Update)
        ]
        assert revisions == list(range(revisions[0], revisions[0] + len(revisions)))


async def test_a_key_made_on_the_store_reaches_routers_within_its_second(site: Site) -> None:
    async with site.server() as server:
        router = await settled(server)
        draft = api_keys.KeyDraft("ci")
        _, fresh = await site.database.write(
            lambda open: api_keys.create_key(open, draft, site.draw, ("ana@host", "test"))
        )
        await until(lambda: fresh.public_id in router.keys)
        assert router.keys[fresh.public_id].secret_sha256 == fresh.secret_sha256


async def test_what_routers_acknowledge_and_use_is_what_operators_see(site: Site) -> None:
    async with site.server() as server:
        router = await settled(server)
        (id,) = router.endpoints
        await router.use({id: 3})
        await until(lambda: server.plane.owner.state().routers["r1"].use.get(id) is not None)
        seen = server.plane.owner.state().routers["r1"]
        assert (seen.applied, seen.use[id].in_flight) == (router.revision, 3)


async def test_usage_is_acknowledged_once_it_is_in_the_store_and_again_when_it_comes_again(
    site: Site,
) -> None:
    async with site.server() as server:
        router = await settled(server)
        for _ in range(2):
            router.heard.clear()
            await router.say(watch_v1.UsageBatch(1, (row("a"), row("b"))))
            assert (await router.next(watch_v1.UsageStored)).batch == 1


async def test_usage_waits_for_a_store_that_is_away_and_nothing_else_does(site: Site) -> None:
    async with site.server() as server:
        router = await settled(server)
        site.faults.away = True
        await router.say(watch_v1.UsageBatch(1, (row("a"),)))
        agent = await server.agent("n2")
        await agent.next(agent_v1.Welcome)
        await server.plane.change_catalog(one_model(2))
        await until(lambda: len(router.endpoints) == 2, "placing goes on without the store")
        assert router.all(watch_v1.UsageStored) == []
        site.faults.away = False
        await router.say(watch_v1.UsageBatch(1, (row("a"),)))
        assert (await router.next(watch_v1.UsageStored)).batch == 1


async def test_a_batch_repeated_while_the_store_stalls_is_stored_by_one_task(site: Site) -> None:
    async with site.server() as server:
        router = await settled(server)
        site.faults.gate.clear()
        running = len(server.plane._tasks)
        for _ in range(50):
            await router.say(watch_v1.UsageBatch(1, (row("a"),)))
        await router.say(watch_v1.Applied(router.revision + 1000))
        await until(lambda: server.plane.owner.state().routers["r1"].applied > 1000, "all were read")
        assert len(server.plane._tasks) <= running + 1
        site.faults.gate.set()
        await router.next(watch_v1.UsageStored)


async def test_the_same_router_on_a_new_stream_replaces_the_old_one_and_stays_known(site: Site) -> None:
    async with site.server() as server:
        old = await settled(server)
        new = await server.router()
        await new.next(watch_v1.Snapshot)
        await old.end()
        await until(lambda: server.plane.owner.state().routers["r1"].applied == new.revision)
        assert len(server.plane.routers.hellos()) == 1


async def test_a_router_that_leaves_is_not_waited_for(site: Site) -> None:
    async with site.server() as server:
        router = await settled(server)
        await router.aclose()
        await until(lambda: server.plane.owner.state().routers == {})
        assert server.plane.routers.hellos() == ()


async def test_a_router_that_does_not_read_is_closed_and_holds_nobody_up(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmgw.control.watchers.OUTBOX_MAX", 2)
    async with site.server() as server:
        router = await settled(server)
        deaf = await server.router("deaf")
        await deaf.next(watch_v1.Snapshot)
        link = server.plane.routers._links["deaf"]
        monkeypatch.setattr(link, "stream", NeverSent(link.stream))
        for count in range(2, 7):
            before = router.revision
            await server.plane.change_catalog(one_model(count))
            await until(lambda before=before: router.revision > before)  # type: ignore[misc]
        assert "not being read" in await deaf.end()


async def test_what_a_newer_router_says_is_counted_and_ignored(site: Site) -> None:
    async with site.server() as server:
        router = await settled(server)
        await router.stream.send(b'{"type":"telemetry_v9"}')
        await until(lambda: server.plane.routers.unknown_messages == 1)
        assert router.closed is None


async def test_a_restarted_server_names_the_nodes_it_has_not_heard(site: Site) -> None:
    async with site.server() as server:
        await settled(server)
    async with site.server(name="server-2", settling_s=60.0) as server:
        router = await server.router()
        assert (await router.next(watch_v1.Snapshot)).unheard == ("n1",)
        await server.agent()
        update = await router.next(watch_v1.Update, lambda one: one.unheard is not None)
        assert update.unheard == ()
