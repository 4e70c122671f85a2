"""The admin API's answers, from a running control plane."""

import pytest

from llmgw.control.admin import Admin
from llmgw.core.inventory import Mark, OperatorMark
from llmgw.ports import AdminRefused, LogFollower
from llmgw.wire import agent_v1
from tests.control.harness import Agent, Server, Site, one_model, until
from tests.core.makers import catalog, definition


async def ready(server: Server) -> Agent:
    agent = await server.agent()
    await until(lambda: server.phases() == ["ready"])
    return agent


async def lines(follower: LogFollower) -> list[str]:
    return [line async for line in follower]


async def test_the_fleet_in_one_screen(site: Site) -> None:
    async with site.server(one_model()) as server:
        await ready(server)
        await server.router("r1", address="127.0.0.1:8080")
        await until(lambda: bool(Admin(server.plane).routers()))
        status = Admin(server.plane).status()
        assert (status.term, status.leading, status.store) == (1, True, "ok")
        assert (status.nodes, status.replicas) == ({"ready": 1}, {"ready": 1})
        assert (status.models[0].state, status.models[0].ready) == ("ready", 1)
        assert status.routers[0].address == "127.0.0.1:8080"
        assert status.problems == ()


async def test_what_is_wrong_is_said_with_its_reason(site: Site) -> None:
    huge = catalog(definition("big", {"engine": "sim", "min_memory_gb": 500}, scaling={"min": 1}))
    async with site.server(huge) as server:
        await server.agent()
        await until(lambda: "500 GB" in (Admin(server.plane).models()[0].reason or ""))
        (model,) = Admin(server.plane).models()
        assert (model.state, model.wanted, model.ready) == ("waiting", 1, 0)
        assert any("big: 0 of 1 ready" in text for text in Admin(server.plane).status().problems)


async def test_a_model_that_failed_says_why_and_when_it_is_tried_again(site: Site) -> None:
    async with site.server() as server:
        agent = await ready(server)
        (key,) = agent.shards
        await agent.report(key, "failed", failure="out_of_memory", reason="killed while loading")
        await until(lambda: server.phases() == [])
        (model,) = Admin(server.plane).models()
        assert (model.state, model.reason) == ("failed", "killed while loading")
        assert model.retry_s is not None
        assert 0 < model.retry_s <= 6.25


async def test_where_one_more_would_go_and_an_unknown_model_with_names_that_are_close(site: Site) -> None:
    async with site.server(catalog(definition("qwen", {"engine": "sim"}, scaling={"min": 1}))) as server:
        await ready(server)
        explained = await Admin(server.plane).explain("qwen")
        assert "1 ready" in explained.outcome
        assert "n1" in explained.outcome
        assert explained.profiles[0].nodes[0].verdict == "chosen"
        with pytest.raises(AdminRefused, match="qwen") as refused:
            await Admin(server.plane).explain("qwem")
        assert refused.value.status == 404


async def test_an_alias_is_explained_as_its_model_and_a_drawn_one_asks_which(site: Site) -> None:
    qwen = definition("qwen", {"engine": "sim"}, scaling={"min": 1}, aliases=["small"])
    other = definition("other", {"engine": "sim"}, scaling={"min": 0})
    mixed = {"mixed": {"qwen": 90, "other": 10}}
    async with site.server(catalog(qwen, other, aliases=mixed)) as server:
        await ready(server)
        assert (await Admin(server.plane).explain("small")).model == "qwen"
        with pytest.raises(AdminRefused, match="drawn from qwen, other; name one of them"):
            await Admin(server.plane).explain("mixed")


async def test_a_cordon_is_stored_in_force_when_answered_and_survives_the_server(site: Site) -> None:
    async with site.server() as server:
        await ready(server)
        row = await Admin(server.plane).set_mark("n1", OperatorMark(Mark.CORDONED, "disk swap", "ana@host"))
        assert row.mark == "cordoned"
        assert row.reasons == ("cordoned by ana@host: disk swap",)
    async with site.server(name="server-2") as server:
        await server.agent(cluster_id=await site.store().cluster_id())
        await until(lambda: bool(server.plane.owner.state().links))
        (node,) = Admin(server.plane).nodes()
        assert node.mark == "cordoned"
        assert node.reasons == ("cordoned by ana@host: disk swap",)


async def test_a_mark_that_cannot_be_stored_changes_nothing(site: Site) -> None:
    async with site.server() as server:
        await ready(server)
        site.faults.away = True
        with pytest.raises(AdminRefused) as refused:
            await Admin(server.plane).set_mark("n1", OperatorMark(Mark.CORDONED))
        assert refused.value.status == 503
        assert server.plane.owner.state().nodes["n1"].mark.mark is Mark.READY


async def test_unknown_nodes_and_drains_are_refused_with_what_to_do(site: Site) -> None:
    async with site.server() as server:
        await ready(server)
        with pytest.raises(AdminRefused, match="known: n1"):
            await Admin(server.plane).set_mark("n9", OperatorMark(Mark.CORDONED))
        with pytest.raises(AdminRefused, match="not available in this version; cordon"):
            await Admin(server.plane).set_mark("n1", OperatorMark(Mark.DRAINING))


async def test_an_engines_log_comes_from_its_node_and_ends(site: Site) -> None:
    async with site.server() as server:
        agent = await ready(server)
        (key,) = agent.shards
        follower = await Admin(server.plane).logs(key.replica, 0, 50, follow=False)
        request = await agent.next(agent_v1.LogRequest)
        assert (request.replica, request.rank, request.lines, request.follow) == (key.replica, 0, 50, False)
        await agent.say(agent_v1.LogLines(request.request_id, ("a", "b"), last=True))
        assert await lines(follower) == ["a", "b"]


async def test_a_followed_log_ends_with_its_node_and_a_reader_that_leaves_cancels(site: Site) -> None:
    async with site.server() as server:
        agent = await ready(server)
        (key,) = agent.shards
        left = await Admin(server.plane).logs(key.replica, 0, 50, follow=True)
        stayed = await Admin(server.plane).logs(key.replica, 0, 50, follow=True)
        await until(lambda: len(agent.all(agent_v1.LogRequest)) == 2)
        await left.aclose()
        first = agent.all(agent_v1.LogRequest)[0]
        assert (await agent.next(agent_v1.LogCancel)).request_id == first.request_id
        await agent.aclose()
        assert await lines(stayed) == ["[its node disconnected]"]


async def test_logs_of_what_is_not_there_are_refused_with_what_is(site: Site) -> None:
    async with site.server() as server:
        agent = await ready(server)
        (key,) = agent.shards
        with pytest.raises(AdminRefused, match=f"running: {key.replica}") as refused:
            await Admin(server.plane).logs("m-00000000", 0, 10, follow=False)
        assert refused.value.status == 404
        await agent.aclose()
        await until(lambda: not server.plane.owner.state().links)
        with pytest.raises(AdminRefused, match="n1 is not connected") as away:
            await Admin(server.plane).logs(key.replica, 0, 10, follow=False)
        assert away.value.status == 503


async def test_decisions_are_read_newest_first_by_model_or_node(site: Site) -> None:
    async with site.server() as server:
        await ready(server)
        admin = Admin(server.plane)
        kinds = [row.kind for row in await admin.events(50, None, None)]
        assert kinds[0] == "replica_ready"
        assert {"leading", "node_joined", "placed"} <= set(kinds)
        assert {row.node for row in await admin.events(50, None, "n1")} == {"n1"}
        assert await admin.events(50, "other", None) == ()
