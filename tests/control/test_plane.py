"""The control plane through its own door: real streams, a real store, agents and routers around it."""

import msgspec
import pytest

from llmgw.control.plane import CannotListen
from llmgw.net.streams import StreamDialer
from llmgw.wire import agent_v1, watch_v1
from tests.control.harness import Agent, Site, one_model, until
from tests.core.makers import catalog


async def test_an_agent_running_nothing_is_news_its_node_gets_the_model_and_routers_the_endpoint(
    site: Site,
) -> None:
    async with site.server() as server:
        router = await server.router()
        agent = await server.agent()
        start = await agent.next(agent_v1.StartShard)
        assert start.spec.model == "m"
        assert start.spec.address == "127.0.0.1"
        assert start.spec.claim.ports == (start.spec.port,)
        assert len(start.spec.engine_key) == 64
        await router.next(watch_v1.Update, lambda update: bool(update.endpoints))
        (endpoint,) = router.endpoints.values()
        assert (endpoint.id, endpoint.model, endpoint.port) == (start.spec.key.replica, "m", start.spec.port)
        assert endpoint.engine_key == start.spec.engine_key


async def test_an_agent_is_welcomed_with_the_cluster_the_term_and_the_ports(site: Site) -> None:
    async with site.server() as server:
        welcome = await (await server.agent()).next(agent_v1.Welcome)
        assert welcome.cluster_id == await site.store().cluster_id()
        assert (welcome.term, welcome.heartbeat_s, welcome.port_first) == (1, 0.5, 20000)


async def test_an_agent_that_cuts_its_stream_and_returns_keeps_its_engine_and_opens_one_stream(
    site: Site,
) -> None:
    async with site.server() as server:
        router, first = await server.router(), await server.agent()
        await router.next(watch_v1.Update, lambda update: bool(update.endpoints))
        first.stream._connection.transport.abort()  # type: ignore[attr-defined]
        await until(lambda: not server.plane.owner.state().links, "the cut is noticed")
        again = await server.agent(shards=first.running())
        await again.next(agent_v1.Welcome)
        await until(lambda: len(server.plane.owner.state().links) == 1)
        assert again.all(agent_v1.StartShard) == []
        assert again.all(agent_v1.StopShard) == []
        assert [key.replica for key in again.shards] == list(router.endpoints)


async def test_a_restarted_server_adopts_what_runs_and_starts_nothing(site: Site) -> None:
    async with site.server() as server:
        agent = await server.agent()
        await until(lambda: server.phases() == ["ready"])
        running = agent.running()
    async with site.server(name="server-2", settling_s=60.0) as server:
        agent = await server.agent(shards=running, cluster_id=await site.store().cluster_id(), highest_term=1)
        await until(lambda: server.phases() == ["ready"])
        router = await server.router()
        await until(lambda: list(router.endpoints) == [running[0].key.replica])
        assert router.endpoints[running[0].key.replica].engine_key == running[0].engine_key
        assert (await agent.next(agent_v1.Welcome)).term == 2
        assert server.plane.owner.state().settling_left_s == 0, "every node of the roster is back"
        assert agent.all(agent_v1.StartShard) == []


async def test_an_endpoint_is_withdrawn_and_acknowledged_before_its_engine_is_told_to_stop(
    site: Site,
) -> None:
    async with site.server(withdrawal_ack_s=30.0) as server:
        router, agent = await server.router(), await server.agent()
        await router.next(watch_v1.Update, lambda update: bool(update.endpoints))
        router.obedient = False
        await server.plane.change_catalog(catalog())
        gone = await router.next(watch_v1.Update, lambda update: bool(update.gone_endpoints))
        turns = server.plane.owner.turns
        await until(lambda: server.plane.owner.turns > turns + 3)
        assert agent.all(agent_v1.StopShard) == [], "not acknowledged yet"
        await router.say(watch_v1.Applied(gone.revision))
        await router.use({gone.gone_endpoints[0]: 1})
        turns = server.plane.owner.turns
        await until(lambda: server.plane.owner.turns > turns + 3)
        assert agent.all(agent_v1.StopShard) == [], "one request is in flight"
        await router.use({})
        await agent.next(agent_v1.StopShard)
        await agent.next(agent_v1.ForgetShard)
        await until(lambda: server.phases() == [])


async def test_a_refusal_reaches_the_agent_in_words(site: Site) -> None:
    async with site.server() as server:
        stranger = await server.agent(cluster_id="another")
        refused = await stranger.next(agent_v1.Refused)
        assert "another" in refused.reason
        assert refused.reason.startswith(await stranger.end())


async def test_a_second_agent_of_one_id_is_refused_and_the_same_agent_replaces_its_own_stream(
    site: Site,
) -> None:
    async with site.server() as server:
        first = await server.agent()
        await first.next(agent_v1.Welcome)
        other = await server.agent(instance_id="somebody else")
        assert "n1" in (await other.next(agent_v1.Refused)).reason
        assert first.closed is None
        again = await server.agent(shards=first.running())
        await again.next(agent_v1.Welcome)
        assert "newer stream" in await first.end()


async def test_an_agent_that_has_seen_a_higher_term_joins_once_ours_is_higher(site: Site) -> None:
    async with site.server() as server:
        agent = await server.agent(highest_term=41)
        assert "41" in (await agent.next(agent_v1.Refused)).reason
        await until(lambda: server.plane.owner.state().term == 42)
        assert (await (await server.agent(highest_term=41)).next(agent_v1.Welcome)).term == 42


async def test_messages_of_a_newer_agent_are_counted_and_ignored(site: Site) -> None:
    async with site.server() as server:
        agent = await server.agent()
        await agent.stream.send(b'{"type":"from_the_future"}')
        await agent.stream.send(b"not json at all")
        await agent.say(agent_v1.Heartbeat(memory_total_bytes=5))
        await until(lambda: server.plane.agents.unknown_messages == 2)
        await until(lambda: _memory(server.plane.owner.state().nodes["n1"].report) == 5)
        assert agent.closed is None


def _memory(report: object) -> int | None:
    return getattr(report, "memory_total_bytes", None)


async def test_a_stream_that_does_not_begin_with_a_registration_is_closed_with_that_said(site: Site) -> None:
    async with site.server() as server:
        agent = Agent(await StreamDialer().dial(server.plane.agents_address, "/agent"), "n1")
        await agent.say(agent_v1.Heartbeat())
        assert "registration" in await agent.end()
        await agent.aclose()


async def test_a_stream_that_says_nothing_is_closed_after_a_bound(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmgw.control.agents.FIRST_MESSAGE_S", 0.05)
    monkeypatch.setattr("llmgw.control.watchers.HELLO_S", 0.05)
    async with site.server() as server:
        agent = Agent(await StreamDialer().dial(server.plane.agents_address, "/agent"), "n1")
        assert "no registration" in await agent.end()
        watcher = Agent(await StreamDialer().dial(server.plane.agents_address, "/watch"), "n1")
        assert "no first message" in await watcher.end()
        await agent.aclose()
        await watcher.aclose()


async def test_a_crashed_engine_leaves_the_table_at_once(site: Site) -> None:
    async with site.server() as server:
        router, agent = await server.router(), await server.agent()
        await until(lambda: len(router.endpoints) == 1)
        (key,) = agent.shards
        await agent.report(key, "failed", failure="engine_exited", reason="signal 9", log_tail=("last line",))
        await until(lambda: router.endpoints == {})
        await until(lambda: (router.models["m"].reason or "").endswith("signal 9"))
        await agent.next(agent_v1.ForgetShard)


async def test_a_server_that_gives_up_the_lease_lets_the_next_one_lead_at_once(site: Site) -> None:
    async with site.server():
        pass
    site.dead.clear()
    async with site.server(name="server-2") as server:
        await until(lambda: server.plane.owner.state().term == 2)


async def test_an_address_that_is_taken_is_named(site: Site) -> None:
    async with site.server() as server:
        taken = server.plane.agents_address
        with pytest.raises(CannotListen, match=rf"agents\.listen {taken}.*in use"):
            async with site.server(name="server-2", agents_listen=taken):
                pass


async def test_nodes_are_remembered_with_their_marks_across_servers(site: Site) -> None:
    async with site.server() as server:
        await (await server.agent()).next(agent_v1.Welcome)
    async with site.server(name="server-2", settling_s=60.0) as server:
        await until(lambda: server.plane.owner.state().term is not None)
        state = server.plane.owner.state()
        assert set(state.nodes) == {"n1"}
        assert state.nodes["n1"].report is None
        assert state.settling_left_s > 0


async def test_a_rescaled_catalog_takes_effect_without_a_restart(site: Site) -> None:
    async with site.server() as server:
        await server.agent()
        await until(lambda: server.phases() == ["ready"])
        await server.plane.change_catalog(one_model(3))
        await until(lambda: server.phases() == ["ready"] * 3)


async def test_a_report_with_a_word_of_a_newer_agent_is_kept_and_not_published(site: Site) -> None:
    async with site.server() as server:
        router = await server.router()
        key = agent_v1.ShardKey("m-1a2b3c4d", 0, 1)
        report = agent_v1.ShardReport(
            key, "hibernating", model="m", profile="p0", address="127.0.0.1", port=20001
        )
        agent = await server.agent(shards=(report,))
        await until(lambda: server.phases() == ["starting"])
        assert router.endpoints == {}
        await agent.say(agent_v1.ShardStatus(msgspec.structs.replace(report, phase="ready")))
        await until(lambda: list(router.endpoints) == ["m-1a2b3c4d"])
