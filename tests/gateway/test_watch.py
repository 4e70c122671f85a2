"""How a router follows its control plane: for ever, and losing nothing."""

import asyncio
from pathlib import Path

from llmgw.aio.tasks import Tasks
from llmgw.entry.router import build_router, production_ports
from llmgw.gateway.usage import RESEND_AFTER_S
from llmgw.wire import watch_v1 as wire
from tests.gateway.toolkit import (
    IDENTITY,
    Control,
    Engine,
    Talk,
    answers,
    endpoint,
    hangs,
    rig,
    settings,
    snapshot,
)


async def test_a_router_introduces_itself_and_acknowledges(tmp_path: Path) -> None:
    async with rig(tmp_path) as served:
        hello = served.control.heard[0]
        assert isinstance(hello, wire.Hello)
        assert (hello.version, hello.settings_hash, hello.pid, hello.start_time) == ("0.0-test", "abc", 1, 2)
        assert hello.router_id.startswith("router-") and hello.address == served.address
        await served.control.publish(wire.Update(2))


async def test_a_router_that_starts_before_its_control_plane_finds_it(tmp_path: Path) -> None:
    engine, control = Engine(), Control(f"unix:{tmp_path}/watch.sock")
    await engine.open()
    control.snapshot = snapshot([engine])
    async with Tasks() as tasks:
        router = build_router(settings(control.address), IDENTITY, production_ports())
        running = tasks.start(router.run(), name="router")
        await router.opened()
        await control.open()
        await control.until(lambda: wire.Applied(1) in control.heard)
        await router.aclose()
        await running
    await control.close()
    await engine.close()


async def test_a_router_outlives_its_control_plane_and_redials(tmp_path: Path) -> None:
    async with rig(tmp_path, answers(), answers()) as served:
        await served.control.close()
        assert (await served.chat()).status_code == 200
        # The one that starts again knows of one engine only, and counts revisions from anew.
        served.control.snapshot = snapshot(served.engines[1:], revision=1, term=2)
        served.control.heard.clear()
        await served.control.open()
        await served.control.until(lambda: wire.Applied(1) in served.control.heard)
        first = len(served.engines[0].asked)
        for _ in range(4):
            assert (await served.chat()).status_code == 200
        assert len(served.engines[0].asked) == first
        await served.control.until(lambda: len(served.control.rows) == 5)
        assert len({row.request_id for row in served.control.rows}) == 5


async def test_what_is_not_acknowledged_is_sent_again_with_the_same_number(tmp_path: Path) -> None:
    async with rig(tmp_path) as served:
        served.control.stores = False
        await served.chat()

        def batches() -> list[wire.UsageBatch]:
            return [one for one in served.control.heard if isinstance(one, wire.UsageBatch)]

        await served.control.until(lambda: bool(batches()))
        await served.control.close()
        served.control.stores = True
        await served.control.open()
        async with asyncio.timeout(RESEND_AFTER_S - 1):  # at once, not because its answer is overdue
            await served.control.until(lambda: len(batches()) == 2)
        first, second = batches()
        assert first == second
        assert served.control.rows == list(first.rows)


async def test_the_acknowledgement_comes_after_a_report_of_what_is_still_in_flight(tmp_path: Path) -> None:
    async with rig(tmp_path, hangs, tick_s=60.0) as served:
        asking = served.tasks.start(served.chat(), name="client")
        await served.engines[0].has_been_asked()
        await served.control.publish(wire.Update(2, gone_endpoints=("m-0",)))
        assert served.control.use().endpoints["m-0"].in_flight == 1
        asking.cancel()


async def test_use_tells_of_a_withdrawn_endpoint_until_its_last_request_ends(tmp_path: Path) -> None:
    async with rig(tmp_path, hangs) as served:
        asking = served.tasks.start(served.chat(), name="client")
        await served.engines[0].has_been_asked()
        await served.control.publish(wire.Update(2, gone_endpoints=("m-0",)))
        asking.cancel()
        await served.control.until(lambda: "m-0" not in served.control.use().endpoints)


async def test_an_endpoint_that_survives_an_update_keeps_its_counts(tmp_path: Path) -> None:
    async with rig(tmp_path, hangs) as served:
        asking = served.tasks.start(served.chat(), name="client")
        await served.engines[0].has_been_asked()
        heavier = endpoint(served.engines[0], weight=4.0)
        await served.control.publish(wire.Update(2, endpoints=(heavier,)))
        assert served.control.use().endpoints["m-0"].in_flight == 1
        asking.cancel()
        use = await served.settled()
        assert use.endpoints["m-0"].idle_s is not None


async def test_an_idle_endpoint_that_was_never_used_says_so(tmp_path: Path) -> None:
    async with rig(tmp_path) as served:
        use = await served.settled()
        assert use.endpoints["m-0"] == wire.EndpointUse(0, None, None)


async def test_a_message_from_a_newer_version_is_ignored(tmp_path: Path) -> None:
    async with rig(tmp_path) as served:
        for stream in served.control.streams:
            await stream.send(b'{"type": "surprise", "x": 1}')
            await stream.send(b"\xff not json")
        await served.control.publish(wire.Update(2))


async def test_asked_to_drain_a_router_finishes_and_ends(tmp_path: Path) -> None:
    release = asyncio.Event()

    async def slow(talk: Talk) -> None:
        await release.wait()
        await answers()(talk)

    async with rig(tmp_path, slow) as served:
        asking = served.tasks.start(served.chat(), name="client")
        await served.engines[0].has_been_asked()
        seen = len(served.control.heard)
        await served.control.say(wire.Drain("replaced", 5.0))
        await served.control.until(lambda: len(served.control.heard) > seen + 2)
        release.set()
        assert (await asking).status_code == 200
        await served.control.until(lambda: len(served.control.rows) == 1)
        await served.control.until(lambda: not served.control.streams)


async def test_withdrawn_and_published_again_it_is_used_again(tmp_path: Path) -> None:
    async with rig(tmp_path) as served:
        await served.control.publish(wire.Update(2, gone_endpoints=("m-0",)))
        assert (await served.chat()).status_code == 503
        await served.control.publish(wire.Update(3, endpoints=(endpoint(served.engines[0]),)))
        assert (await served.chat()).status_code == 200
