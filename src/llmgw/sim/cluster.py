"""Plays one run from its options to its outcome: a script on a world, with the checkers looking throughout.

Laws: nothing real is reached while it plays; the first broken promise ends it; the world is taken down
whatever happened.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine

from llmgw.aio.tasks import Tasks
from llmgw.sim.faults import Injector
from llmgw.sim.guard import nothing_real
from llmgw.sim.journal import journal
from llmgw.sim.options import Options
from llmgw.sim.report import Outcome
from llmgw.sim.steps import converge, heal, stay, stop
from llmgw.sim.world import World

LOOK_EVERY_S = 0.5
STEADY_S = 15.0  # the agents' questions to engines and the server's turn come many times
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
            for unhandled in world.loop.unhandled:
                world.fail("no_failure", unhandled)
            outcome = _outcome(world, converged_s, decided)
        world.close()
    return outcome


def _outcome(world: World, converged_s: float | None, decided: Counter[str]) -> Outcome:
    violation = world.eyes.violation
    return Outcome(
        options=world.options,
        violation=violation,
        story=() if violation is None else tuple(world.eyes.trace.story(violation.subjects)),
        digest=world.eyes.trace.digest(),
        virtual_s=world.loop.time(),
        converged_s=converged_s,
        fired={kind.value: count for kind, count in world.struck.items()},
        checked={checker.name: checker.checked for checker in world.eyes.checkers},
        decided=dict(decided),
    )


async def _played(world: World, script: Script) -> tuple[float | None, Counter[str]]:
    """The script until its end or the first broken promise, with the checkers looking."""
    async with Tasks(lambda what, why: world.fail("simulator", f"{what}: {why!r}")) as tasks:
        playing = tasks.start(script(world), name="script")
        broken = tasks.start(world.eyes.broken(), name="broken")
        looking = tasks.start(_look(world), name="look")
        await asyncio.wait((playing, broken, looking), return_when=asyncio.FIRST_COMPLETED)
        done = playing.done() and not playing.cancelled() and playing.exception() is None
        converged_s = playing.result() if done else None
    return converged_s, await world.decisions()


async def _look(world: World) -> None:
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        world.look()


async def swarm_script(world: World) -> float | None:
    """Trouble, then everything heals, then all must be well."""
    world.start()
    await Injector(world).strike_for(world.options.chaos_s)
    await heal(world)
    took = await converge(world)
    await stay(world, STEADY_S)
    await stop(world)
    return took
