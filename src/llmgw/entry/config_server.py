"""Decides what `server.yaml` means: settings with defaults filled in, or every problem in it.

Laws: unknown keys are refused; sizes are bytes and durations seconds once read; beyond loopback the
admin and agent listeners need TLS or a written `insecure: true`.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from llmgw.core import defaults
from llmgw.core.breaker import Limits as BreakerLimits
from llmgw.core.catalog import Catalog, CatalogError, EngineTraits, ModelDefinition
from llmgw.core.catalog_build import build_catalog
from llmgw.core.claims import PortRange
from llmgw.core.definition import MODEL_LATER
from llmgw.core.inventory import PresenceLimits
from llmgw.core.shape import Duration, Problem, Shape, accepts, shown
from llmgw.core.units import GB, format_duration, parse_duration, write_duration
from llmgw.entry.config_common import (
    CLIENTS_LATER,
    ClientsConfig,
    ClientsWritten,
    Listen,
    Text,
    TimeoutsWritten,
    insecure_problem,
    read_settings,
)
from llmgw.ports import HttpTimeouts

# ---------------------------------------------------------------- as written

_PORTS = re.compile(r"(\d{1,5})-(\d{1,5})")


def parse_ports(text: str) -> PortRange | None:
    """The range in `20000-29999`, or `None` when it is not one of unprivileged ports."""
    found = _PORTS.fullmatch(text)
    if found is None:
        return None
    first, last = int(found[1]), int(found[2])
    return PortRange(first, last) if 1024 <= first <= last <= 65535 else None


Ports = Annotated[
    str,
    accepts(
        "a range of ports such as 20000-29999, within 1024-65535",
        lambda text: parse_ports(text) is not None,
    ),
]


class AdminWritten(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`admin:`."""

    listen: Listen = defaults.ADMIN_LISTEN
    insecure: bool = False
    hosts: tuple[Text, ...] = ()


class AgentsWritten(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`agents:`."""

    listen: Listen = defaults.AGENT_LISTEN_PLAIN
    insecure: bool = False


class ControlWritten(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`control:`."""

    settling: Duration = write_duration(defaults.SETTLING_S)
    tick: Duration = write_duration(defaults.TICK_S)
    foreign_memory_gb: Annotated[float, msgspec.Meta(ge=0)] = defaults.FOREIGN_MEMORY_GB
    unreachable_after: Duration = write_duration(defaults.UNREACHABLE_AFTER_S)
    lost_after: Duration = write_duration(defaults.LOST_AFTER_S)
    drain_grace: Duration = write_duration(defaults.DRAIN_GRACE_S)
    ports: Ports = f"{defaults.PORT_FIRST}-{defaults.PORT_LAST}"


Share = Annotated[float, msgspec.Meta(gt=0, le=1)]


class RetriesWritten(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`router.retries:`."""

    max: Annotated[int, msgspec.Meta(ge=0, le=10)] = defaults.RETRIES
    budget: Annotated[float, msgspec.Meta(ge=0, le=1)] = defaults.RETRY_BUDGET


class BreakerWritten(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`router.breaker:`."""

    failures: Annotated[int, msgspec.Meta(ge=1, le=1000)] = defaults.BREAKER_IN_ROW
    window: Annotated[int, msgspec.Meta(ge=1, le=1000)] = defaults.BREAKER_WINDOW
    share: Share = defaults.BREAKER_SHARE
    open_first: Duration = write_duration(defaults.BREAKER_OPEN_FIRST_S)
    open_cap: Duration = write_duration(defaults.BREAKER_OPEN_CAP_S)


class RouterWritten(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`router:`."""

    processes: Annotated[int, msgspec.Meta(ge=1, le=256)] = defaults.ROUTER_PROCESSES
    drain: Duration = write_duration(defaults.ROUTER_DRAIN_S)
    retries: RetriesWritten = RetriesWritten()
    breaker: BreakerWritten = BreakerWritten()
    timeouts: TimeoutsWritten = TimeoutsWritten()


class UsageWritten(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`usage:`."""

    flush: Duration = write_duration(defaults.USAGE_FLUSH_S)


class ServerWritten(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    clients: ClientsWritten = ClientsWritten()
    admin: AdminWritten = AdminWritten()
    agents: AgentsWritten = AgentsWritten()
    store: Text | None = None
    state_dir: Text = defaults.STATE_DIR
    control: ControlWritten = ControlWritten()
    router: RouterWritten = RouterWritten()
    usage: UsageWritten = UsageWritten()
    models: tuple[ModelDefinition, ...] = ()
    aliases: dict[str, str | dict[str, float]] = {}


SERVER_LATER = frozenset(
    {
        *CLIENTS_LATER,
        "admin.tls",
        "admin.oidc",
        "agents.tls",
        "keys",
        "ha",
        "control.evict_after",
        "control.min_serving",
        "control.freeze_fraction",
        "router.target_waiting",
        "router.kv_ceiling",
        "router.queue_length",
        "router.queue_wait",
        "router.load_wait",
        "limits",
        "usage.retention",
        "mirror",
        "otel",
        "endpoints",
        *(f"models[].{key}" for key in MODEL_LATER),
    }
)
"""Keys of server.yaml whose feature this version does not have yet."""


# ---------------------------------------------------------------- as used


class ListenerConfig(msgspec.Struct, frozen=True):
    """The admin or the agent listener, `host:port`. `insecure`: beyond loopback without TLS, as written."""

    listen: str
    insecure: bool


class ControlConfig(msgspec.Struct, frozen=True):
    """How the control plane decides."""

    settling_s: float
    tick_s: float
    foreign_memory_bytes: int
    presence: PresenceLimits
    drain_grace_s: float
    ports: PortRange


class RoutersConfig(msgspec.Struct, frozen=True):
    """What the server's own router processes are started with."""

    processes: int
    drain_s: float
    timeouts: HttpTimeouts
    retries: int
    retry_budget: float
    breaker: BreakerLimits


class UsageConfig(msgspec.Struct, frozen=True):
    """How usage rows reach the store."""

    flush_s: float


class ServerConfig(msgspec.Struct, frozen=True):
    """`server.yaml`, resolved; `catalog` is validated with the engines given to `load_server_config`."""

    path: Path  # the file itself
    clients: ClientsConfig
    admin: ListenerConfig
    admin_hosts: tuple[str, ...]  # names it may be asked by besides its address (N0)
    agents: ListenerConfig
    store: str  # a URL, such as sqlite:////var/lib/llmgw/llmgw.db
    state_dir: Path
    control: ControlConfig
    router: RoutersConfig
    usage: UsageConfig
    catalog: Catalog


def load_server_config(path: Path, engines: Mapping[str, EngineTraits]) -> ServerConfig:
    """Read and check the file. Raises `ConfigError`, also when it cannot be read."""
    settings, written = read_settings(path, Shape(ServerWritten, SERVER_LATER))
    control = _control(written.control)
    catalog = build_catalog(written.models, written.aliases, engines)
    problems = [
        *_store_problems(written.store),
        *_insecure_problems("admin", written.admin),
        *_insecure_problems("agents", written.agents),
        *_same_address_problems(written),
        *_control_problems(written.control, control),
    ]
    if isinstance(catalog, CatalogError):
        raise settings.error([*problems, *catalog.problems])
    if problems or written.store is None:
        raise settings.error(problems)
    return ServerConfig(
        path=path,
        clients=ClientsConfig(written.clients.listen, written.clients.max_body_mb),
        admin=ListenerConfig(written.admin.listen, written.admin.insecure),
        admin_hosts=written.admin.hosts,
        agents=ListenerConfig(written.agents.listen, written.agents.insecure),
        store=written.store,
        state_dir=settings.resolved(written.state_dir),
        control=control,
        router=_routers(written.router),
        usage=UsageConfig(parse_duration(written.usage.flush)),
        catalog=catalog,
    )


def _control(written: ControlWritten) -> ControlConfig:
    ports = parse_ports(written.ports)
    assert ports is not None, "the shape checked it"
    return ControlConfig(
        settling_s=parse_duration(written.settling),
        tick_s=parse_duration(written.tick),
        foreign_memory_bytes=round(written.foreign_memory_gb * GB),
        presence=PresenceLimits(
            parse_duration(written.unreachable_after), parse_duration(written.lost_after)
        ),
        drain_grace_s=parse_duration(written.drain_grace),
        ports=ports,
    )


def _routers(written: RouterWritten) -> RoutersConfig:
    breaker = written.breaker
    return RoutersConfig(
        processes=written.processes,
        drain_s=parse_duration(written.drain),
        timeouts=_timeouts(written.timeouts),
        retries=written.retries.max,
        retry_budget=written.retries.budget,
        breaker=BreakerLimits(
            in_row=breaker.failures,
            window=breaker.window,
            share=breaker.share,
            open_first_s=parse_duration(breaker.open_first),
            open_cap_s=parse_duration(breaker.open_cap),
        ),
    )


def _timeouts(written: TimeoutsWritten) -> HttpTimeouts:
    return HttpTimeouts(
        connect=parse_duration(written.connect),
        first_byte=parse_duration(written.first_byte),
        idle=parse_duration(written.idle),
        total=parse_duration(written.total),
    )


# ---------------------------------------------------------------- what one value alone does not show


def _store_problems(store: str | None) -> list[Problem]:
    from llmgw.store.address import BadStoreUrl, parse_store_url  # SQLAlchemy: only where a store is

    if store is None:
        return [
            Problem("store", "", "is required in this version, such as sqlite:////var/lib/llmgw/llmgw.db")
        ]
    try:
        parse_store_url(store)
    except BadStoreUrl as error:
        return [Problem("store", "", str(error).removeprefix("store: "))]
    return []


def _insecure_problems(key: str, written: AdminWritten | AgentsWritten) -> tuple[Problem, ...]:
    port = written.listen.rpartition(":")[2]
    remedy = f"listen on 127.0.0.1:{port}, or write {key}.insecure: true to go without"
    return insecure_problem(f"{key}.listen", written.listen, written.insecure, remedy)


def _same_address_problems(written: ServerWritten) -> list[Problem]:
    problems = []
    taken = {written.clients.listen: "clients.listen"}
    for name, address in (("admin.listen", written.admin.listen), ("agents.listen", written.agents.listen)):
        if address in taken and not address.endswith(":0"):
            problems.append(
                Problem(name, shown(name, address), f"is {taken[address]} already; each needs its own port")
            )
        taken.setdefault(address, name)
    return problems


def _control_problems(written: ControlWritten, control: ControlConfig) -> list[Problem]:
    problems = []
    limits = control.presence
    if control.tick_s <= 0:
        problems.append(Problem("control.tick", shown("", written.tick), "must be more than 0s"))
    if limits.unreachable_after_s <= defaults.HEARTBEAT_S:
        text = f"must be more than one heartbeat, {format_duration(defaults.HEARTBEAT_S)}"
        problems.append(Problem("control.unreachable_after", shown("", written.unreachable_after), text))
    if limits.lost_after_s <= limits.unreachable_after_s:
        text = f"must be more than unreachable_after, {format_duration(limits.unreachable_after_s)}"
        problems.append(Problem("control.lost_after", shown("", written.lost_after), text))
    return problems
