"""Plays one run from its options to its outcome: trouble, healing, convergence, stopping, leaks.

Laws: promises are checked throughout; once healed, the cluster must reach what is wanted within a bound
and stay there; once stopped, nothing may be left of it.
"""

import asyncio
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial

from llmgw.aio.tasks import Tasks
from llmgw.core.inventory import Mark
from llmgw.sim.faults import Injector, power_on, set_mark
from llmgw.sim.goal import what_is_left, why_not_converged
from llmgw.sim.guard import nothing_real
from llmgw.sim.journal import journal
from llmgw.sim.options import Options
from llmgw.sim.report import Outcome
from llmgw.sim.world import World

LOOK_EVERY_S = 0.5
# Beyond the longest backoff (300 s) with a start that fails slowly, a lost node and settling.
CONVERGE_WITHIN_S = 900.0
STEADY_S = 30.0
STOP_WITHIN_S = 60.0
_LAST_BYTES_S = 5.0
_LIMIT_S = 10_000.0

Script = Callable[[World], Coroutine[object, object, float | None]]
"""What happens in a run; returns how long convergence took, if that was asked."""


def run_seed(options: Options) -> Outcome:
    """One run of the swarm."""
    return play(options, swarm_script)


def play(options: Options, script: Script) -> Outcome:
    """Build a world, run a script on it, take it down, and say what it showed."""
    with nothing_real():
        world = World(options)
        with journal(world):
            try:
                converged_s, decided = world.loop.run_for(_played(world, script), _LIMIT_S)
            except TimeoutError:
                converged_s, decided = None, Counter[str]()
                world.fail("ends", f"the run did not end within {_LIMIT_S:g} virtual seconds")
            outcome = _outcome(world, converged_s, decided)
        world.close()
    return outcome


def _outcome(world: World, converged_s: float | None, decided: Counter[str]) -> Outcome:
    violation = world.violation
    return Outcome(
        options=world.options,
        violation=violation,
        story=() if violation is None else tuple(world.trace.story(violation.subjects)),
        digest=world.trace.digest(),
        virtual_s=world.loop.time(),
        converged_s=converged_s,
        fired={kind.value: count for kind, count in world.struck.items()},
        checked={checker.name: checker.checked for checker in world.checkers},
        decided=dict(decided),
    )


async def _played(world: World, script: Script) -> tuple[float | None, Counter[str]]:
    """The script until its end or the first broken promise, with the checkers looking."""
    async with Tasks(lambda what, why: world.fail("simulator", f"{what}: {why!r}")) as tasks:
        playing = tasks.start(script(world), name="script")
        broken = tasks.start(world.broken(), name="broken")
        looking = tasks.start(_look(world), name="look")
        await asyncio.wait((playing, broken, looking), return_when=asyncio.FIRST_COMPLETED)
        done = playing.done() and not playing.cancelled() and playing.exception() is None
        converged_s = playing.result() if done else None
    return converged_s, await world.decisions()


async def _look(world: World) -> None:
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        world.look()


# ---------------------------------------------------------------- scripts and their steps


async def swarm_script(world: World) -> float | None:
    """Trouble, then everything heals, then all must be well."""
    world.start()
    await Injector(world).strike_for(world.options.chaos_s)
    await heal(world)
    took = await converge(world)
    await stay(world, STEADY_S)
    await stop(world)
    return took


async def heal(world: World) -> None:
    """Nothing breaks any more, and what is broken is mended."""
    world.note("healed", "no more faults")
    world.calm = world.weather.calm = True
    world.network.heal()
    for node in world.nodes:
        power_on(world, node)
    for node in world.nodes:
        await until(world, partial(set_mark, world, node.machine.name, Mark.READY), 120.0)
    server = world.server
    if server is not None:
        await server.plane.change_catalog(world.wishes.catalog())


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
            world.fail("converges", f"not within {within_s:g} s of healing: {why}", *why.split())
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
            world.fail("stays", f"it had converged, and then: {why}", *why.split())
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
