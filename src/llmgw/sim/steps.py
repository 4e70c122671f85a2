"""The steps a run is made of: healing, convergence, staying so, stopping.

Laws: once healed, the cluster must reach what is wanted within a bound and stay there; once stopped,
nothing may be left of it.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from functools import partial

from llmgw.core.inventory import Mark
from llmgw.sim.faults import power_on, set_mark
from llmgw.sim.goal import what_is_left, why_not_converged
from llmgw.sim.world import World

# Beyond the longest backoff (300 s) with a start that fails slowly, a lost node and settling.
CONVERGE_WITHIN_S = 900.0
STOP_WITHIN_S = 60.0
_LAST_BYTES_S = 5.0
_LEAST_LEFT = 2  # nodes on which everything that is ever wanted fits


async def heal(world: World) -> None:
    """Nothing breaks any more, and what is broken is mended, but for what the options leave dead."""
    world.note("healed", "no more faults")
    if world.options.one_stays_dead and len(world.nodes) > _LEAST_LEFT:
        world.bury(world.nodes[-1])
    world.spare()
    world.network.heal()
    for node in world.living():
        power_on(world, node)
    for node in world.living():
        await until(world, partial(set_mark, world, node.machine.name, Mark.READY), 120.0)
    await world.wish()


async def until(world: World, attempt: Callable[[], Awaitable[bool]], bound_s: float) -> None:
    """Try each second until it works; a broken promise when it does not within the bound."""
    ends = world.loop.time() + bound_s
    while not await attempt():
        if world.loop.time() >= ends:
            world.fail("converges", f"something simple did not work for {bound_s:g} s")
            return
        await asyncio.sleep(1.0)


async def converge(world: World, within_s: float = CONVERGE_WITHIN_S) -> float:
    """Wait until all is as wanted; how long it took."""
    began = world.loop.time()
    while (why := why_not_converged(world)) is not None:
        if world.loop.time() - began >= within_s:
            world.fail("converges", f"not within {within_s:g} s of healing: {why}")
            break
        await asyncio.sleep(1.0)
    world.note("converged", f"after {world.loop.time() - began:.1f} s")
    return world.loop.time() - began


async def stay(world: World, seconds: float) -> None:
    """What converged stays so."""
    ends = world.loop.time() + seconds
    while world.loop.time() < ends:
        await asyncio.sleep(1.0)
        why = why_not_converged(world)
        if why is not None:
            world.fail("stays", f"it had converged, and then: {why}")
            return


async def stop(world: World) -> None:
    """Ask every role to end; nothing may be left but engines, which are killed."""
    world.note("stopping", "all roles")
    for keeper in (*(node.keeper for node in world.nodes), world.server_keeper):
        if not await keeper.stop(STOP_WITHIN_S):
            world.fail("stops", f"{keeper.title} did not end within {STOP_WITHIN_S:g} s of TERM")
    for machine in world.machines():
        for process in machine.processes():
            machine.kill(process.identity, signal.SIGKILL)
    await asyncio.sleep(_LAST_BYTES_S)
    left = what_is_left(world)
    if left is not None:
        world.fail("no_leak", left)
