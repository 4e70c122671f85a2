"""Strikes a simulated cluster with the faults its options name, each at moments drawn under its seed.

Laws: a strike that finds nothing to hit does not count as one; what a strike breaks for a while mends
by itself, or at the latest when the cluster is healed.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping

from llmgw.core.inventory import Mark, OperatorMark
from llmgw.ports import AdminRefused
from llmgw.sim.options import STRIKES, Fault
from llmgw.sim.world import SERVER_ADDRESS, SimNode, World

# Seconds a broken link or machine stays so: a blip, a few heartbeats, beyond `lost_after`.
_WHILE_S = (1.0, 8.0, 30.0, 90.0)
_RESETS_MAX = 3

Strike = Callable[[], bool | Awaitable[bool]]


class Injector:
    """Strikes until it is stopped."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._draw = world.chance("faults")
        self._strikes: Mapping[Fault, Strike] = {
            Fault.KILL_AGENT: lambda: self._agent().keeper.signal(signal.SIGKILL),
            Fault.STOP_AGENT: lambda: self._agent().keeper.signal(signal.SIGTERM),
            Fault.KILL_SERVER: lambda: world.server_keeper.signal(signal.SIGKILL),
            Fault.STOP_SERVER: lambda: world.server_keeper.signal(signal.SIGTERM),
            Fault.KILL_ROUTER: lambda: self._kill_one(sorted(world.facts.routers)),
            Fault.KILL_ENGINE: lambda: self._kill_one(sorted(world.facts.engines)),
            Fault.POWER_OFF: lambda: self._power_off(wipe=False),
            Fault.WIPE: lambda: self._power_off(wipe=True),
            Fault.CUT: lambda: self._cut(both=True),
            Fault.CUT_ONE_WAY: lambda: self._cut(both=False),
            Fault.ISOLATE_MANY: self._isolate_many,
            Fault.RESET: lambda: world.network.reset_some(self._draw.randint(1, _RESETS_MAX)) > 0,
            Fault.RESCALE: lambda: self._change(world.wishes.rescale),
            Fault.REMOVE_MODEL: lambda: self._change(world.wishes.remove_or_return),
            Fault.EDIT_PROFILE: lambda: self._change(world.wishes.edit),
            Fault.CORDON: self._mark,
        }
        assert set(self._strikes) == set(STRIKES), "every fault that strikes has a strike"

    async def strike_for(self, seconds: float) -> None:
        """Strike as often as the options say."""
        options = self._world.options
        kinds = [kind for kind in STRIKES if options.strength(kind) > 0]
        rates = [options.strength(kind) / 60 for kind in kinds]
        ends = asyncio.get_running_loop().time() + seconds
        while kinds:
            await asyncio.sleep(self._draw.expovariate(sum(rates)))
            if asyncio.get_running_loop().time() >= ends:
                return
            await self.strike(self._draw.choices(kinds, rates)[0])
        await asyncio.sleep(seconds)

    async def strike(self, kind: Fault) -> bool:
        """Strike once; whether there was something to hit."""
        self._world.note("fault", kind.value)
        hit = self._strikes[kind]()
        if isinstance(hit, Awaitable):
            hit = await hit
        if hit:
            self._world.strike(kind)
        return hit

    def _agent(self) -> SimNode:
        return self._draw.choice(self._world.nodes)

    def _kill_one(self, names: list[str]) -> bool:
        if not names:
            return False
        name = self._draw.choice(names)
        for machine in self._world.machines():
            for process in machine.processes():
                if process.name == name:
                    machine.kill(process.identity, signal.SIGKILL)
        return True

    def _later(self, mend: Callable[[], None], name: str) -> None:
        async def wait() -> None:
            await asyncio.sleep(self._draw.choice(_WHILE_S) * self._draw.uniform(0.5, 1.5))
            mend()

        self._world.tasks.start(wait(), name=name)

    def _power_off(self, wipe: bool) -> bool:
        """A machine loses power; with `wipe` it is installed anew before it is back."""
        node = self._agent()
        if not node.machine.on:
            return False
        how = "off, its disk is replaced" if wipe else "off"
        self._world.note("power", f"{node.machine.name} {how}", node.machine.name)
        node.machine.power_off()
        if wipe:
            node.machine.files.clear()
        self._later(lambda: power_on(self._world, node), f"power of {node.machine.name}")
        return True

    def _cut(self, both: bool) -> bool:
        name, address = (one := self._agent().machine).name, one.address
        pairs = [(address, SERVER_ADDRESS), (SERVER_ADDRESS, address)]
        self._break_links(pairs if both else [self._draw.choice(pairs)], name)
        return True

    def _isolate_many(self) -> bool:
        nodes = self._world.nodes
        chosen = self._draw.sample(nodes, self._draw.randint(2, len(nodes))) if len(nodes) > 1 else nodes
        for node in chosen:
            address = node.machine.address
            self._break_links([(address, SERVER_ADDRESS), (SERVER_ADDRESS, address)], node.machine.name)
        return True

    def _break_links(self, links: list[tuple[str, str]], node: str) -> None:
        for link in links:
            self._world.note("cut", f"{link[0]} to {link[1]}", node)
            self._world.network.cut(*link)

        def mend() -> None:
            for link in links:
                self._world.note("mended", f"{link[0]} to {link[1]}", node)
                self._world.network.mend(*link)

        self._later(mend, f"mend the link of {node}")

    async def _change(self, change: Callable[[], str]) -> bool:
        self._world.note("wish", change())
        await self._world.wish()
        return True

    async def _mark(self) -> bool:
        mark = self._draw.choice((Mark.CORDONED, Mark.READY))
        return await set_mark(self._world, self._agent().machine.name, mark)


def power_on(world: World, node: SimNode) -> None:
    """Give a machine its power back."""
    if not node.machine.on and node.machine.name not in world.buried:
        world.note("power", f"{node.machine.name} on", node.machine.name)
        node.machine.power_on()


async def set_mark(world: World, node: str, mark: Mark) -> bool:
    """An operator marks a node; whether it was taken."""
    server = world.server
    if server is None:
        return False
    try:
        await server.admin.set_mark(node, OperatorMark(mark, actor="operator"))
    except AdminRefused as refused:
        world.note("mark", f"{node} {mark.value} refused: {refused}", node)
        return False
    world.note("mark", f"{node} {mark.value}", node)
    return True
