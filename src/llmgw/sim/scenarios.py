"""Small runs with one kind of trouble each, always the same: what a person reads to see a promise at work.

Laws: a scenario is clean on whole code; each kills at least one mutant; nothing in it is drawn but what
its seed draws for the network.
"""

import asyncio
import signal
from collections.abc import Callable, Coroutine

import msgspec

from llmgw.sim.engines import Fate
from llmgw.sim.options import Fault, Options, calm_options
from llmgw.sim.steps import converge, stay, stop
from llmgw.sim.world import World

Script = Callable[[World], Coroutine[object, object, float | None]]


class Scenario(msgspec.Struct, frozen=True):
    """A script with the options it runs under."""

    script: Script
    options: Options = calm_options()


async def _change_wishes(world: World, **counts: int) -> None:
    world.wishes.want(**counts)
    await world.wish()


async def card_of_an_engine_that_hangs(world: World) -> float | None:
    """An engine that never gets ready ignores TERM; its card is given again only when it is dead."""
    fates = iter([Fate(1.0, hangs=True)])
    world.fate_for = lambda spec: next(fates, None)
    world.wishes.want(vision=1)
    world.start()
    took = await converge(world)
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
    await _change_wishes(world, share_a=1, share_b=1)
    took = await converge(world)
    await stop(world)
    return took


HANGING_CARD = Scenario(card_of_an_engine_that_hangs, calm_options(nodes=2))
SLOW_LOAD = Scenario(slow_load)
SERVER_KILLED = Scenario(server_killed)
AGENTS_KILLED = Scenario(agents_killed)
SCALED_DOWN = Scenario(
    scaled_down_under_a_slow_router,
    msgspec.structs.replace(calm_options(), faults={Fault.SLOW_ROUTER: 1.0}),
)
SLOW_STOP = Scenario(engine_slow_to_stop)

SCENARIOS: tuple[Scenario, ...] = (
    HANGING_CARD, SLOW_LOAD, SERVER_KILLED, AGENTS_KILLED, SCALED_DOWN, SLOW_STOP
)  # fmt: skip
