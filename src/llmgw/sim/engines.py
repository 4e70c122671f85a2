"""What an engine's command line starts on a simulated machine: one that loads and serves, or misbehaves.

Laws: how one misbehaves is drawn when it starts and written in its log, so that a story says it; an
engine is only ever found by its command line and its marker, as on a real machine.
"""

import asyncio
import random
from collections.abc import Callable, Mapping

import msgspec

from llmgw.net.http1.server import HttpListener
from llmgw.ports import Clock, Exchange, SpawnSpec
from llmgw.sim.machine import SimProcess
from llmgw.sim.options import Fault, Options

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


def flags(spec: SpawnSpec) -> Mapping[str, str]:
    """The options of a command line of `--name value` pairs."""
    argv = spec.argv
    return {one[2:]: argv[i + 1] for i, one in enumerate(argv[:-1]) if one.startswith("--")}


class SimEngine:
    """The program of one engine process."""

    def __init__(self, spec: SpawnSpec, fate: Fate, clock: Clock) -> None:
        self.fate = fate
        self.on_answer: Callable[[], None] = _nobody_cares
        self.spared = False  # the cluster was healed: it dies or goes deaf no more
        self._clock = clock
        self._flags = flags(spec)
        self._stop = asyncio.Event()
        self.deaf = False

    def catches(self, signum: int) -> bool:
        """TERM is obeyed after a moment, or ignored."""
        if not self.fate.ignores_term:
            self._stop.set()
        return True

    async def run(self, process: SimProcess) -> int:
        """Load, serve, end."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        process.say(f"simulated engine: {self.fate.text()}")
        if self.fate.hangs:
            return await _for_ever()
        ends_at = self.fate.fails_at
        if await self._stopped_within(self.fate.load_s if ends_at is None else ends_at):
            return 0
        if ends_at is not None:
            process.say("simulated failure while loading")
            return self.fate.status
        try:
            address = f"{self._flags['host']}:{self._flags['port']}"
            serving = await HttpListener(self._clock).serve(address, self._serve)
        except OSError as taken:
            process.say(f"address already in use: {taken}")
            return 1
        if self.fate.leaves_port:
            _leave_behind(process, int(self._flags["port"]))
        if self.fate.deaf_at is not None:
            loop.call_at(began + self.fate.deaf_at, self._go_deaf)
        lives_s = None if self.fate.dies_at is None else max(0.0, began + self.fate.dies_at - loop.time())
        asked = await self._stopped_within(lives_s)
        if self.spared and not asked:
            asked = await self._stopped_within(None)
        await asyncio.sleep(_STOP_S)
        await serving.aclose()
        return 0 if asked else self.fate.status

    async def _stopped_within(self, bound_s: float | None) -> bool:
        try:
            async with asyncio.timeout(bound_s):
                await self._stop.wait()
        except TimeoutError:
            return False
        return True

    def _go_deaf(self) -> None:
        self.deaf = not self.spared

    async def _serve(self, exchange: Exchange) -> None:
        if self.deaf:
            await _for_ever()
        match exchange.head.target:
            case b"/health":
                exchange.respond(200, (), b"{}")
                self.on_answer()
            case b"/v1/models":
                models = {"object": "list", "data": [{"id": self._flags["model"], "object": "model"}]}
                exchange.respond(200, ((b"content-type", b"application/json"),), msgspec.json.encode(models))
            case _:
                exchange.respond(404, (), b"")


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
