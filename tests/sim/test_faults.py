"""Every kind of fault hits a running cluster, and the cluster gets over it."""

import msgspec
import pytest

from llmgw.sim.cluster import play
from llmgw.sim.engines import draw_fate
from llmgw.sim.faults import Injector
from llmgw.sim.options import ENGINE_FAULTS, STANDING_FAULTS, STRIKES, Fault, calm_options, stream
from llmgw.sim.report import Outcome, failure_lines
from llmgw.sim.steps import converge, heal, stop
from llmgw.sim.world import World

pytestmark = pytest.mark.sim

DRAWN = tuple(kind for kind in Fault if kind in ENGINE_FAULTS | STANDING_FAULTS)
OF_ENGINES = tuple(kind for kind in Fault if kind in ENGINE_FAULTS)


def name_of(kind: Fault) -> str:
    return kind.value


def told(outcome: Outcome) -> str:
    return "clean" if outcome.violation is None else "\n".join(failure_lines(outcome, "this"))


@pytest.mark.parametrize("kind", STRIKES, ids=name_of)
def test_a_strike_hits_and_is_got_over(kind: Fault) -> None:
    async def script(world: World) -> float:
        world.start()
        await converge(world)
        if not await Injector(world).strike(kind):
            world.fail("test", f"{kind.value} found nothing to hit")
        await heal(world)
        took = await converge(world)
        await stop(world)
        return took

    outcome = play(calm_options(), script)
    assert outcome.violation is None, told(outcome)
    assert outcome.fired == {kind.value: 1}


@pytest.mark.parametrize("kind", DRAWN, ids=name_of)
def test_a_fault_that_is_drawn_when_used_is_used_and_got_over(kind: Fault) -> None:
    options = msgspec.structs.replace(calm_options(), faults={kind: 0.6}, chaos_s=60.0)

    async def script(world: World) -> float:
        world.start()
        await Injector(world).strike_for(options.chaos_s)
        await heal(world)
        took = await converge(world)
        await stop(world)
        return took

    outcome = play(options, script)
    assert outcome.violation is None, told(outcome)
    assert outcome.fired.get(kind.value, 0) > 0


@pytest.mark.parametrize("kind", OF_ENGINES, ids=name_of)
def test_an_engines_fate_shows_its_fault(kind: Fault) -> None:
    options = msgspec.structs.replace(calm_options(), faults={kind: 1.0})
    struck: list[Fault] = []
    fate = draw_fate(options, stream(1, "fates"), struck.append)
    healthy = draw_fate(calm_options(), stream(1, "fates"), struck.append)
    assert struck == [kind]
    assert fate.text() != healthy.text()
    assert healthy.text() == f"load_s {healthy.load_s}, status 1"
