"""What an agent is given: its settings, its timings, and the ports it works through.

Laws: everything from a file, the environment or the machine is already in here or behind a port; the
simulator builds the same agent from other ports.
"""

import random
from collections.abc import Mapping

import msgspec

from llmgw.core import defaults
from llmgw.ports import (
    Clock,
    Dialer,
    EngineLogs,
    NodeChecks,
    NodeProbe,
    Processes,
    StateFiles,
    Upstream,
)


class AgentTimings(msgspec.Struct, frozen=True):
    """Seconds. Heartbeats follow what the control plane says at `Welcome`."""

    dial: float = 5.0  # for the host that never answers (A2)
    welcome: float = 10.0
    reconnect_first: float = defaults.RECONNECT_FIRST_S
    reconnect_cap: float = defaults.RECONNECT_CAP_S
    look: float = 60.0  # between two whole looks at the node (A3)
    verify_adopted: float = 2.0  # registration waits no longer for adopted engines to answer
    probe: float = 2.0  # one health question
    validate: float = 30.0  # all that is checked before a start
    follow: float = 0.25  # between two looks at a log that is followed
    trim: float = 10.0  # between two looks at the size of logs
    stop_grace: float = defaults.STOP_GRACE_S


class AgentSettings(msgspec.Struct, frozen=True):
    """One agent."""

    id: str
    servers: tuple[str, ...]  # in the order to try them (A2)
    state_dir: str  # also part of the marker: two agents may share a host (A14)
    python: str  # the interpreter llmgw runs in, for engines that come as a module
    version: str
    engine_env: Mapping[str, str] = {}  # what engines inherit
    stop_engines: bool = False  # stop what runs when the agent stops, instead of leaving it adoptable
    timings: AgentTimings = AgentTimings()


class AgentPorts(msgspec.Struct, frozen=True):
    """All an agent touches of the world."""

    clock: Clock
    dialer: Dialer
    upstream: Upstream
    processes: Processes
    files: StateFiles
    probe: NodeProbe
    checks: NodeChecks
    logs: EngineLogs
    draw: random.Random
