"""The goal: a cluster is where it should be only when machines, books and routers say the same."""

import asyncio
import signal
from collections.abc import Callable

import pytest

from llmgw.ports import SpawnSpec
from llmgw.sim.cluster import play
from llmgw.sim.goal import what_is_left, why_not_converged
from llmgw.sim.options import calm_options
from llmgw.sim.steps import converge, stop
from llmgw.sim.world import World
from tests.sim.test_machine import Scripted, for_ever

pytestmark = pytest.mark.sim


def kill_server(world: World) -> None:
    world.server_keeper.signal(signal.SIGKILL)


def kill_router(world: World) -> None:
    for process in world.server_machine.processes():
        if process.name in world.facts.routers:
            world.server_machine.kill(process.identity, signal.SIGKILL)


def kill_engine(world: World) -> None:
    engine = next(iter(world.facts.engines.values()))
    engine.process.machine.kill(engine.process.identity, signal.SIGKILL)


def want_more(world: World) -> None:
    world.wishes.want(chat=3)


def leave_a_stray(world: World) -> None:
    world.nodes[0].machine.start(SpawnSpec(("stray",), {}, ""), Scripted(for_ever))


def forget_an_endpoint(world: World) -> None:
    router = next(iter(world.facts.routers.values()))
    router.endpoints.popitem()


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (kill_server, "no server runs"),
        (kill_router, "no router runs"),
        (kill_engine, "engines run"),
        (want_more, "chat: 2 engines run, 3 are wanted"),
        (leave_a_stray, "stray pid"),
        (forget_an_endpoint, "sends to"),
    ],
)
def test_what_is_not_as_it_should_be_is_said(harm: Callable[[World], None], says: str) -> None:
    said: list[str | None] = []

    async def script(world: World) -> None:
        world.wishes.want(chat=2)
        world.start()
        await converge(world)
        said.append(why_not_converged(world))
        harm(world)
        said.append(why_not_converged(world))

    assert play(calm_options(), script).violation is None
    assert said[0] is None
    assert says in (said[1] or "")


def test_a_stopped_cluster_that_left_a_listener_is_found() -> None:
    said: list[str | None] = []

    async def script(world: World) -> None:
        world.start()
        await converge(world)
        await stop(world)
        said.append(what_is_left(world))
        with world.network.running_as("10.0.1.1", "left"):
            await asyncio.get_running_loop().create_server(asyncio.Protocol, "10.0.1.1", 9000)
        said.append(what_is_left(world))

    assert play(calm_options(), script).violation is None
    assert said == [None, "listeners: 10.0.1.1:9000"]


def test_a_failure_nobody_expected_breaks_the_run() -> None:
    async def script(world: World) -> None:
        async def broken() -> None:
            raise LookupError("nobody expects this")

        world.start()
        await converge(world)
        server = world.server
        assert server is not None
        server.plane._tasks.start(broken(), name="broken")
        await asyncio.sleep(1.0)

    violation = play(calm_options(), script).violation
    assert violation is not None
    assert (violation.checker, "nobody expects this" in violation.text) == ("no_failure", True)
