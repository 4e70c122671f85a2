"""The values between an agent's decisions about its shards and what performs them.

Laws: every performed command whose docstring names an event yields exactly that event, failure included;
a command is performed in the order it was given.
"""

import msgspec

from llmgw.core.reason import Explained
from llmgw.core.replica import ShardId, ShardPhase


class Order(msgspec.Struct, frozen=True):
    """What was ordered, as far as it decides anything here."""

    id: ShardId
    startup_timeout_s: float
    has_port: bool = True  # it serves HTTP: it is asked for its health, and its port must become free
    stop_grace_s: float = 10.0  # when it must go and nobody said how fast


# ---------------------------------------------------------------- events


class StartAsked(msgspec.Struct, frozen=True):
    """A server wants this shard to run."""

    term: int
    order: Order


class StopAsked(msgspec.Struct, frozen=True):
    """A server wants this incarnation, and any older one, gone."""

    term: int
    id: ShardId
    grace_s: float


class ForgetAsked(msgspec.Struct, frozen=True):
    """A server has taken note of an ended shard."""

    term: int
    id: ShardId


class StopAll(msgspec.Struct, frozen=True):
    """The agent itself wants everything gone."""

    grace_s: float


class TermSeen(msgspec.Struct, frozen=True):
    """A server showed its term."""

    term: int


class Found(msgspec.Struct, frozen=True):
    """A record of an earlier agent. Not alive: its process ended, or was never noted."""

    order: Order
    alive: bool
    ready: bool = False
    failure: Explained | None = None  # why it is to be taken for failed when it is not alive


class Checked(msgspec.Struct, frozen=True):
    """The outcome of `Check`."""

    id: ShardId
    refusal: Explained | None = None


class Recorded(msgspec.Struct, frozen=True):
    """The outcome of `WriteRecord`."""

    id: ShardId
    error: str = ""


class Spawned(msgspec.Struct, frozen=True):
    """The outcome of `Spawn`."""

    id: ShardId
    failure: Explained | None = None


class Probed(msgspec.Struct, frozen=True):
    """The outcome of `Probe`; `miss` says what was wrong, "" means it answered as itself."""

    id: ShardId
    miss: str = ""


class Exited(msgspec.Struct, frozen=True):
    """The shard's process ended; `explained` is what that means if nobody asked for it."""

    id: ShardId
    explained: Explained


class Swept(msgspec.Struct, frozen=True):
    """The outcome of `Sweep`: processes of the shard that were still there before KILL was sent."""

    id: ShardId
    left: tuple[int, ...]


class PortLooked(msgspec.Struct, frozen=True):
    """The outcome of `CheckPort`."""

    id: ShardId
    free: bool


class Tick(msgspec.Struct, frozen=True):
    """Time has passed; sent when `next_due` says."""


Answer = Checked | Recorded | Spawned | Probed | Exited | Swept | PortLooked
Event = StartAsked | StopAsked | ForgetAsked | StopAll | TermSeen | Found | Answer | Tick


# ---------------------------------------------------------------- commands


class Check(msgspec.Struct, frozen=True):
    """Validate on the node (A16); yields `Checked`."""

    id: ShardId


class WriteRecord(msgspec.Struct, frozen=True):
    """Write the state file; yields `Recorded`."""

    id: ShardId
    ready: bool


class Spawn(msgspec.Struct, frozen=True):
    """Start the process; yields `Spawned`, and later `Exited`."""

    id: ShardId


class Probe(msgspec.Struct, frozen=True):
    """Ask the engine for its health; `identify`: also that it is this engine. Yields `Probed`."""

    id: ShardId
    identify: bool


class Terminate(msgspec.Struct, frozen=True):
    """TERM to the process group."""

    id: ShardId


class Sweep(msgspec.Struct, frozen=True):
    """KILL to the group and to every process with the shard's marker; yields `Swept`."""

    id: ShardId


class CheckPort(msgspec.Struct, frozen=True):
    """Look whether the port is free; yields `PortLooked`."""

    id: ShardId


class Report(msgspec.Struct, frozen=True):
    """Tell the server how this shard is now; `note` is what keeps it in its phase."""

    id: ShardId
    phase: ShardPhase
    failure: Explained | None = None
    note: str = ""


class ReportGone(msgspec.Struct, frozen=True):
    """Tell the server that an incarnation this node does not have is gone."""

    id: ShardId


class RemoveRecord(msgspec.Struct, frozen=True):
    """Remove the state file."""

    id: ShardId


class Drop(msgspec.Struct, frozen=True):
    """Forget all about it."""

    id: ShardId


class RememberTerm(msgspec.Struct, frozen=True):
    """Keep the highest term across restarts (H2)."""

    term: int


class Refuse(msgspec.Struct, frozen=True):
    """Tell the server that it is not obeyed."""

    id: ShardId
    reason: str


Command = (
    Check
    | WriteRecord
    | Spawn
    | Probe
    | Terminate
    | Sweep
    | CheckPort
    | Report
    | ReportGone
    | RemoveRecord
    | Drop
    | RememberTerm
    | Refuse
)
Commands = tuple[Command, ...]
