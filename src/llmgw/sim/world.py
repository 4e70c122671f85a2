"""Builds a whole simulated cluster from options: machines, roles, store, network, and the eyes on all of it.

Laws: roles are built by the functions production calls, on simulated ports (law 5); what starts a role
again is no part of the system; nothing of one world is shared with another.
"""

import random
from collections import Counter
from collections.abc import Callable

import msgspec

from llmgw.agent.settings import AgentPorts, AgentSettings
from llmgw.aio.tasks import Tasks
from llmgw.entry.agent import build_agent
from llmgw.entry.process import CannotRun
from llmgw.net.http1.pool import UpstreamPool
from llmgw.net.streams import StreamDialer
from llmgw.ports import LoopOwner, SpawnFailed, SpawnSpec, StoreUnavailable
from llmgw.sim.engines import EngineProgram, Fate, draw_fate, is_engine
from llmgw.sim.eyes import Eyes
from llmgw.sim.facts import Books
from llmgw.sim.loop import SimLoop
from llmgw.sim.machine import Program, ProgramFor, SimFiles, SimMachine, SimProcess
from llmgw.sim.network import SimNetwork
from llmgw.sim.node import Hardware, SimChecks, SimClock, SimLogs, SimProbe, describe
from llmgw.sim.options import Fault, Options, stream
from llmgw.sim.roles import Keeper, Role
from llmgw.sim.router import RouterPlan, SimRouter
from llmgw.sim.server import PORT, VERSION, ServerPorts, SimServer, build_server
from llmgw.sim.store import Weather
from llmgw.sim.tap import TappedDialer
from llmgw.sim.wishes import Wishes, hardware
from llmgw.store.inline import InlineDatabase, inline_engine
from llmgw.store.store import SqlStore

SERVER_ADDRESS = "10.0.0.1"
AGENT_STATE = "/sim/agent"


_ALL_EVENTS = 100_000


class SimNode:
    """A node: its machine and what keeps its agent running."""

    def __init__(self, machine: SimMachine, made_of: Hardware, clock: SimClock) -> None:
        self.machine = machine
        self.hardware = made_of
        self.clock = clock
        self.keeper: Keeper  # set when the world starts it


class SimAgent:
    """An agent with the pool that production closes after it."""

    def __init__(self, agent: LoopOwner, pool: UpstreamPool) -> None:
        self._agent = agent
        self._pool = pool

    async def run(self) -> None:
        """Until closed. Raises `CannotRun` where `llmgw agent` ends with one line."""
        try:
            await self._agent.run()
        except OSError as error:
            raise CannotRun(f"cannot use {AGENT_STATE}: {error.strerror or error}") from error

    async def aclose(self) -> None:
        """Both."""
        await self._agent.aclose()
        await self._pool.aclose()


class World:
    """One simulated cluster."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.network = SimNetwork(self.chance("network"), options.link)
        self.loop = SimLoop(self.network)
        self.eyes = Eyes(self.loop)
        self.facts = self.eyes.facts
        self.struck: Counter[Fault] = Counter()
        self.calm = False  # no more faults
        self.buried: set[str] = set()  # nodes that never come back
        self.fate_for: Callable[[SpawnSpec], Fate | None] = lambda spec: None  # a scenario's own
        self.wishes = Wishes(self.chance("wishes"), options.startup_timeout_s)
        self.facts.settling_s = options.settling_s
        self._fates = self.chance("fates")
        self._routers = self.chance("routers")
        self._disks = self.chance("disks")
        self.weather = Weather(options, self.chance("store"), self.strike)
        self.server_machine = SimMachine(
            "server", SERVER_ADDRESS, self.network, self._server_program, self.eyes
        )
        self.server_clock = self._clock("server")
        self.nodes = [self._node(index) for index in range(options.nodes)]
        self.database = inline_engine(self.server_clock_now)
        self.server_keeper: Keeper
        self.facts.books = self._books
        self.tasks = Tasks(lambda what, why: self.fail("simulator", f"{what}: {why!r}"))

    def chance(self, name: str) -> random.Random:
        """The stream of chance of one part."""
        return stream(self.options.seed, name)

    def _machine(self, name: str, address: str, programs: ProgramFor) -> SimMachine:
        return SimMachine(name, address, self.network, programs, self.eyes)

    def _clock(self, name: str) -> SimClock:
        draw = self.chance(f"clock of {name}")
        if draw.random() >= self.options.strength(Fault.CLOCK_SKEW):
            return SimClock()
        self.strike(Fault.CLOCK_SKEW)
        return SimClock(draw.choice((-1, 1)) * draw.choice((0.5, 60.0, 86400.0)))

    def server_clock_now(self) -> float:
        """The database's clock: that of the server's machine."""
        return self.server_clock.at(self.loop.time())

    def _node(self, index: int) -> SimNode:
        name, address = f"n{index + 1}", f"10.0.1.{index + 1}"
        machine = self._machine(name, address, self._node_program)
        made_of = hardware(index)
        self.facts.inventory[name] = describe(machine, made_of)
        return SimNode(machine, made_of, self._clock(name))

    # ------------------------------------------------------------ starting roles

    async def wish(self) -> None:
        """What is wanted has changed: it is written down, and the server that runs is told."""
        self.facts.wanted.append((self.loop.time(), self.wishes.wanted()))
        if self.server is not None:
            await self.server.plane.change_catalog(self.wishes.catalog())

    def start(self) -> None:
        """Start the server and every agent, each kept running."""
        self.facts.wanted.append((self.loop.time(), self.wishes.wanted()))
        rest = self.chance("rest")
        ports = ServerPorts(
            self.server_machine, self.database, self.weather, self.server_clock, self.chance("server"),
            self.wishes.catalog,
        )  # fmt: skip

        async def server(process: SimProcess) -> LoopOwner:
            return await build_server(process, self.options, ports)

        self.server_keeper = Keeper(
            self.server_machine, SpawnSpec(("server",), {}, ""), lambda: Role(server),
            lambda: rest.uniform(0.1, 5.0),
        )  # fmt: skip
        self.tasks.start(self.server_keeper.keep(), name="keep the server")
        for node in self.nodes:
            self._start_agent(node, rest)

    def _start_agent(self, node: SimNode, rest: random.Random) -> None:
        draw = self.chance(f"agent of {node.machine.name}")

        async def agent(process: SimProcess) -> LoopOwner:
            pool = UpstreamPool()
            try:
                agent = build_agent(agent_settings(node), self._agent_ports(node, pool, draw))
            except OSError as error:
                raise CannotRun(f"cannot use {AGENT_STATE}: {error.strerror or error}") from error
            return SimAgent(agent, pool)

        node.keeper = Keeper(
            node.machine, SpawnSpec(("agent",), {}, ""), lambda: Role(agent), lambda: rest.uniform(0.1, 5.0)
        )
        self.tasks.start(node.keeper.keep(), name=f"keep the agent of {node.machine.name}")

    def _agent_ports(self, node: SimNode, pool: UpstreamPool, draw: random.Random) -> AgentPorts:
        machine = node.machine
        return AgentPorts(
            clock=node.clock,
            dialer=TappedDialer(StreamDialer(), machine.name, self.eyes),
            upstream=pool,
            processes=machine,
            files=SimFiles(machine, AGENT_STATE, self._disk_is_full),
            probe=SimProbe(machine, node.hardware),
            checks=SimChecks(machine),
            logs=SimLogs(machine, f"{AGENT_STATE}/logs"),
            draw=draw,
        )

    def bury(self, node: SimNode) -> None:
        """A node loses power and never gets it back."""
        self.note("power", f"{node.machine.name} off, for ever", node.machine.name)
        self.buried.add(node.machine.name)
        if node.machine.on:
            node.machine.power_off()

    def living(self) -> list[SimNode]:
        """Nodes that are not dead for ever."""
        return [node for node in self.nodes if node.machine.name not in self.buried]

    def machines(self) -> list[SimMachine]:
        """Every machine."""
        return [self.server_machine, *(node.machine for node in self.nodes)]

    @property
    def server(self) -> SimServer | None:
        """The server that runs now."""
        role = self.server_keeper.role
        return role if isinstance(role, SimServer) else None

    def _books(self) -> Books | None:
        state = None if self.server is None else self.server.plane.owner.state()
        if state is None or state.term is None:
            return None
        replicas = state.replicas.values()
        held = frozenset(
            (replica.id, shard.rank) for replica in replicas for shard in replica.shards if not shard.ended
        )
        return Books(state.term, held)

    # ------------------------------------------------------------ what command lines start

    def _server_program(self, machine: SimMachine, spec: SpawnSpec) -> Program:
        if "router" not in spec.argv:
            raise SpawnFailed(f"{spec.argv[0]}: no such file")
        plan = RouterPlan(
            f"unix:{spec.argv[3].rpartition('/')[0]}/watch.sock", "settings", int(spec.argv[-1]), VERSION
        )
        return SimRouter(plan, self.eyes, self._apply_delay, self._routers)

    def _disk_is_full(self) -> bool:
        full = not self.calm and self._disks.random() < self.options.strength(Fault.DISK_FULL)
        if full:
            self.strike(Fault.DISK_FULL)
        return full

    def _apply_delay(self) -> float:
        if self.calm or self._routers.random() >= self.options.strength(Fault.SLOW_ROUTER):
            return 0.0
        self.strike(Fault.SLOW_ROUTER)
        return self._routers.uniform(0.1, 6.0)

    def _node_program(self, machine: SimMachine, spec: SpawnSpec) -> Program:
        if not is_engine(spec):
            raise SpawnFailed(f"{spec.argv[0]}: no such file")
        options = self.options if not self.calm else calmed(self.options)
        fate = self.fate_for(spec) or draw_fate(options, self._fates, self.strike)
        return EngineProgram(spec, fate, SimClock(), self._fates)

    def spare(self) -> None:
        """Nothing breaks any more: neither by new strikes nor by what engines were destined for."""
        self.calm = self.weather.calm = True
        for machine in self.machines():
            for process in machine.processes():
                if isinstance(process.program, EngineProgram):
                    process.program.spared = True

    # ------------------------------------------------------------ what is seen

    def strike(self, fault: Fault) -> None:
        """A fault struck."""
        self.struck[fault] += 1

    def note(self, kind: str, text: str, *subjects: str) -> None:
        """Something happened."""
        self.eyes.note(kind, text, *subjects)

    def fail(self, checker: str, text: str, *subjects: str) -> None:
        """Something must not be."""
        self.eyes.fail(checker, text, *subjects)

    async def decisions(self) -> Counter[str]:
        """What the control planes of this run decided, by kind, as far as it reached the store."""
        store = SqlStore(InlineDatabase(self.database), lambda holder: False)
        try:
            return Counter(row.kind for row in await store.events(_ALL_EVENTS, None, None))
        except StoreUnavailable:  # broken before the first migration
            return Counter()

    def close(self) -> None:
        """Take everything down."""
        self.loop.finish()
        self.database.dispose()

    def look(self) -> None:
        """Have every checker look at everything."""
        for node in self.nodes:
            if node.machine.on and node.keeper.process is not None and not self._is_cut(node.machine.address):
                self.facts.fine_since.setdefault(node.machine.name, self.loop.time())
            else:
                self.facts.fine_since.pop(node.machine.name, None)
        self.eyes.look()

    def _is_cut(self, address: str) -> bool:
        network = self.network
        return network.is_cut(address, SERVER_ADDRESS) or network.is_cut(SERVER_ADDRESS, address)


def agent_settings(node: SimNode) -> AgentSettings:
    """An agent's settings in a simulation."""
    return AgentSettings(
        id=node.machine.name,
        servers=(f"{SERVER_ADDRESS}:{PORT}",),
        state_dir=AGENT_STATE,
        python="python",
        version=VERSION,
    )


def calmed(options: Options) -> Options:
    """The same run without faults."""
    return msgspec.structs.replace(options, faults={})
