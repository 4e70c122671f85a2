"""A control plane that answers with given values, for tests of the admin API, its pages and its client."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import msgspec

from llmgw.core.inventory import OperatorMark
from llmgw.ports import AdminRefused, ClusterAdmin, LogFollower, StoreUnavailable
from llmgw.web.options import AdminOptions
from llmgw.wire.admin_v1 import (
    EventRow,
    Explanation,
    GpuRow,
    ModelRow,
    NodeRow,
    NodeVerdict,
    ProfileExplanation,
    ReplicaRow,
    RouterRow,
    ShardRow,
    Status,
)

TOKEN = "a-token-of-the-tests"
NOW = 1_800_000_000.0


class FixedClock:
    """A wall clock that a test sets."""

    def __init__(self, at: float = NOW) -> None:
        self.at = at

    def now(self) -> float:
        return self.at


class StubFollower:
    """Log lines; with `endless`, waits for ever after the last one. Says when it was closed."""

    def __init__(self, lines: Sequence[str], *, endless: bool) -> None:
        self._lines = lines
        self._endless = endless
        self.closed = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[str]:
        for line in self._lines:
            yield line
        if self._endless:
            await asyncio.Event().wait()

    async def aclose(self) -> None:
        self.closed.set()


class StubAdmin:
    """Implements `ports.ClusterAdmin` over a `Fleet`, and remembers what it was asked."""

    def __init__(self, fleet: "Fleet") -> None:
        self.fleet = fleet
        self.marks: list[tuple[str, OperatorMark]] = []
        self.logs_asked: list[tuple[str, int, int, bool]] = []
        self.followers: list[StubFollower] = []
        self.log_lines: Sequence[str] = ("loading model", "listening")
        self.store_down = False

    def status(self) -> Status:
        return self.fleet.status

    def nodes(self) -> tuple[NodeRow, ...]:
        return self.fleet.nodes

    def replicas(self) -> tuple[ReplicaRow, ...]:
        return self.fleet.replicas

    def models(self) -> tuple[ModelRow, ...]:
        return self.fleet.status.models

    def routers(self) -> tuple[RouterRow, ...]:
        return self.fleet.status.routers

    async def explain(self, model: str) -> Explanation:
        if model not in {row.name for row in self.models()}:
            raise AdminRefused(404, "unknown_model", f"there is no model {model!r}")
        return msgspec.structs.replace(EXPLANATION, model=model)

    async def events(self, limit: int, model: str | None, node: str | None) -> tuple[EventRow, ...]:
        if self.store_down:
            raise StoreUnavailable("disk I/O error")
        wanted = [
            e for e in self.fleet.events if (model or e.model) == e.model and (node or e.node) == e.node
        ]
        return tuple(wanted[:limit])

    async def set_mark(self, node: str, mark: OperatorMark) -> NodeRow:
        for row in self.fleet.nodes:
            if row.id == node:
                self.marks.append((node, mark))
                return msgspec.structs.replace(row, mark=mark.mark.value)
        raise AdminRefused(404, "unknown_node", f"there is no node {node!r}")

    async def logs(self, replica: str, rank: int, lines: int, follow: bool) -> LogFollower:
        self.logs_asked.append((replica, rank, lines, follow))
        if replica not in {row.id for row in self.fleet.replicas}:
            raise AdminRefused(404, "unknown_replica", f"there is no replica {replica!r}")
        follower = StubFollower(self.log_lines, endless=follow)
        self.followers.append(follower)
        return follower


def options(clock: FixedClock | None = None, **changes: object) -> AdminOptions:
    """Options of an application on 127.0.0.1:8081 with `TOKEN`."""
    plain = AdminOptions(token=TOKEN, listen="127.0.0.1:8081", clock=clock or FixedClock())
    return msgspec.structs.replace(plain, **changes)


class Fleet(msgspec.Struct, frozen=True):
    """All a `StubAdmin` answers with."""

    status: Status
    nodes: tuple[NodeRow, ...] = ()
    replicas: tuple[ReplicaRow, ...] = ()
    events: tuple[EventRow, ...] = ()


EMPTY = Fleet(
    Status(
        version="0.1.0",
        cluster_id="c0ffee12",
        term=1,
        leading=True,
        settling_s=None,
        revision=1,
        nodes={},
        replicas={},
        models=(),
        routers=(),
        gpus={},
        store="ok",
    )
)

EXPLANATION = Explanation(
    model="qwen3-8b",
    outcome="runs on gpu-01 with profile h100: most free memory among 2 nodes that fit",
    profiles=(
        ProfileExplanation(
            "h100",
            True,
            (
                NodeVerdict("gpu-01", "chosen"),
                NodeVerdict("gpu-02", "fits"),
                NodeVerdict(
                    "cpu-01",
                    "rejected",
                    "gpu_class",
                    "needs a card of class h100, has none: use another node or a CPU profile",
                ),
            ),
            {"gpu_class": 1},
        ),
        ProfileExplanation(
            "cpu",
            False,
            (
                NodeVerdict(
                    "cpu-01", "rejected", "memory", "needs 24 GB memory, has 16 GB free of 31 GB: stop one"
                ),
            ),
            {"memory": 1},
        ),
    ),
)

GB = 10**9


def _gpus(kind: str, uses: str) -> tuple[GpuRow, ...]:
    words = {"f": "free", "u": "used", "x": "unhealthy"}
    return tuple(GpuRow(i, kind, words[use], 80 * GB) for i, use in enumerate(uses))


MODELS = (
    ModelRow(
        "qwen3-8b",
        "always",
        "ready",
        "declared",
        2,
        2,
        0,
        False,
        "General chat, 32k context",
        aliases=("fast",),
    ),
    ModelRow(
        "org/big-model:70b",
        "always",
        "waiting",
        "declared",
        1,
        0,
        0,
        False,
        reason="no node fits profile h100x4: needs 4 cards of class h100, has 1 free of 8: "
        "stop qwen3-8b-1a2b3c4d or add a node (3 nodes refused, 1 cordoned)",
    ),
    ModelRow("smollm2", "on-demand", "loading", "declared", 1, 0, 1, False, profiles=("cpu",)),
    ModelRow(
        "broken",
        "always",
        "failed",
        "declared",
        1,
        0,
        0,
        False,
        reason="engine_exited: status 1",
        retry_s=42.0,
    ),
    ModelRow("sim", "always", "ready", "declared", 1, 1, 0, True),
    ModelRow("old-one", "off", "off", "declared", 0, 0, 0, False),
)

REPLICAS = (
    ReplicaRow(
        "qwen3-8b-1a2b3c4d",
        "qwen3-8b",
        "h100",
        "ready",
        None,
        "http://10.0.0.11:20000",
        False,
        (ShardRow(0, "gpu-01", 4711, "ready"),),
        8000.0,
        3,
        0.4,
        True,
    ),
    ReplicaRow(
        "qwen3-8b-5e6f7a8b",
        "qwen3-8b",
        "h100",
        "ready",
        None,
        "http://10.0.0.12:20000",
        True,
        (ShardRow(0, "gpu-02", 4712, "ready"), ShardRow(1, "gpu-03", None, "ready")),
        90000.0,
        None,
        None,
    ),
    ReplicaRow(
        "smollm2-0badcafe",
        "smollm2",
        "cpu",
        "starting",
        None,
        None,
        False,
        (ShardRow(0, "cpu-01", 99, "fetching", "12.4 GB of 15.2 GB, 3m left"),),
        12.0,
    ),
    ReplicaRow(
        "broken-deadbeef",
        "broken",
        "cpu",
        "failed",
        "engine_exited: llama-server ended with status 1 after 0.4 s",
        None,
        None,
        (
            ShardRow(
                0,
                "cpu-01",
                None,
                "failed",
                None,
                "ended with status 1",
                (
                    "error loading model",
                    "\x1b[31mtensor 'x' has wrong shape\x1b[0m",
                    "<script>alert(1)</script>",
                ),
            ),
        ),
        30.0,
    ),
)

NODES = (
    NodeRow(
        "gpu-01",
        "ready",
        "ready",
        "10.0.0.11",
        "0.1.0",
        1000 * GB,
        40 * GB,
        700 * GB,
        3840 * GB,
        _gpus("h100", "uuuuuuuf"),
        ("vllm", "llama.cpp"),
        {"rack": "a3"},
        1.2,
        1,
    ),
    NodeRow(
        "gpu-02",
        "ready",
        "cordoned",
        "10.0.0.12",
        "0.1.0",
        1000 * GB,
        0,
        None,
        None,
        _gpus("h100", "uuxxffff"),
        ("vllm",),
        {},
        3.9,
        1,
        ("cordoned by token 2h ago: new power supply", "2 cards unhealthy: uncorrectable ECC errors"),
    ),
    NodeRow(
        "cpu-01",
        "ready",
        "ready",
        "127.0.0.1",
        "0.1.0",
        16 * GB,
        1 * GB,
        80 * GB,
        200 * GB,
        (),
        ("llama.cpp", "sim"),
        {},
        0.3,
        2,
    ),
    NodeRow(
        "gpu-03",
        "lost",
        "ready",
        None,
        heard_s=4000.0,
        reasons=("not heard for 1h6m: its agent is not connected",),
    ),
)

EVENTS = (
    EventRow(
        NOW - 2,
        "placed",
        "cpu-01 with profile cpu: the only node that fits",
        "smollm2",
        "smollm2-0badcafe",
        "cpu-01",
    ),
    EventRow(
        NOW - 40,
        "failed",
        "engine_exited: llama-server ended with status 1 after 0.4 s; next try in 42s",
        "broken",
        "broken-deadbeef",
        "cpu-01",
    ),
    EventRow(NOW - 4000, "lost", "no heartbeat for 120s", None, None, "gpu-03"),
    EventRow(NOW - 90000, "adopted", "found running, pid 4711", "qwen3-8b", "qwen3-8b-1a2b3c4d", "gpu-01"),
)

BUSY = Fleet(
    msgspec.structs.replace(
        EMPTY.status,
        nodes={"ready": 3, "lost": 1},
        replicas={"ready": 2, "starting": 1, "failed": 1},
        models=MODELS,
        routers=(RouterRow("r-1", 4000, "0.1.0", 17, "0.0.0.0:8080"),),
        gpus={"h100": {"free": 5, "used": 9, "unhealthy": 2}},
        revision=17,
        problems=("node gpu-03 is lost: not heard for 1h6m",),
    ),
    NODES,
    REPLICAS,
    EVENTS,
)


def large_fleet(count: int) -> Fleet:
    """Many nodes of eight cards, one in forty cordoned."""
    nodes = tuple(
        msgspec.structs.replace(
            NODES[0],
            id=f"gpu-{i:04d}",
            mark="cordoned" if i % 40 == 7 else "ready",
            address=f"10.0.{i // 250}.{i % 250}",
        )
        for i in range(count)
    )
    return msgspec.structs.replace(BUSY, nodes=nodes)


def _is_a_cluster_admin(stub: StubAdmin) -> ClusterAdmin:
    return stub  # checked by the type checker
