"""The Protocols through which shells reach what is outside them: sockets, streams, processes, clocks.

Laws: shells import these and never an adapter; an adapter (net, host, store) implements them and
never imports a shell; the simulator implements them again. Each port has one contract suite, run
against every implementation.
"""

from llmgw.ports.clock import Clock
from llmgw.ports.cluster import AdminRefused, ClusterAdmin, LogFollower
from llmgw.ports.files import LoopOwner, StateFiles
from llmgw.ports.http import (
    BodyTooLarge,
    BodyTooSlow,
    Exchange,
    ExchangeHandler,
    ExchangeListener,
    Fetched,
    HeaderList,
    HttpTimeouts,
    RequestHead,
    Serving,
    Stage,
    Upstream,
    UpstreamBroke,
    UpstreamRequest,
    UpstreamResponse,
)
from llmgw.ports.node import EngineLogs, NodeChecks, NodeProbe, NodeVitals
from llmgw.ports.processes import Processes, ProcessHandle, ProcessId, SpawnFailed, SpawnSpec
from llmgw.ports.store import (
    ControlStore,
    KeyStore,
    Lease,
    LeaseOwner,
    LeaseStore,
    LedgerStore,
    RosterRow,
    RosterStore,
    StoreUnavailable,
)
from llmgw.ports.streams import (
    Dialer,
    Listening,
    MessageStream,
    Peer,
    StreamClosed,
    StreamHandler,
    StreamListener,
)

__all__ = [
    "AdminRefused",
    "BodyTooLarge",
    "BodyTooSlow",
    "Clock",
    "ClusterAdmin",
    "ControlStore",
    "Dialer",
    "EngineLogs",
    "Exchange",
    "ExchangeHandler",
    "ExchangeListener",
    "Fetched",
    "HeaderList",
    "HttpTimeouts",
    "KeyStore",
    "Lease",
    "LeaseOwner",
    "LeaseStore",
    "LedgerStore",
    "Listening",
    "LogFollower",
    "LoopOwner",
    "MessageStream",
    "NodeChecks",
    "NodeProbe",
    "NodeVitals",
    "Peer",
    "ProcessHandle",
    "ProcessId",
    "Processes",
    "RequestHead",
    "RosterRow",
    "RosterStore",
    "Serving",
    "SpawnFailed",
    "SpawnSpec",
    "Stage",
    "StateFiles",
    "StoreUnavailable",
    "StreamClosed",
    "StreamHandler",
    "StreamListener",
    "Upstream",
    "UpstreamBroke",
    "UpstreamRequest",
    "UpstreamResponse",
]
