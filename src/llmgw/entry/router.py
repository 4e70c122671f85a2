"""Runs `llmgw router`: joins settings, sockets and clock to one router process.

Laws: everything that can refuse does so in one line; SIGTERM lets streams end within `drain_s`, a second
one does not; the process outlives the server that started it (G17).
"""

import argparse
import gc
import random
from pathlib import Path

import uvloop

from llmgw import __version__
from llmgw.aio.tasks import Tasks
from llmgw.entry.process import CannotRun, Stop, configure_logging, run_role
from llmgw.entry.router_settings import BadRouterSettings, RouterSettings, load, settings_hash
from llmgw.gateway.desk import Patience
from llmgw.gateway.router import Router, RouterIdentity, RouterOptions, RouterPorts
from llmgw.host.clock import SystemClock
from llmgw.net.http1.pool import UpstreamPool
from llmgw.net.http1.server import HttpListener
from llmgw.net.streams import StreamDialer

NOT_YET = "`llmgw router -c FILE` is not available in this version; `llmgw server` runs its own routers"


def build_router(settings: RouterSettings, identity: RouterIdentity, ports: RouterPorts) -> Router:
    """One router; the simulator builds it from ports of its own. Needs a running loop."""
    options = RouterOptions(
        listen=settings.listen,
        watch=settings.watch,
        timeouts=settings.timeouts,
        max_body_mb=settings.max_body_mb,
        drain_s=settings.drain_s,
        tick_s=settings.tick_s,
        usage_flush_s=settings.usage_flush_s,
        chat_page=settings.chat,
        retries=settings.retries,
        patience=Patience(settings.breaker, settings.retry_budget),
        identity=identity,
    )
    return Router(options, ports)


def main(argv: list[str]) -> int:
    """`llmgw router -c router.yaml`; `--child FILE --index N` is how a server starts its own."""
    parser = argparse.ArgumentParser(prog="llmgw router", description="One more router process.")
    parser.add_argument("-c", "--config", type=Path, help="router.yaml")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--index", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    configure_logging(f"router {options.index}")
    return run_role(
        lambda stop: _serve(options.child, options.index, stop), loop_factory=uvloop.new_event_loop
    )


async def _serve(file: Path | None, index: int, stop: Stop) -> int:
    """Run until asked to stop. Raises `CannotRun`."""
    if file is None:
        raise CannotRun(NOT_YET)
    settings, digest = read_settings(file)
    pid, start_time = own_process()
    identity = RouterIdentity(__version__, digest, pid, start_time, index)
    router = build_router(settings, identity, production_ports())
    settle_collector()
    async with Tasks() as tasks:
        tasks.start(_pass_on(stop, router), name="stop")
        try:
            await router.run()
        except OSError as error:
            raise CannotRun(f"clients.listen {settings.listen}: {error.strerror or error}") from error
    return 0


def settle_collector() -> None:
    """Keep the collector from walking what stays, and from running every few requests.

    A request leaves no cycles behind (a test holds it to that), so there is little to collect.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 20)


def production_ports() -> RouterPorts:
    """The outside as it is."""
    clock = SystemClock()
    return RouterPorts(
        listener=HttpListener(clock),
        upstream=UpstreamPool(),
        dialer=StreamDialer(),
        clock=clock,
        # Seeded by the system, not asking it each time: a request's name must differ, not be a secret.
        draw=random.Random(random.SystemRandom().getrandbits(256)),
    )


def read_settings(file: Path) -> tuple[RouterSettings, str]:
    """The settings and their identity. Raises `CannotRun`."""
    try:
        data = file.read_bytes()
        return load(data), settings_hash(data)
    except OSError as error:
        raise CannotRun(f"{file}: {error.strerror}") from error
    except BadRouterSettings as bad:
        raise CannotRun(f"{file}: {bad}") from bad


def own_process() -> tuple[int, int]:
    """Our pid and start time (clock ticks since boot), by which the server knows us again."""
    stat = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace")
    # The name in parentheses may hold anything, so fields are counted after it: start time is the 22nd.
    return int(stat.partition(" ")[0]), int(stat.rpartition(")")[2].split()[19])


async def _pass_on(stop: Stop, router: Router) -> None:
    await stop.requested.wait()
    router.stop()
    await stop.hurried.wait()
    router.stop(hurry=True)
