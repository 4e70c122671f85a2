"""What an engine's command line starts on a simulated machine: one that loads and serves, or misbehaves.

Laws: how one misbehaves is drawn when it starts and written in its log, so that a story says it; an
engine is only ever found by its command line and its marker, as on a real machine.
"""

import asyncio
import random
from collections.abc import Callable

import msgspec

from llmgw.engines.sim import KEY_ENV
from llmgw.entry.simengine import parser
from llmgw.net.http1.server import HttpListener
from llmgw.ports import Clock, Exchange, SpawnSpec
from llmgw.sim.machine import SimProcess
from llmgw.sim.options import Fault, Options
from llmgw.simengine.engine import SimEngine
from llmgw.simengine.options import SimOptions

MODULE = "llmgw.entry.simengine"
LEFT_BEHIND = "left-behind"
_STOP_S = 0.05  # from TERM to the end of one that behaves


class Fate(msgspec.Struct, frozen=True):
    """How one engine process will behave; seconds after its start, `None`: never."""

    load_s: float
    fails_at: float | None = None  # exits while loading
    dies_at: float | None = None  # exits after it was ready
    status: int = 1
    hangs: bool = False  # never gets ready, ignores TERM
    ignores_term: bool = False
    deaf_at: float | None = None  # stops answering, keeps its port
    leaves_port: bool = False  # a child of another group keeps the port

    def text(self) -> str:
        """For the log and the story."""
        odd = {name: value for name, value in msgspec.structs.asdict(self).items() if value}
        return ", ".join(f"{name} {value}" for name, value in odd.items())


def draw_fate(options: Options, draw: random.Random, struck: Callable[[Fault], None]) -> Fate:
    """What becomes of an engine that is started now."""

    def happens(fault: Fault) -> bool:
        hit = draw.random() < options.strength(fault)
        if hit:
            struck(fault)
        return hit

    load_s = options.load_s * draw.uniform(0.5, 1.5)
    if happens(Fault.ENGINE_HANGS):
        return Fate(load_s, hangs=True)
    if happens(Fault.ENGINE_SLOW):
        load_s = options.startup_timeout_s * draw.uniform(0.5, 1.3)
    fails = load_s * draw.random() if happens(Fault.ENGINE_FAILS) else None
    clean = happens(Fault.ENGINE_EXITS_CLEAN)
    dies = load_s + draw.uniform(0.0, 60.0) if clean or happens(Fault.ENGINE_DIES_LATER) else None
    return Fate(
        load_s=load_s,
        fails_at=fails,
        dies_at=dies,
        status=0 if clean else 1,
        deaf_at=load_s + draw.uniform(0.0, 60.0) if happens(Fault.ENGINE_DEAF) else None,
        leaves_port=happens(Fault.PORT_LEFT_BUSY),
    )


def is_engine(spec: SpawnSpec) -> bool:
    """Whether a command line starts llmgw's simulated engine."""
    return MODULE in spec.argv


class EngineProgram:
    """The program of one engine process: the simulated engine of production, with a fate."""

    def __init__(self, spec: SpawnSpec, fate: Fate, clock: Clock, draw: random.Random) -> None:
        self.fate = fate
        self.on_answer: Callable[[], None] = _nobody_cares
        self.spared = False  # the cluster was healed: it dies or goes deaf no more
        self.deaf = False
        given = parser().parse_args(spec.argv[spec.argv.index(MODULE) + 1 :])
        self._address = f"{given.host}:{given.port}"
        self._port: int = given.port
        self._options = SimOptions(given.model, key=spec.env.get(KEY_ENV, ""), startup_s=fate.load_s)
        self._clock = clock
        self._draw = draw
        self._loaded_at = 0.0
        self._stop = asyncio.Event()

    def catches(self, signum: int) -> bool:
        """TERM is obeyed after a moment, or ignored."""
        if not self.fate.ignores_term:
            self._stop.set()
        return True

    async def run(self, process: SimProcess) -> int:
        """Load, serve, end."""
        began = asyncio.get_running_loop().time()
        self._loaded_at = began + self.fate.load_s
        process.say(f"simulated engine: {self.fate.text()}")
        if self.fate.hangs:
            return await _for_ever()
        engine = SimEngine(self._options, self._clock, self._draw, _nobody_cares)
        try:
            serving = await HttpListener(self._clock).serve(
                self._address, lambda exchange: self._serve(engine, exchange)
            )
        except OSError as taken:
            process.say(f"address already in use: {taken}")
            return 1
        if self.fate.leaves_port:
            _leave_behind(process, self._port)
        asked = await self._live(began)
        process.say("stopping" if asked else "simulated failure")
        await asyncio.sleep(_STOP_S)
        await serving.aclose()
        return 0 if asked else self.fate.status

    async def _live(self, began: float) -> bool:
        """Until asked to stop (true), or until its fate ends it."""
        loop, fate = asyncio.get_running_loop(), self.fate
        if fate.deaf_at is not None:
            loop.call_at(began + fate.deaf_at, self._go_deaf)
        ends_at = fate.dies_at if fate.fails_at is None else fate.fails_at
        asked = await self._stopped_within(None if ends_at is None else began + ends_at - loop.time())
        if self.spared and not asked and fate.fails_at is None:
            return await self._stopped_within(None)
        return asked

    async def _stopped_within(self, bound_s: float | None) -> bool:
        try:
            async with asyncio.timeout(bound_s):
                await self._stop.wait()
        except TimeoutError:
            return False
        return True

    def _go_deaf(self) -> None:
        self.deaf = not self.spared

    async def _serve(self, engine: SimEngine, exchange: Exchange) -> None:
        if self.deaf:
            await _for_ever()
        await engine.handle(exchange)
        if exchange.head.target == b"/health" and asyncio.get_running_loop().time() >= self._loaded_at:
            self.on_answer()


class LeftBehind:
    """A child in a group of its own that holds its parent's port once that one is dead."""

    def __init__(self, parent: SimProcess, port: int) -> None:
        self.parent = parent
        self._port = port

    def catches(self, signum: int) -> bool:
        """It dies of any signal."""
        return False

    async def run(self, process: SimProcess) -> int:
        """Hold the port until killed."""
        await asyncio.shield(self.parent.exited)
        await asyncio.get_running_loop().create_server(asyncio.Protocol, process.machine.address, self._port)
        return await _for_ever()


def _leave_behind(parent: SimProcess, port: int) -> None:
    spec = SpawnSpec((LEFT_BEHIND,), parent.spec.env, parent.spec.log_path)
    parent.machine.start(spec, LeftBehind(parent, port))


def _nobody_cares() -> None:
    """Until the world listens."""


async def _for_ever() -> int:
    await asyncio.get_running_loop().create_future()
    return 0
