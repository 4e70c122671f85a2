"""Small runs with one kind of trouble each, always the same: what a person reads to see a promise at work.

Laws: a scenario is clean on whole code; each kills at least one mutant; nothing in it is drawn but what
its seed draws for the network.
"""

import asyncio
import signal
from collections.abc import Callable, Coroutine

import msgspec

from llmgw.sim.engines import Fate
from llmgw.sim.faults import power_on
from llmgw.sim.options import Fault, Options, calm_options
from llmgw.sim.steps import converge, stay, stop, until
from llmgw.sim.world import SERVER_ADDRESS, World

Script = Callable[[World], Coroutine[object, object, float | None]]


class Scenario(msgspec.Struct, frozen=True):
    """A script with the options it runs under."""

    script: Script
    options: Options = calm_options()


async def _change_wishes(world: World, **counts: int) -> None:
    world.wishes.want(**counts)
    await world.wish()


async def engine_that_hangs(world: World) -> float | None:
    """An engine that never gets ready ignores TERM: it is killed, and another one started."""
    fates = iter([Fate(1.0, hangs=True)])
    world.fate_for = lambda spec: next(fates, None)
    world.wishes.want(vision=1)
    world.start()
    took = await converge(world, 200.0)
    await stop(world)
    return took


async def slow_load(world: World) -> float | None:
    """Engines take a while to load; routers hear of them when they answer."""
    world.wishes.want(chat=1, vision=1)
    world.start()
    took = await converge(world)
    await stop(world)
    return took


async def server_killed(world: World) -> float | None:
    """The server dies and comes back: what runs is adopted, and nothing is started again."""
    world.wishes.want(chat=3, vision=1, share_a=1)
    world.start()
    await converge(world)
    before = set(world.facts.engines)
    world.server_keeper.signal(signal.SIGKILL)
    await asyncio.sleep(world.options.settling_s + 60.0)
    took = await converge(world)
    if set(world.facts.engines) != before:
        world.fail("adopts", "after the server's restart other engines run than before")
    await stop(world)
    return took


async def agents_killed(world: World) -> float | None:
    """Every agent dies and comes back: the engines are adopted, and none is started again."""
    world.wishes.want(chat=3, vision=1, share_a=1)
    world.start()
    await converge(world)
    before = set(world.facts.engines)
    for node in world.nodes:
        node.keeper.signal(signal.SIGKILL)
    await asyncio.sleep(60.0)
    took = await converge(world)
    if set(world.facts.engines) != before:
        world.fail("adopts", "after the agents' restart other engines run than before")
    await stop(world)
    return took


async def scaled_down_under_a_slow_router(world: World) -> float | None:
    """A replica is not wanted any more: its router is told first, and given its time."""
    world.wishes.want(chat=3)
    world.start()
    await converge(world)
    await _change_wishes(world, chat=1)
    took = await converge(world)
    await stay(world, 10.0)
    await stop(world)
    return took


async def engine_slow_to_stop(world: World) -> float | None:
    """An engine takes its whole grace to stop: its claims are held until it is dead."""
    world.fate_for = lambda spec: Fate(1.0, ignores_term=True)
    world.wishes.want(vision=1)
    world.start()
    await converge(world)
    await _change_wishes(world, chat=1)

    async def told_to_stop() -> bool:
        return any(engine.signalled_at is not None for engine in world.facts.engines.values())

    await until(world, told_to_stop, 60.0)
    await _change_wishes(world, chat=1, share_a=1)
    took = await converge(world)
    await stop(world)
    return took


async def node_back_with_an_empty_disk(world: World) -> float | None:
    """A node is installed anew before it is given up: what ran there is known to be gone."""
    world.wishes.want(vision=1, share_a=1, share_b=1)
    world.start()
    await converge(world)
    for node in world.nodes:
        if node.hardware.cards:
            node.machine.power_off()
            node.machine.files.clear()
    await asyncio.sleep(5.0)
    for node in world.nodes:
        power_on(world, node)
    await asyncio.sleep(30.0)  # until the server misses the streams of before
    took = await converge(world, 200.0)
    await stop(world)
    return took


async def port_left_busy(world: World) -> float | None:
    """An engine leaves a child that holds its port: it is swept with its parent."""
    world.fate_for = lambda spec: Fate(1.0, leaves_port=True)
    world.wishes.want(chat=2)
    world.start()
    await converge(world)
    await _change_wishes(world, embed=1)
    took = await converge(world, 200.0)
    await stop(world)
    return took


async def node_lost_and_back(world: World) -> float | None:
    """A node is cut off until it is given up; when it is back there is too much of it, which is drained."""
    world.wishes.want(chat=3)
    world.start()
    await converge(world)
    victim = world.facts.engines[min(world.facts.engines)].node
    address = next(node.machine.address for node in world.nodes if node.machine.name == victim)
    world.network.isolate(address, [SERVER_ADDRESS])
    await asyncio.sleep(world.options.lost_after_s + 30.0)
    if sum(engine.node != victim for engine in world.facts.engines.values()) < 3:
        world.fail("replaces", "what was lost with a node is not replaced", victim)
    world.network.heal()
    await asyncio.sleep(45.0)
    took = await converge(world, 200.0)
    await stop(world)
    return took


HANGING_ENGINE = Scenario(engine_that_hangs)
SLOW_LOAD = Scenario(slow_load)
SERVER_KILLED = Scenario(server_killed)
AGENTS_KILLED = Scenario(agents_killed)
SCALED_DOWN = Scenario(
    scaled_down_under_a_slow_router,
    msgspec.structs.replace(calm_options(), faults={Fault.SLOW_ROUTER: 1.0}),
)
SLOW_STOP = Scenario(engine_slow_to_stop)

EMPTY_DISK = Scenario(node_back_with_an_empty_disk)
BUSY_PORT = Scenario(port_left_busy)
NODE_LOST = Scenario(node_lost_and_back)

SCENARIOS: tuple[Scenario, ...] = (
    HANGING_ENGINE, SLOW_LOAD, SERVER_KILLED, AGENTS_KILLED, SCALED_DOWN, SLOW_STOP, EMPTY_DISK, BUSY_PORT,
    NODE_LOST,
)  # fmt: skip
