"""Decides from a seed what one simulated run is like: its size, its timing, and which faults exist in it.

Laws: a run is its options and nothing else; each seed first draws *which* kinds of fault exist and how
often they strike, so that one run has no cuts and a dreadful store while the next has the reverse;
every part draws from a stream of its own, so that a change in one leaves the others' luck alone.
"""

import random
from collections.abc import Mapping
from enum import Enum

import msgspec

from llmgw.sim.network import LinkOptions


class Fault(Enum):
    """What may go wrong, or be asked, while the checkers look."""

    KILL_AGENT = "kill_agent"
    STOP_AGENT = "stop_agent"
    KILL_SERVER = "kill_server"
    STOP_SERVER = "stop_server"
    KILL_ROUTER = "kill_router"
    KILL_ENGINE = "kill_engine"
    POWER_OFF = "power_off"
    WIPE = "wipe"
    CUT = "cut"
    CUT_ONE_WAY = "cut_one_way"
    ISOLATE_MANY = "isolate_many"
    RESET = "reset"
    STORE_SLOW = "store_slow"
    STORE_DOWN = "store_down"
    REPLY_LOST = "reply_lost"
    CLOCK_SKEW = "clock_skew"
    DISK_FULL = "disk_full"
    SLOW_ROUTER = "slow_router"
    ENGINE_SLOW = "engine_slow"
    ENGINE_FAILS = "engine_fails"
    ENGINE_EXITS_CLEAN = "engine_exits_clean"
    ENGINE_DIES_LATER = "engine_dies_later"
    ENGINE_HANGS = "engine_hangs"
    ENGINE_DEAF = "engine_deaf"
    PORT_LEFT_BUSY = "port_left_busy"
    RESCALE = "rescale"
    REMOVE_MODEL = "remove_model"
    EDIT_PROFILE = "edit_profile"
    CORDON = "cordon"


ENGINE_FAULTS = frozenset(
    {
        Fault.ENGINE_SLOW,
        Fault.ENGINE_FAILS,
        Fault.ENGINE_EXITS_CLEAN,
        Fault.ENGINE_DIES_LATER,
        Fault.ENGINE_HANGS,
        Fault.ENGINE_DEAF,
        Fault.PORT_LEFT_BUSY,
    }
)
"""Faults drawn for each engine that is started: their strength is a chance."""

STANDING_FAULTS = frozenset(
    {
        *(Fault.STORE_SLOW, Fault.STORE_DOWN, Fault.REPLY_LOST),
        *(Fault.CLOCK_SKEW, Fault.DISK_FULL, Fault.SLOW_ROUTER),
    }
)
"""Faults that something draws for itself each time it is used: their strength is a chance."""

STRIKES = tuple(kind for kind in Fault if kind not in ENGINE_FAULTS | STANDING_FAULTS)
"""Faults that strike at a moment: their strength is how many a virtual minute."""

_EXISTS = 0.4  # chance that a kind exists in a run
_STAYS_DEAD = 0.25
_STRIKES_A_MINUTE = (0.2, 3.0)
_CHANCES = (0.05, 0.5)


class Options(msgspec.Struct, frozen=True):
    """One run. Durations in virtual seconds."""

    seed: int
    nodes: int
    chaos_s: float
    link: LinkOptions
    faults: Mapping[Fault, float]
    settling_s: float
    lost_after_s: float
    drain_grace_s: float
    startup_timeout_s: float
    load_s: float  # a healthy engine's time to load
    one_stays_dead: bool = False  # healing leaves the last node without power, for ever

    def strength(self, fault: Fault) -> float:
        """How often, or how likely; 0 when this run has none of it."""
        return self.faults.get(fault, 0.0)

    def line(self) -> str:
        """All of it in one line, for reports."""
        faults = ", ".join(f"{kind.value} {strength:.2f}" for kind, strength in self.faults.items())
        dead = ", one stays dead" if self.one_stays_dead else ""
        return (
            f"nodes {self.nodes}, chaos {self.chaos_s:.0f} s, latency {self.link.latency_s * 1000:.1f} ms"
            f" + {self.link.jitter_s * 1000:.1f}, split {self.link.split_chance:.2f},"
            f" settling {self.settling_s:.0f} s, lost after {self.lost_after_s:.0f} s,"
            f" drain {self.drain_grace_s:.0f} s, startup {self.startup_timeout_s:.0f} s,"
            f" load {self.load_s:.1f} s{dead}; {faults or 'no faults'}"
        )


def stream(seed: int, name: str) -> random.Random:
    """The stream of chance of one part of one run."""
    return random.Random(f"{seed}/{name}")


def draw_options(seed: int, nodes: int | None = None) -> Options:
    """What the run of this seed is like."""
    draw = stream(seed, "options")
    faults = {
        kind: round(draw.uniform(*(_STRIKES_A_MINUTE if kind in STRIKES else _CHANCES)), 2)
        for kind in Fault
        if draw.random() < _EXISTS
    }
    size = draw.choice((3, 3, 4))
    return Options(
        seed=seed,
        nodes=size if nodes is None else nodes,
        chaos_s=draw.choice((40.0, 90.0, 160.0)),
        link=LinkOptions(
            latency_s=draw.choice((0.0002, 0.001, 0.02)),
            jitter_s=draw.choice((0.0002, 0.005, 0.1)),
            split_chance=draw.choice((0.0, 0.1, 0.5)),
        ),
        faults=faults,
        settling_s=draw.choice((2.0, 10.0, 80.0)),
        lost_after_s=draw.choice((25.0, 40.0, 120.0)),
        drain_grace_s=draw.choice((2.0, 10.0, 30.0)),
        startup_timeout_s=draw.choice((20.0, 60.0)),
        load_s=draw.choice((0.2, 2.0, 8.0)),
        one_stays_dead=draw.random() < _STAYS_DEAD,
    )


def calm_options(seed: int = 1, nodes: int = 3) -> Options:
    """A run in which nothing goes wrong; scenarios begin from it."""
    return Options(
        seed=seed,
        nodes=nodes,
        chaos_s=0.0,
        link=LinkOptions(),
        faults={},
        settling_s=5.0,
        lost_after_s=40.0,
        drain_grace_s=5.0,
        startup_timeout_s=60.0,
        load_s=1.0,
    )
